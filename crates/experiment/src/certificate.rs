//! A certificate for servers that an experiment starts.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::ExperimentError;

/// A certificate and its key in `folder`, created if they do not exist: P-256, self-signed, valid for two days.
///
/// # Errors
/// openssl is missing or fails.
pub fn self_signed(folder: &Path) -> Result<(PathBuf, PathBuf), ExperimentError> {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    if !certificate.exists() {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output();
        match made {
            Ok(output) if output.status.success() => {}
            _ => return Err(ExperimentError::Missing { program: "openssl", fix: "apt-get install openssl" }),
        }
    }
    Ok((certificate, key))
}
