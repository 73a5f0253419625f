//! The commands that carry an advice out on Linux. The user names the devices; nothing is executed here.

use super::{Candidate, How};

/// Commands for a candidate that Linux's own tools can do, with `$FAST1`, `$FAST2`, ... for its partitions.
pub(super) fn commands(candidate: &Candidate) -> Vec<String> {
    let mut lines = Vec::new();
    let several = candidate.shares.len() > 1;
    if several {
        lines.push("# partition the fast device, one part per share:".to_owned());
        let parts: Vec<String> = candidate
            .shares
            .iter()
            .map(|share| format!("size={}KiB", share.bytes.div_ceil(1024)))
            .collect();
        lines.push(format!("printf '{}\\n' | sfdisk $FAST", parts.join("\\n")));
    }
    for (number, share) in candidate.shares.iter().enumerate() {
        let device = if several {
            format!("$FAST{}", number + 1)
        } else {
            "$FAST".to_owned()
        };
        match share.how {
            How::JournalSized => lines.extend([
                format!(
                    "# {}: an external journal of {} MiB; the file system must be unmounted",
                    share.area,
                    share.bytes >> 20
                ),
                format!(
                    "mke2fs -b 4096 -O journal_dev {device} {}",
                    share.bytes / 4096
                ),
                "umount $MOUNTPOINT && e2fsck -f $FILESYSTEM".to_owned(),
                "tune2fs -O ^has_journal $FILESYSTEM".to_owned(),
                format!("tune2fs -J device={device} $FILESYSTEM && mount $FILESYSTEM $MOUNTPOINT"),
            ]),
            How::SwapSized => lines.extend([
                format!(
                    "# {}: a swap device that is filled before the others",
                    share.area
                ),
                format!("mkswap {device} && swapon --priority 100 {device}"),
            ]),
            How::Whole => lines.extend([
                format!(
                    "# {}: the files that it uses onto a file system of their own",
                    share.area
                ),
                format!("mkfs.ext4 {device} && mkdir -p /mnt/fast && mount {device} /mnt/fast"),
                "cp -a $MOUNTPOINT/. /mnt/fast/ && umount /mnt/fast && umount $MOUNTPOINT"
                    .to_owned(),
                format!("mount {device} $MOUNTPOINT"),
            ]),
            How::FirstTouch | How::HotSet | How::CacheWriteBack | How::CacheWriteThrough => {}
        }
    }
    lines
}
