//! Foreign servers, proxies and load generators that experiments start: each is found, configured in its own directory,
//! and started by a shell command. The machine's own configuration is neither read nor changed.

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
