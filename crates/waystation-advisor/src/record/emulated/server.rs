//! The process behind an emulated device.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount};

use super::protocol::{
    Answer, Call, EINVAL, EIO, ENOENT, ENOSYS, HEAD_BYTES, Message, ROOT_NODE, TRANSFER_BYTES_MAX,
    parse,
};
use super::{CONTROL_FILE, Emulation};
use crate::error::{Error, Result};
use crate::event::Op;
use crate::record::session::now;
use crate::simulate::Clocked;
use crate::text::read_text;

/// The first node that is an image; the one before it is the control file.
const FIRST_IMAGE: u64 = CONTROL_NODE + 1;
const CONTROL_NODE: u64 = ROOT_NODE + 1;

/// A request that the device works on.
enum Waiting {
    Read {
        unique: u64,
        image: usize,
        offset: u64,
        bytes: u32,
    },
    Done {
        answer: Vec<u8>,
    },
}

struct Server {
    kernel: File,
    images: Vec<(String, u64, u64, File)>,
    device: Clocked,
    started: Instant,
    /// Requests take the time of the model.
    timed: bool,
    next_ticket: u32,
    waiting: HashMap<u32, Waiting>,
}

/// Mounts the device that the JSON file `file` describes (an [`Emulation`]), and serves it until it is unmounted. Needs root and
/// FUSE.
///
/// # Errors
/// [`Error::Usage`] if the file describes no device, [`Error::Refused`] without FUSE, [`Error::Io`].
pub fn serve(file: &Path) -> Result<()> {
    let text = read_text(file).map_err(|source| Error::io("read", file, source))?;
    let emulation: Emulation = serde_json::from_str(&text).map_err(|error| {
        Error::Usage(format!(
            "{} describes no emulated device: {error}",
            file.display()
        ))
    })?;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let path = Path::new("/dev/fuse");
    let kernel = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| Error::Refused(format!(
            "the emulated device needs FUSE, which this kernel does not offer (/dev/fuse: {error})"
        )))?;
    let mut images = Vec::new();
    for image in &emulation.images {
        let data = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&image.data)
            .and_then(|data| data.set_len(image.bytes).map(|()| data))
            .map_err(|source| Error::io("create", &image.data, source))?;
        images.push((image.name.clone(), image.base, image.bytes, data));
    }
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
        kernel.as_raw_fd()
    );
    let options = CString::new(options).unwrap_or_default();
    mount(
        "waystation",
        &emulation.mount,
        "fuse",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )
    .map_err(|errno| Error::io("mount", &emulation.mount, errno.into()))?;
    let mut server = Server {
        kernel,
        images,
        device: Clocked::new(&emulation.model),
        started: now(),
        timed: false,
        next_ticket: 0,
        waiting: HashMap::new(),
    };
    // From here on this process ends when it is unmounted; the keeper need not wait for it any longer.
    let null = File::open("/dev/null")
        .map_err(|source| Error::io("open", Path::new("/dev/null"), source))?;
    rustix::stdio::dup2_stdin(&null)
        .map_err(|errno| Error::io("close", Path::new("standard input"), errno.into()))?;
    server.run()
}

impl Server {
    fn run(&mut self) -> Result<()> {
        let mut buffer = vec![0; TRANSFER_BYTES_MAX as usize + 4096 + HEAD_BYTES];
        let mut done = Vec::new();
        loop {
            let now_ns = self.now_ns();
            self.device.advance(now_ns, &mut done);
            for ticket in done.drain(..) {
                if let Some(waiting) = self.waiting.remove(&ticket) {
                    let answer = self.finish(waiting);
                    self.send(&answer)?;
                }
            }
            match self.kernel.read(&mut buffer) {
                Ok(bytes) => {
                    if let Some(message) = parse(&buffer[..bytes])
                        && let Some(answer) = self.take(message)
                    {
                        self.send(&answer.finish())?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                // The request was withdrawn before it was read.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::NotFound) => {}
                // ENODEV: it was unmounted.
                Err(error) if error.raw_os_error() == Some(19) => return Ok(()),
                Err(source) => return Err(Error::io("read", Path::new("/dev/fuse"), source)),
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sleeps until the kernel asks for something or the device has done something.
    fn wait(&self) {
        let rest = self.device.next_ns().map(|at| {
            let rest_ns = at.saturating_sub(self.now_ns());
            Timespec {
                tv_sec: (rest_ns / 1_000_000_000).cast_signed(),
                tv_nsec: (rest_ns % 1_000_000_000).cast_signed(),
            }
        });
        let mut files = [PollFd::from_borrowed_fd(self.kernel.as_fd(), PollFlags::IN)];
        // Woken for nothing, it looks again.
        let _ = poll(&mut files, rest.as_ref());
    }

    /// Answers at once, or hands the request to the device.
    fn take(&mut self, message: Message<'_>) -> Option<Answer> {
        let Message { unique, node, call } = message;
        let image = node.checked_sub(FIRST_IMAGE).map(|image| image as usize);
        let answer = match call {
            Call::Silent => return None,
            Call::Init { flags } => Answer::init(unique, flags),
            Call::Lookup { name } => match self.node_of(name) {
                Some(node) => Answer::entry(unique, node, self.bytes_of(node)),
                None => Answer::error(unique, ENOENT),
            },
            Call::Attributes => Answer::attributes_of(unique, node, self.bytes_of(node)),
            Call::Open => Answer::opened(unique, false),
            Call::OpenDirectory => Answer::opened(unique, true),
            Call::Statistics => Answer::statistics(unique),
            Call::Nothing => Answer::empty(unique),
            Call::Unknown => Answer::error(unique, ENOSYS),
            Call::Write { data, .. } if node == CONTROL_NODE => {
                self.timed = data.first() == Some(&b'1');
                Answer::written(unique, data.len() as u32)
            }
            Call::Read { offset, bytes } => {
                let Some(image) = image.filter(|image| *image < self.images.len()) else {
                    return Some(Answer::error(unique, EINVAL));
                };
                let waiting = Waiting::Read {
                    unique,
                    image,
                    offset,
                    bytes,
                };
                return self.hand_over(waiting, Op::Read, self.images[image].1 + offset, bytes);
            }
            Call::Write { offset, data } => {
                let Some((_, base, size, file)) = image.and_then(|image| self.images.get(image))
                else {
                    return Some(Answer::error(unique, EINVAL));
                };
                if offset + data.len() as u64 > *size {
                    return Some(Answer::error(unique, EINVAL));
                }
                if file.write_all_at(data, offset).is_err() {
                    return Some(Answer::error(unique, EIO));
                }
                let bytes = data.len() as u32;
                let answer = Answer::written(unique, bytes).finish();
                return self.hand_over(Waiting::Done { answer }, Op::Write, base + offset, bytes);
            }
            Call::Sync => {
                let answer = Answer::empty(unique).finish();
                return self.hand_over(Waiting::Done { answer }, Op::Flush, 0, 0);
            }
        };
        Some(answer)
    }

    /// Gives a request to the device; untimed, it is answered now.
    fn hand_over(&mut self, waiting: Waiting, op: Op, offset: u64, bytes: u32) -> Option<Answer> {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        self.waiting.insert(ticket, waiting);
        let now_ns = self.now_ns();
        if self.timed {
            self.device
                .arrive(now_ns, ticket, op, offset, u64::from(bytes));
        } else {
            // A discard costs nothing on any model.
            self.device
                .arrive(now_ns, ticket, Op::Discard, offset, u64::from(bytes));
        }
        None
    }

    fn finish(&self, waiting: Waiting) -> Vec<u8> {
        match waiting {
            Waiting::Done { answer } => answer,
            Waiting::Read {
                unique,
                image,
                offset,
                bytes,
            } => {
                let (_, _, size, file) = &self.images[image];
                let mut data = vec![0; size.saturating_sub(offset).min(u64::from(bytes)) as usize];
                match file.read_exact_at(&mut data, offset) {
                    Ok(()) => Answer::data(unique, &data),
                    Err(_) => Answer::error(unique, EIO),
                }
                .finish()
            }
        }
    }

    fn send(&mut self, answer: &[u8]) -> Result<()> {
        match self.kernel.write(answer) {
            Ok(_) => Ok(()),
            // Nobody waits for this answer any longer, or (ENODEV) it was unmounted, which the next read will say.
            Err(error)
                if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(19) =>
            {
                Ok(())
            }
            Err(source) => Err(Error::io("write", Path::new("/dev/fuse"), source)),
        }
    }

    fn node_of(&self, name: &[u8]) -> Option<u64> {
        if name == CONTROL_FILE.as_bytes() {
            return Some(CONTROL_NODE);
        }
        let at = self
            .images
            .iter()
            .position(|image| image.0.as_bytes() == name)?;
        Some(FIRST_IMAGE + at as u64)
    }

    fn bytes_of(&self, node: u64) -> u64 {
        node.checked_sub(FIRST_IMAGE)
            .and_then(|image| self.images.get(image as usize))
            .map_or(0, |image| image.2)
    }
}
