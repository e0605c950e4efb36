//! The token: `NAME.SECRET`, in a file that only its owner may read. It is never printed, logged or stored elsewhere.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::HeaderValue;

use crate::AgentError;
use tap_protocol::is_name;

/// An agent's token.
pub(crate) struct Token {
    /// The agent's name.
    pub name: String,
    /// `Bearer ..`, marked as sensitive.
    pub header: HeaderValue,
}

/// Reads a token.
///
/// # Errors
/// The file cannot be read; other users may read it; it contains no token.
pub(crate) fn read(path: &Path) -> Result<Token, AgentError> {
    let bytes = secret(path)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    let wrong = || {
        AgentError::Plan(format!(
            "{} contains no token: expected one line, NAME.SECRET, as `yamabiko tap manager token add NAME --output \
             FILE` writes it",
            path.display()
        ))
    };
    let (name, _) =
        text.rsplit_once('.').filter(|(name, secret)| is_name(name) && secret.len() >= 32).ok_or_else(wrong)?;
    let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| wrong())?;
    header.set_sensitive(true);
    Ok(Token { name: name.to_owned(), header })
}

/// Reads a file that only this user may read, as ssh does with its keys.
///
/// # Errors
/// The file cannot be read, or other users may read it.
pub(crate) fn secret(path: &Path) -> Result<Vec<u8>, AgentError> {
    let failed = |source| AgentError::Io { what: format!("reading {}", path.display()), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe has no useful permission bits.
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(AgentError::Plan(format!(
            "other users may read {0} (its mode is {mode:03o}): run chmod 600 {0}",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.take(SECRET_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Maximum bytes read of a secret's file.
const SECRET_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn a_token_is_read_only_from_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        let secret = "s".repeat(43);
        let token = write(&format!("shop.web-1.{secret}\n"), 0o600).ok().unwrap();
        assert_eq!(token.name, "shop.web-1");
        assert!(!format!("{:?}", token.header).contains(&secret));
        for (text, mode) in [
            (format!("a.{secret}"), 0o644),
            (format!("a.{secret}"), 0o640),
            ("a.short".into(), 0o600),
            (String::new(), 0o600),
            (format!("A b.{secret}"), 0o600),
        ] {
            let error = write(&text, mode).err().unwrap().to_string();
            assert!(!error.contains(&secret) && error.contains("token"), "{error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
