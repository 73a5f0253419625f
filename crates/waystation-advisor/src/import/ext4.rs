//! Where the internal journal of an ext4 file system lies: the extents of inode 8, read from the image.
//!
//! Sources: the kernel's documentation of ext4's on-disk structures (superblock, group descriptors, inode, extent
//! tree). Only what leads to that one inode is read.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Error, Result};

/// The extent tree's magic number and depth bound.
const EXTENT_MAGIC: u16 = 0xf30a;
const DEPTH_MAX: u16 = 5;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Size of the file system.
    pub(super) bytes: u64,
    /// Byte ranges of its journal; empty when the journal is on another device.
    pub(super) journal: Vec<Range<u64>>,
}

struct Image<'a> {
    path: &'a Path,
    file: File,
    block_bytes: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

impl Image<'_> {
    fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.file
            .read_exact_at(&mut buffer, at)
            .map_err(|source| Error::io("read", self.path, source))?;
        Ok(buffer)
    }

    fn wrong(&self, reason: &str) -> Error {
        Error::Usage(format!(
            "{} does not show its journal: {reason}",
            self.path.display()
        ))
    }

    /// Adds the ranges below one node of the extent tree.
    fn extents(&self, node: &[u8], depth_left: u16, ranges: &mut Vec<Range<u64>>) -> Result<()> {
        if u16_at(node, 0) != EXTENT_MAGIC {
            return Err(self.wrong("its journal inode has no extent tree (ext3 layout)"));
        }
        let (entries, depth) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
        if depth > depth_left || 12 + entries * 12 > node.len() {
            return Err(self.wrong("its extent tree is damaged"));
        }
        for entry in node[12..].chunks_exact(12).take(entries) {
            if depth == 0 {
                let length = u64::from(u16_at(entry, 4) & 0x7fff);
                let start = u64::from(u16_at(entry, 6)) << 32 | u64::from(u32_at(entry, 8));
                ranges.push(start * self.block_bytes..(start + length) * self.block_bytes);
            } else {
                let child = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                let child = self.read(child * self.block_bytes, self.block_bytes as usize)?;
                self.extents(&child, depth - 1, ranges)?;
            }
        }
        Ok(())
    }
}

/// Reads the layout of the file system in `path`.
pub(super) fn layout(path: &Path) -> Result<Layout> {
    let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
    let mut image = Image {
        path,
        file,
        block_bytes: 0,
    };
    let superblock = image.read(1024, 1024)?;
    if u16_at(&superblock, 56) != 0xef53 {
        return Err(image.wrong("it holds no ext4 file system"));
    }
    let shift = u32_at(&superblock, 24);
    if shift > 6 {
        return Err(image.wrong("its block size is implausible"));
    }
    image.block_bytes = 1024 << shift;
    let incompatible = u32_at(&superblock, 96);
    let is_64bit = incompatible & 0x80 != 0;
    let blocks = u64::from(u32_at(&superblock, 4))
        | if is_64bit {
            u64::from(u32_at(&superblock, 0x150)) << 32
        } else {
            0
        };
    let mut layout = Layout {
        bytes: blocks * image.block_bytes,
        journal: Vec::new(),
    };
    // A journal of its own device is named by UUID and has no inode.
    let inode = u64::from(u32_at(&superblock, 224));
    if inode == 0 {
        return Ok(layout);
    }
    let inodes_per_group = u64::from(u32_at(&superblock, 40)).max(1);
    let inode_bytes = u64::from(u16_at(&superblock, 88)).max(128);
    let descriptor_bytes = if is_64bit {
        u64::from(u16_at(&superblock, 254)).max(32)
    } else {
        32
    };
    let group = (inode - 1) / inodes_per_group;
    let descriptors_at = (u64::from(u32_at(&superblock, 20)) + 1) * image.block_bytes;
    let descriptor = image.read(
        descriptors_at + group * descriptor_bytes,
        descriptor_bytes as usize,
    )?;
    let high = if descriptor.len() >= 64 {
        u64::from(u32_at(&descriptor, 40)) << 32
    } else {
        0
    };
    let table_at = (u64::from(u32_at(&descriptor, 8)) | high) * image.block_bytes;
    let inode = image.read(table_at + (inode - 1) % inodes_per_group * inode_bytes, 128)?;
    let root = inode[40..100].to_vec();
    image.extents(&root, DEPTH_MAX, &mut layout.journal)?;
    Ok(layout)
}
