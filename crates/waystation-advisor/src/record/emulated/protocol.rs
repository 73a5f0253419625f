//! The few messages of the kernel's FUSE protocol (version 7.31) that a directory of fixed files needs.
//!
//! Every message from the kernel begins with 40 bytes: length u32, opcode u32, unique u64, node u64, uid u32, gid u32,
//! pid u32, extension length u16, padding u16. Every answer begins with 16: length u32, error i32 (negative errno),
//! unique u64. Numbers are in the machine's own byte order. Source: include/uapi/linux/fuse.h.

#![expect(
    clippy::host_endian_bytes,
    reason = "the kernel speaks in the machine's own byte order"
)]

/// Bytes of a message's head.
pub(super) const HEAD_BYTES: usize = 40;
/// Bytes that one read or write carries at most.
pub(super) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The directory itself.
pub(super) const ROOT_NODE: u64 = 1;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

/// Reads are not serialised with each other.
const ASYNC_READ: u32 = 1;
/// A write may carry more than a page.
const BIG_WRITES: u32 = 1 << 5;
/// Direct requests may be outstanding together.
const ASYNC_DIO: u32 = 1 << 15;
/// A request may carry `max_pages`.
const MAX_PAGES: u32 = 1 << 22;
/// In the answer to `OPEN`: nothing of this file is kept in the page cache.
const OPEN_DIRECT_IO: u32 = 1;
/// In the answer to `OPEN`: writes to it need not wait for each other.
const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

const DIRECTORY_MODE: u32 = 0o040_700;
const FILE_MODE: u32 = 0o100_600;

pub(super) const ENOENT: i32 = 2;
pub(super) const EIO: i32 = 5;
pub(super) const EINVAL: i32 = 22;
pub(super) const ENOSYS: i32 = 38;

/// What the kernel asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call<'a> {
    Init {
        flags: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    Attributes,
    Open,
    OpenDirectory,
    Read {
        offset: u64,
        bytes: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Sync,
    Statistics,
    /// Closing and the like: answered with success.
    Nothing,
    /// Wants no answer.
    Silent,
    Unknown,
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) call: Call<'a>,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads a message; nothing if it is cut short.
pub(super) fn parse(message: &[u8]) -> Option<Message<'_>> {
    let body = message.get(HEAD_BYTES..)?;
    let call = match u32_at(message, 4)? {
        INIT => Call::Init {
            flags: u32_at(body, 12)?,
        },
        LOOKUP => Call::Lookup {
            name: body.split(|byte| *byte == 0).next()?,
        },
        GETATTR | SETATTR => Call::Attributes,
        OPEN => Call::Open,
        OPENDIR => Call::OpenDirectory,
        READ => Call::Read {
            offset: u64_at(body, 8)?,
            bytes: u32_at(body, 16)?,
        },
        WRITE => {
            let bytes = u32_at(body, 16)? as usize;
            Call::Write {
                offset: u64_at(body, 8)?,
                data: body.get(40..40 + bytes)?,
            }
        }
        FSYNC => Call::Sync,
        STATFS => Call::Statistics,
        RELEASE | FLUSH | RELEASEDIR | ACCESS | DESTROY => Call::Nothing,
        FORGET | BATCH_FORGET | INTERRUPT => Call::Silent,
        _ => Call::Unknown,
    };
    Some(Message {
        unique: u64_at(message, 8)?,
        node: u64_at(message, 16)?,
        call,
    })
}

/// An answer: a head and then, in order, whatever is put.
pub(super) struct Answer(Vec<u8>);

impl Answer {
    fn head(unique: u64, error: i32) -> Self {
        let mut bytes = Vec::with_capacity(160);
        bytes.extend_from_slice(&0_u32.to_ne_bytes());
        bytes.extend_from_slice(&error.to_ne_bytes());
        bytes.extend_from_slice(&unique.to_ne_bytes());
        Self(bytes)
    }

    fn u64s(mut self, values: &[u64]) -> Self {
        for value in values {
            self.0.extend_from_slice(&value.to_ne_bytes());
        }
        self
    }

    fn u32s(mut self, values: &[u32]) -> Self {
        for value in values {
            self.0.extend_from_slice(&value.to_ne_bytes());
        }
        self
    }

    /// Success, without anything.
    pub(super) fn empty(unique: u64) -> Self {
        Self::head(unique, 0)
    }

    /// Failure.
    pub(super) fn error(unique: u64, errno: i32) -> Self {
        Self::head(unique, -errno)
    }

    /// What this file system can do, of what the kernel offers.
    pub(super) fn init(unique: u64, offered: u32) -> Self {
        let flags = offered & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES);
        let (background, congestion) = (64_u32, 48_u32);
        let pages = TRANSFER_BYTES_MAX / 4096;
        Self::head(unique, 0)
            // Version, read-ahead, flags; two u16 in one; largest write, granularity of times; pages, alignment.
            .u32s(&[
                7,
                31,
                0,
                flags,
                background | congestion << 16,
                TRANSFER_BYTES_MAX,
                1,
                pages,
            ])
            .u32s(&[0; 8])
    }

    fn attributes(self, node: u64, bytes: u64) -> Self {
        let mode = if node == ROOT_NODE {
            DIRECTORY_MODE
        } else {
            FILE_MODE
        };
        self.u64s(&[node, bytes, bytes.div_ceil(512), 0, 0, 0])
            // Times, mode, links, uid, gid, device, block size, flags.
            .u32s(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])
    }

    /// A name was found.
    pub(super) fn entry(unique: u64, node: u64, bytes: u64) -> Self {
        // Node, generation, for how many seconds name and attributes hold (for ever), their nanoseconds.
        Self::head(unique, 0)
            .u64s(&[node, 0, u64::from(u32::MAX), u64::from(u32::MAX)])
            .u32s(&[0, 0])
            .attributes(node, bytes)
    }

    /// A node's attributes.
    pub(super) fn attributes_of(unique: u64, node: u64, bytes: u64) -> Self {
        Self::head(unique, 0)
            .u64s(&[u64::from(u32::MAX)])
            .u32s(&[0, 0])
            .attributes(node, bytes)
    }

    /// A file is open, past the page cache; or a directory.
    pub(super) fn opened(unique: u64, directory: bool) -> Self {
        let flags = if directory {
            0
        } else {
            OPEN_DIRECT_IO | OPEN_PARALLEL_WRITES
        };
        Self::head(unique, 0).u64s(&[0]).u32s(&[flags, 0])
    }

    /// So much was written.
    pub(super) fn written(unique: u64, bytes: u32) -> Self {
        Self::head(unique, 0).u32s(&[bytes, 0])
    }

    /// An empty file system.
    pub(super) fn statistics(unique: u64) -> Self {
        Self::head(unique, 0)
            .u64s(&[0; 5])
            .u32s(&[4096, 255, 4096, 0])
            .u32s(&[0; 6])
    }

    /// What was read.
    pub(super) fn data(unique: u64, data: &[u8]) -> Self {
        let mut answer = Self::head(unique, 0);
        answer.0.extend_from_slice(data);
        answer
    }

    /// The bytes for the kernel.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&2_u64.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn reads_and_writes_are_understood() {
        let mut body = vec![0; 40];
        body[8..16].copy_from_slice(&8192_u64.to_ne_bytes());
        body[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        body.extend_from_slice(b"abc");
        let bytes = message(WRITE, &body);
        let write = parse(&bytes).unwrap();
        assert_eq!((write.unique, write.node), (77, 2));
        assert_eq!(
            write.call,
            Call::Write {
                offset: 8192,
                data: b"abc"
            }
        );
        let bytes = message(READ, &body);
        assert_eq!(
            parse(&bytes).unwrap().call,
            Call::Read {
                offset: 8192,
                bytes: 3
            }
        );
        let bytes = message(LOOKUP, b"swap.img\0");
        assert_eq!(
            parse(&bytes).unwrap().call,
            Call::Lookup { name: b"swap.img" }
        );
        assert_eq!(parse(&message(9_999, &[])).unwrap().call, Call::Unknown);
    }

    #[test]
    fn a_message_cut_short_is_none() {
        let mut body = vec![0; 40];
        body[16..20].copy_from_slice(&100_u32.to_ne_bytes());
        for bytes in [message(WRITE, &body), message(READ, &[0; 8]), vec![0; 12]] {
            assert_eq!(parse(&bytes), None);
        }
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_expects() {
        let length = |answer: Answer| {
            let bytes = answer.finish();
            assert_eq!(bytes.len(), u32_at(&bytes, 0).unwrap() as usize);
            bytes.len() - 16
        };
        assert_eq!(length(Answer::init(1, u32::MAX)), 64);
        assert_eq!(length(Answer::entry(1, 2, 5)), 128);
        assert_eq!(length(Answer::attributes_of(1, 2, 5)), 104);
        assert_eq!(length(Answer::opened(1, false)), 16);
        assert_eq!(length(Answer::written(1, 4)), 8);
        assert_eq!(length(Answer::statistics(1)), 80);
        let error = Answer::error(5, ENOENT).finish();
        assert_eq!(error[4..8], (-ENOENT).to_ne_bytes());
    }
}
