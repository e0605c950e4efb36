//! Servers, proxies and load generators of other makers that experiments start: each is found, configured in a folder of its
//! own, and turned into a shell command. Nothing of the machine's own configuration is read or changed.

pub mod apache;
pub mod curl;
pub mod httperf;
pub mod nginx;
pub mod proxies;

use std::path::Path;

/// A path as a word of a shell command.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}
