//! Decodes Snappy, as blocks of tables hold it.
//!
//! Reading a table is mostly decoding: with the `snap` crate's decoder, which copies eight bytes at a time, it
//! took half of a scan's time. This one moves [`WIDE`] bytes at once wherever source and target allow it, past
//! what the element asks for: elements come in order, so whatever is written too far is overwritten by the next
//! one, and the output has [`WIDE`] bytes of room behind its end. That is the whole trick, and it needs no
//! `unsafe`: a move of fixed length is one bounds check.
//!
//! The format is described in `format_description.txt` of google/snappy; encoding is left to `snap`.
//!
//! ```text
//! stream  = varint: length of the output | element*
//! element = tag: two bits of kind, six of length | ... | literal bytes
//! ```

use crate::varint;

/// The most that a copy element can copy, and what is moved at once.
const WIDE: usize = 64;
/// Short literals are moved by so many bytes.
const NARROW: usize = 16;
/// The longest element without literal bytes: its tag and four bytes of length or offset.
const ELEMENT_BYTES: usize = 5;

/// How long the output of `stream` says it is, and where its elements begin.
#[inline]
pub(super) fn output_length(stream: &[u8]) -> Option<(usize, usize)> {
    let (length, start) = varint::get_u32(stream)?;
    Some((length as usize, start))
}

/// Makes `out` the `length` bytes that `elements` stand for; `None` if they are not well formed.
pub(super) fn decode(elements: &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    // Zeros are written only where there is no memory of a block before.
    out.reserve_exact((length + WIDE).saturating_sub(out.len()));
    out.resize(length + WIDE, 0);
    decode_into(elements, length, out)?;
    out.truncate(length);
    Some(())
}

fn decode_into(elements: &[u8], length: usize, out: &mut [u8]) -> Option<()> {
    debug_assert_eq!(out.len(), length + WIDE);
    let (mut at, mut filled) = (0, 0);
    while at < elements.len() {
        let element = Element::read(elements, at)?;
        at += element.bytes;
        if element.length > length - filled {
            return None;
        }
        if element.offset == 0 {
            copy_literal(elements, at, element.length, out, filled)?;
            at += element.length;
        } else {
            copy_back(out, filled, element.offset, element.length)?;
        }
        filled += element.length;
    }
    (filled == length).then_some(())
}

/// An element without its literal bytes.
#[derive(Clone, Copy)]
struct Element {
    /// How long it is.
    bytes: usize,
    /// How many bytes of output it makes.
    length: usize,
    /// How far back they are copied from; 0 for a literal.
    offset: usize,
}

impl Element {
    #[inline]
    fn read(elements: &[u8], at: usize) -> Option<Self> {
        let rest = &elements[at..];
        if let Some(head) = rest.first_chunk::<ELEMENT_BYTES>() {
            return Self::parse(*head);
        }
        let mut head = [0; ELEMENT_BYTES];
        head[..rest.len()].copy_from_slice(rest);
        Self::parse(head).filter(|element| element.bytes <= rest.len())
    }

    #[inline]
    fn parse(head: [u8; ELEMENT_BYTES]) -> Option<Self> {
        let [tag, operand @ ..] = head;
        let operand = u32::from_le_bytes(operand) as usize;
        let high = usize::from(tag >> 2);
        let (bytes, length, offset) = match tag & 3 {
            0 if high < 60 => {
                return Some(Self {
                    bytes: 1,
                    length: high + 1,
                    offset: 0,
                });
            }
            0 => {
                let bytes = high - 59;
                let length = operand & (usize::MAX >> (usize::BITS as usize - 8 * bytes));
                return Some(Self {
                    bytes: 1 + bytes,
                    length: length + 1,
                    offset: 0,
                });
            }
            1 => (2, 4 + (high & 7), (high >> 3) << 8 | operand & 0xff),
            2 => (3, high + 1, operand & 0xffff),
            _ => (5, high + 1, operand),
        };
        (offset != 0).then_some(Self {
            bytes,
            length,
            offset,
        })
    }
}

#[inline]
fn copy_literal(
    from: &[u8],
    at: usize,
    length: usize,
    out: &mut [u8],
    filled: usize,
) -> Option<()> {
    if length <= NARROW
        && let Some(bytes) = from[at..].first_chunk::<NARROW>()
    {
        out[filled..filled + NARROW].copy_from_slice(bytes);
        return Some(());
    }
    let bytes = from.get(at..at.checked_add(length)?)?;
    out[filled..filled + length].copy_from_slice(bytes);
    Some(())
}

#[inline]
fn copy_back(out: &mut [u8], filled: usize, offset: usize, length: usize) -> Option<()> {
    let start = filled.checked_sub(offset)?;
    if offset >= WIDE {
        let bytes: [u8; WIDE] = *out[start..].first_chunk()?;
        out[filled..filled + WIDE].copy_from_slice(&bytes);
        return Some(());
    }
    // The source runs into what is being written: it is repeated, so every pass doubles what may be copied.
    let mut done = 0;
    while done < length {
        let pass = (offset + done).min(length - done);
        out.copy_within(start..start + pass, filled + done);
        done += pass;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ours(stream: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (length, start) = output_length(stream)?;
        if length > 1 << 20 {
            return None;
        }
        decode(&stream[start..], length, out)
    }

    fn theirs(stream: &[u8]) -> Option<Vec<u8>> {
        if snap::raw::decompress_len(stream).ok()? > 1 << 20 {
            return None;
        }
        snap::raw::Decoder::new().decompress_vec(stream).ok()
    }

    /// Text that repeats itself at all kinds of distances.
    fn repetitive() -> impl Strategy<Value = Vec<u8>> {
        let piece = (
            prop::collection::vec(any::<u8>(), 1..90),
            1_usize..6,
            any::<u16>(),
        );
        prop::collection::vec(piece, 0..60).prop_map(|pieces| {
            let mut text: Vec<u8> = Vec::new();
            for (piece, times, back) in pieces {
                for _ in 0..times {
                    text.extend_from_slice(&piece);
                }
                let back = (usize::from(back) % (text.len() + 1)).min(100);
                text.extend_from_within(text.len() - back..);
            }
            text
        })
    }

    /// Elements of all kinds, mostly well formed.
    fn elements() -> impl Strategy<Value = Vec<u8>> {
        let literal = prop::collection::vec(any::<u8>(), 1..70).prop_map(|bytes| {
            let mut element = match bytes.len() - 1 {
                short @ 0..60 => vec![(short as u8) << 2],
                long => vec![60 << 2, long as u8],
            };
            element.extend_from_slice(&bytes);
            element
        });
        let near =
            (0_u8..8, any::<u8>()).prop_map(|(length, offset)| vec![1 | length << 2, offset]);
        let far = (0_u8..64, 0_u16..200)
            .prop_map(|(length, offset)| [&[2 | length << 2][..], &offset.to_le_bytes()].concat());
        let farther = (0_u8..64, 0_u32..100)
            .prop_map(|(length, offset)| [&[3 | length << 2][..], &offset.to_le_bytes()].concat());
        let element = prop_oneof![3 => literal, 1 => near, 2 => far, 1 => farther];
        prop::collection::vec(element, 0..12).prop_map(|elements| elements.concat())
    }

    proptest! {
        #[test]
        fn what_was_encoded_comes_back(text in repetitive(), mut memory in prop::collection::vec(any::<u8>(), 0..300)) {
            let stream = snap::raw::Encoder::new().compress_vec(&text).unwrap();
            prop_assert_eq!(ours(&stream, &mut memory), Some(()));
            prop_assert_eq!(memory, text);
        }

        #[test]
        fn both_decoders_say_the_same_of_any_elements(elements in elements(), length in 0_u32..1000, exact in any::<bool>()) {
            let mut out = Vec::new();
            // The true length, found by asking for more and more, makes most of them decodable.
            let lengths = if exact { 0..1500 } else { length..length + 1 };
            for length in lengths {
                let mut stream = Vec::new();
                varint::put_u32(&mut stream, length);
                stream.extend_from_slice(&elements);
                let theirs = theirs(&stream);
                prop_assert_eq!(ours(&stream, &mut out).map(|()| out.clone()), theirs.clone());
                if theirs.is_some() {
                    break;
                }
            }
        }

        #[test]
        fn both_decoders_say_the_same_of_damaged_streams(text in repetitive(), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
            let mut stream = snap::raw::Encoder::new().compress_vec(&text).unwrap();
            let at = at.index(stream.len());
            stream[at] ^= 1_u8 << bit;
            let mut out = Vec::new();
            prop_assert_eq!(ours(&stream, &mut out).map(|()| out.clone()), theirs(&stream));
        }
    }
}
