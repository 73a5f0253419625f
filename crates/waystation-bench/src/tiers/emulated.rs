//! A slow device that the machine does not have: a file that answers as a model of the placement tool would.
//!
//! A process of its own mounts a file system with one file, whose data is in memory, and lets each request take the time
//! of the model. It ends when the file system is unmounted.

use super::rig::{Undo, UndoSteps, run};
use crate::error::{Error, Result};
use crate::place::Place;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use waystation_advisor::record::{CONTROL_FILE, Emulation, Image, serve_emulated};
use waystation_advisor::simulate::DeviceModel;

/// The file on the device.
const IMAGE: &str = "slow.img";
/// How often the device is looked for before it counts as failed,
const LOOKS: u32 = 100;
/// and the time between.
const LOOK: Duration = Duration::from_millis(50);

/// Starts a device of `bytes`. Returns its file, and the one that makes it take its time.
pub(super) fn start(
    place: &Place,
    undo: &UndoSteps,
    model: &DeviceModel,
    bytes: u64,
) -> Result<(PathBuf, PathBuf)> {
    let mount = place.path("emulated");
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| Error::io(operation, path, source)
    };
    fs::create_dir_all(&mount).map_err(failed("create", &mount))?;
    let data = undo.file_in_memory();
    let emulation = Emulation {
        mount: mount.clone(),
        model: model.clone(),
        images: vec![Image {
            name: IMAGE.to_owned(),
            base: 0,
            bytes,
            data,
        }],
    };
    let description = place.path("emulated.json");
    let json = serde_json::to_string(&emulation).map_err(|error| {
        Error::Refused(format!(
            "placement: the device cannot be described: {error}"
        ))
    })?;
    fs::write(&description, json).map_err(failed("write", &description))?;
    let program =
        std::env::current_exe().map_err(failed("find", Path::new("the program itself")))?;
    let mut server = Command::new(&program)
        .arg("emulate")
        .arg(&description)
        .spawn()
        .map_err(failed("run", &program))?;
    let image = mount.join(IMAGE);
    for _ in 0..LOOKS {
        if image.exists() {
            let directory = mount.display().to_string();
            undo.add(Undo::Run("umount", vec![directory]));
            // It answers the kernel, and nothing may keep it waiting.
            let process = server.id().to_string();
            run("chrt", &["--rr", "-p", "1", &process])?;
            return Ok((image, mount.join(CONTROL_FILE)));
        }
        let ended = server.try_wait().map_err(failed("wait for", &program))?;
        if let Some(status) = ended {
            return Err(Error::Refused(format!(
                "placement: the emulated device ended with {status}; it needs root and FUSE"
            )));
        }
        std::thread::sleep(LOOK);
    }
    server.kill().map_err(failed("end", &program))?;
    Err(Error::Refused(
        "placement: the emulated device was not mounted in time".to_owned(),
    ))
}

/// The process behind the device.
pub(crate) fn serve(description: &Path) -> Result<()> {
    serve_emulated(description).map_err(|error| Error::Refused(error.to_string()))
}
