//! Processors that do not go to sleep while something is timed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

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
    /// PermissionDenied: the device is root's, unless the system says otherwise. NotFound: the kernel, or the container, has
    /// none.
    pub fn hold() -> io::Result<Self> {
        Self::at(Path::new(DEVICE))
    }

    fn at(device: &Path) -> io::Result<Self> {
        let mut held = OpenOptions::new().write(true).open(device)?;
        // In microseconds.
        held.write_all(&0_i32.to_ne_bytes())?;
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
        let missing = Awake::at(&file.path().with_extension("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
