//! The shared secret of two ends: `watch --to` and `watch --from`, `gateway client` and `gateway server`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use subtle::{ConstantTimeEq, ConstantTimeLess};

use crate::terminal::print_message;

/// A token of 16 to 256 visible ASCII characters. It is never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Reads the token from the file, otherwise from `YAMABIKO_TOKEN`. `None` if neither is given.
    ///
    /// # Errors
    /// The file cannot be read, or its text is not a valid token.
    pub fn find(file: Option<&Path>) -> Result<Option<Token>> {
        if let Some(path) = file {
            return read(path).map(Some);
        }
        match std::env::var_os(VARIABLE) {
            None => Ok(None),
            Some(value) => {
                let value = value.into_string().unwrap_or_default();
                Token::new(&value).map(Some).map_err(|error| anyhow!("${VARIABLE}: {error}"))
            }
        }
    }

    /// The token's characters, from which keys are derived.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether a header's value is that of this token. The comparison takes the same time for any value, so that a
    /// client cannot find the token character by character.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let (own, given) = (self.header(), header.get(..HEADER_MAX).unwrap_or(header));
        let (mut left, mut right) = ([0u8; HEADER_MAX], [0u8; HEADER_MAX]);
        left[..own.len()].copy_from_slice(own.as_bytes());
        right[..given.len()].copy_from_slice(given);
        let fits = (header.len() as u64).ct_lt(&(HEADER_MAX as u64 + 1));
        let same_length = (own.len() as u64).ct_eq(&(header.len() as u64));
        (left.ct_eq(&right) & same_length & fits).into()
    }

    fn new(text: &str) -> Result<Token> {
        let text = text.trim();
        if !(16..=TOKEN_MAX).contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "expected a token of 16 to {TOKEN_MAX} visible ASCII characters; `head -c 24 /dev/urandom | base64` makes one"
            );
        }
        Ok(Token(text.to_owned()))
    }
}

fn read(path: &Path) -> Result<Token> {
    let of_path = |error: std::io::Error| anyhow!("reading the token in {}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(of_path)?;
    if file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o077 != 0) {
        print_message(format_args!("note: other users may read the token in {0}: chmod 600 {0}", path.display()));
    }
    file.take(4096).read_to_string(&mut text).map_err(of_path)?;
    Token::new(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Name of the environment variable with the token.
const VARIABLE: &str = "YAMABIKO_TOKEN";
const TOKEN_MAX: usize = 256;
const HEADER_MAX: usize = TOKEN_MAX + "Bearer ".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_itself() {
        let token = Token::new("correct-horse-battery\n").unwrap();
        assert!(token.is_in(b"Bearer correct-horse-battery"));
        for wrong in [&b""[..], b"Bearer ", b"correct-horse-battery", b"Bearer correct-horse-batterz", b"bearer x"] {
            assert!(!token.is_in(wrong));
        }
        assert!(!token.is_in(b"Bearer correct-horse-battery\0"), "padding is not the token");
        assert!(!token.is_in(&[b'x'; 10_000]));
        let long = Token::new(&"x".repeat(TOKEN_MAX)).unwrap();
        assert!(long.is_in(long.header().as_bytes()));
        assert!(!long.is_in(format!("{}y", long.header()).as_bytes()));
    }

    #[test]
    fn malformed_token_is_refused() {
        for wrong in
            ["", "short", "with a space in the middle", "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}"]
        {
            assert!(Token::new(wrong).is_err(), "{wrong}");
        }
        assert!(Token::new(&"x".repeat(TOKEN_MAX + 1)).is_err());
    }
}
