//! One block of rows to bytes and back.

use crate::event::{Flags, NOT_COMPLETED, Op, Request};

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Appends the columns of `rows` to `out`.
pub(super) fn encode(rows: &[Request], out: &mut Vec<u8>) {
    let mut before = 0;
    for row in rows {
        put(out, row.issue_ns - before);
        before = row.issue_ns;
    }
    for row in rows {
        put(
            out,
            row.latency_ns()
                .map_or(0, |latency| latency.saturating_add(1)),
        );
    }
    out.extend(rows.iter().map(|row| row.op as u8));
    out.extend(rows.iter().map(|row| row.flags.0));
    out.extend(rows.iter().map(|row| row.area));
    let mut ends = [0_u64; 256];
    for row in rows {
        let end = &mut ends[usize::from(row.area)];
        put(out, zigzag(row.offset.wrapping_sub(*end).cast_signed()));
        *end = row.offset.wrapping_add(u64::from(row.length));
    }
    for row in rows {
        put(out, u64::from(row.length));
    }
    let mut pid = 0_i64;
    for row in rows {
        put(out, zigzag(i64::from(row.pid) - pid));
        pid = i64::from(row.pid);
    }
    for row in rows {
        put(out, u64::from(row.comm));
    }
}

struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = *self.data.get(self.at)?;
        self.at += 1;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = *self.data.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn slice(&mut self, bytes: usize) -> Option<&[u8]> {
        let slice = self.data.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(slice)
    }
}

/// Replaces `rows` by the `count` rows in `data`; `None` when the bytes do not make sense.
pub(super) fn decode(data: &[u8], count: usize, rows: &mut Vec<Request>) -> Option<()> {
    let mut bytes = Bytes { data, at: 0 };
    rows.clear();
    let mut time = 0_u64;
    for _ in 0..count {
        time = time.checked_add(bytes.varint()?)?;
        rows.push(Request {
            issue_ns: time,
            complete_ns: 0,
            offset: 0,
            length: 0,
            pid: 0,
            comm: 0,
            area: 0,
            op: Op::Read,
            flags: Flags::default(),
        });
    }
    for row in rows.iter_mut() {
        row.complete_ns = match bytes.varint()? {
            0 => NOT_COMPLETED,
            latency => row.issue_ns.checked_add(latency - 1)?,
        };
    }
    for (row, code) in rows.iter_mut().zip(bytes.slice(count)?) {
        row.op = Op::from_code(*code)?;
    }
    for (row, code) in rows.iter_mut().zip(bytes.slice(count)?) {
        row.flags = Flags(*code);
    }
    for (row, code) in rows.iter_mut().zip(bytes.slice(count)?) {
        row.area = *code;
    }
    let mut ends = [0_u64; 256];
    let offsets_at = bytes.at;
    // Offsets depend on lengths, which follow them: find the lengths first, then go through both columns.
    for _ in 0..count {
        bytes.varint()?;
    }
    let mut offsets = Bytes {
        data,
        at: offsets_at,
    };
    for row in rows.iter_mut() {
        row.length = u32::try_from(bytes.varint()?).ok()?;
        let end = &mut ends[usize::from(row.area)];
        row.offset = end.wrapping_add(unzigzag(offsets.varint()?).cast_unsigned());
        *end = row.offset.wrapping_add(u64::from(row.length));
    }
    let mut pid = 0_i64;
    for row in rows.iter_mut() {
        pid = pid.wrapping_add(unzigzag(bytes.varint()?));
        row.pid = u32::try_from(pid).ok()?;
    }
    for row in rows.iter_mut() {
        row.comm = u32::try_from(bytes.varint()?).ok()?;
    }
    (bytes.at == data.len()).then_some(())
}
