//! Processors that do not go to sleep while something is timed.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use nix::errno::Errno;

use crate::error::{Error, Result};

/// Where the kernel takes how long waking a processor may last (Documentation/power/pm_qos_interface.rst).
const DEVICE: &str = "/dev/cpu_dma_latency";

/// As long as it lives, no processor of this machine sleeps: one that has nothing to do looks for work instead. The kernel
/// takes the wish back when the process ends, however that happens.
#[derive(Debug)]
pub struct Awake {
    _held: File,
}

impl Awake {
    /// Keeps them awake from now on.
    ///
    /// # Errors
    /// The device is root's, unless the system says otherwise; or the kernel, or the container, has none.
    pub fn hold() -> Result<Self> {
        Self::at(Path::new(DEVICE))
    }

    fn at(device: &Path) -> Result<Self> {
        let refused = |error: std::io::Error| {
            let mend = format!("run as root, or let this user write {}", device.display());
            Error::of(format!("open {}", device.display()))(error).mend(&[Errno::EACCES, Errno::EPERM], mend)
        };
        let mut held = OpenOptions::new().write(true).open(device).map_err(refused)?;
        // In microseconds.
        held.write_all(&0_i32.to_ne_bytes()).map_err(refused)?;
        Ok(Awake { _held: held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_of_nothing_is_asked_for_and_what_is_not_there_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let awake = Awake::at(file.path()).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), [0; 4]);
        drop(awake);
        let missing = Awake::at(&file.path().with_extension("none")).unwrap_err().to_string();
        assert!(missing.contains(".none") && !missing.contains("run as root"), "{missing}");
    }
}
