//! Prevents CPU sleep states during a measurement.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use nix::errno::Errno;

use crate::error::{Error, Result};

/// The kernel's interface for the maximum wake-up latency (Documentation/power/pm_qos_interface.rst).
const DEVICE: &str = "/dev/cpu_dma_latency";

/// Prevents sleep states of all CPUs of this machine during its lifetime: an idle CPU polls instead. The kernel removes
/// the request when the process ends, for any reason.
#[derive(Debug)]
pub struct Awake {
    _held: File,
}

impl Awake {
    /// Prevents sleep states from now on.
    ///
    /// # Errors
    /// Only root may write the device by default; or the kernel, or the container, does not have it.
    pub fn prevent_sleep() -> Result<Self> {
        Self::at(Path::new(DEVICE))
    }

    fn at(device: &Path) -> Result<Self> {
        let refused = |error: std::io::Error| {
            let remedy = format!("run as root, or let this user write {}", device.display());
            Error::of(format!("open {}", device.display()))(error).remedy(&[Errno::EACCES, Errno::EPERM], remedy)
        };
        let mut device_file = OpenOptions::new().write(true).open(device).map_err(refused)?;
        // In microseconds.
        device_file.write_all(&0_i32.to_ne_bytes()).map_err(refused)?;
        Ok(Awake { _held: device_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_latency_is_requested_and_a_missing_device_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let awake = Awake::at(file.path()).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), [0; 4]);
        drop(awake);
        let missing = Awake::at(&file.path().with_extension("none")).unwrap_err().to_string();
        assert!(missing.contains(".none") && !missing.contains("run as root"), "{missing}");
    }
}
