//! The bytes in which a shard's requests and replies travel between a host and its drives.
//!
//! ```text
//!   number   varint (LEB128)                 text, bytes   length, then the bytes
//!   flag     u8: 0 or 1                      list          count, then the elements
//!   option   flag, then the value if it is 1
//!   choice   u8 that names the variant, then its members in order
//! ```
//!
//! A value is the sequence of its members, without names: both sides speak the same [`VERSION`], which a connection
//! compares before anything else. Never give a number of a variant a second meaning; a new variant or member is a new
//! version.
//!
//! Invariants: reading allocates no more than the bytes that are there justify; what is left behind a value is an error.

mod error;
mod types;

pub use waystation_format::FormatError;
pub use waystation_format::varint::Reader;
use waystation_format::varint::{put_length_prefixed, put_u64};

/// The version of these bytes. Host and drive must have the same.
pub const VERSION: u32 = 2;

/// A value that travels.
pub trait Wire: Sized {
    /// Appends the value to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads a value.
    ///
    /// # Errors
    /// [`FormatError`] if the bytes are none.
    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError>;
}

/// The bytes of `value`.
pub fn encode<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The value whose bytes are `bytes`, all of them.
///
/// # Errors
/// [`FormatError`] if they are none, or more than one.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, FormatError> {
    let mut reader = Reader::new(bytes);
    let value = T::take(&mut reader)?;
    if reader.is_empty() {
        return Ok(value);
    }
    Err(malformed(&reader, "something stands behind the value"))
}

/// What does not hold at the place of `reader`.
pub fn malformed(reader: &Reader<'_>, reason: &'static str) -> FormatError {
    let offset = reader.offset() as u64;
    FormatError::Malformed { offset, reason }
}

/// Makes structures travel: their members in order.
#[macro_export]
macro_rules! wire_struct {
    ($($type:ty { $($field:ident),* $(,)? })*) => { $(
        impl $crate::wire::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::wire::Wire::put(&self.$field, out); )*
            }

            fn take(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::FormatError> {
                Ok(Self { $( $field: $crate::wire::Wire::take(reader)?, )* })
            }
        }
    )* };
}

/// Makes choices travel: the number of the variant, and its members in order.
#[macro_export]
macro_rules! wire_enum {
    ($($type:ty {
        $( $number:literal => $variant:ident $( { $($field:ident),* $(,)? } )? $( ( $($item:ident),* ) )? ),* $(,)?
    })*) => { $(
        impl $crate::wire::Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $( { $($field),* } )? $( ( $($item),* ) )? => {
                        out.push($number);
                        $( $( $crate::wire::Wire::put($field, out); )* )?
                        $( $( $crate::wire::Wire::put($item, out); )* )?
                    } )*
                }
            }

            fn take(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::wire::FormatError> {
                match reader.u8("a choice")? {
                    $( $number => {
                        $( $( let $field = $crate::wire::Wire::take(reader)?; )* )?
                        $( $( let $item = $crate::wire::Wire::take(reader)?; )* )?
                        Ok(Self::$variant $( { $($field),* } )? $( ( $($item),* ) )?)
                    } )*
                    _ => Err($crate::wire::malformed(reader, "there is no such choice")),
                }
            }
        }
    )* };
}

pub use crate::{wire_enum, wire_struct};

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, *self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        reader.var_u64("a number")
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, u64::from(*self));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        reader.var_u32("a number")
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, *self as u64);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let number = Self::try_from(reader.var_u64("a number")?);
        number.map_err(|_| malformed(reader, "a number is too large for this machine"))
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        match reader.u8("a flag")? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed(reader, "a flag is neither 0 nor 1")),
        }
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self.as_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let text = Self::from_utf8(Vec::take(reader)?);
        text.map_err(|_| malformed(reader, "a text is not UTF-8"))
    }
}

impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(reader.length_prefixed("bytes")?.to_vec())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.len() as u64);
        for element in self {
            element.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let count = reader.var_u64("a count")?;
        let mut list = Self::new();
        for _ in 0..count {
            list.push(T::take(reader)?);
        }
        Ok(list)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(if bool::take(reader)? {
            Some(T::take(reader)?)
        } else {
            None
        })
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok((A::take(reader)?, B::take(reader)?))
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(if bool::take(reader)? {
            Ok(T::take(reader)?)
        } else {
            Err(E::take(reader)?)
        })
    }
}

impl Wire for () {
    fn put(&self, _out: &mut Vec<u8>) {}

    fn take(_reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
