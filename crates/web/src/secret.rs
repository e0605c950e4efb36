//! Secrets that requests must present.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::{ConstantTimeEq, ConstantTimeLess};

use crate::WebServerError;

/// Where a request presents the secret.
#[derive(Clone, Debug, Default)]
pub enum Key {
    /// No secret is needed.
    #[default]
    None,
    /// The secret is the first segment of the URL's path, so that a browser can open a link. The router sees the path
    /// without it. Pages send no `Referer`, so the secret does not leak.
    InUrl(Secret),
    /// The secret is in the field `Authorization: Bearer`, for programs.
    Bearer(Secret),
}

/// 16 to 256 characters that need no escaping in a URL's path. [`Debug`](fmt::Debug) does not show them.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// 128 random bits.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn random() -> Result<Secret, WebServerError> {
        let mut bytes = [0; 16];
        let provider = rustls::crypto::ring::default_provider();
        provider.secure_random.fill(&mut bytes).map_err(|_| WebServerError::Secret("no random bytes available"))?;
        Ok(Secret(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Parses a secret that the user provides.
    ///
    /// # Errors
    /// It is too short, too long, or contains characters that a URL's path would need escaped.
    pub fn parse(text: &str) -> Result<Secret, WebServerError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if !(SECRET_MIN..=SECRET_MAX).contains(&text.len()) || !text.bytes().all(plain) {
            return Err(WebServerError::Secret(
                "not a valid secret; expected 16 to 256 letters, digits, `-`, `.`, `_` or `~`, for example from `openssl rand -hex 16`",
            ));
        }
        Ok(Secret(text.to_owned()))
    }

    /// The characters, for the URL that is printed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is the secret. Compares in constant time, so that the secret cannot be guessed character by
    /// character.
    pub fn is(&self, presented: &[u8]) -> bool {
        let bounded = presented.get(..SECRET_MAX).unwrap_or(presented);
        let (mut left, mut right) = ([0u8; SECRET_MAX], [0u8; SECRET_MAX]);
        left[..self.0.len()].copy_from_slice(self.0.as_bytes());
        right[..bounded.len()].copy_from_slice(bounded);
        let fits = (presented.len() as u64).ct_lt(&(SECRET_MAX as u64 + 1));
        let same_length = (self.0.len() as u64).ct_eq(&(presented.len() as u64));
        (left.ct_eq(&right) & same_length & fits).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

const SECRET_MIN: usize = 16;
const SECRET_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_matches() {
        let secret = Secret::parse("correct-horse-battery").unwrap();
        assert!(secret.is(b"correct-horse-battery"));
        for wrong in [&b""[..], b"correct-horse-batterz", b"correct-horse-battery\0", b"correct-horse-batter"] {
            assert!(!secret.is(wrong));
        }
        assert!(!secret.is(&[b'x'; 10_000]));
        let long = Secret::parse(&"x".repeat(SECRET_MAX)).unwrap();
        assert!(long.is(&[b'x'; SECRET_MAX]) && !long.is(&[b'x'; SECRET_MAX + 1]));
    }

    #[test]
    fn random_secrets_differ_and_are_valid_in_urls() {
        let (one, other) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert!(!one.is(other.text().as_bytes()));
        assert!(Secret::parse(one.text()).is_ok() && one.text().len() == 22);
        assert!(!format!("{one:?}").contains(one.text()), "debug output does not contain the secret");
    }

    #[test]
    fn invalid_secrets_are_refused() {
        for wrong in ["", "fifteen-letters", "sixteen/letters.", "sixteen letters.", "é234567890123456"] {
            assert!(Secret::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Secret::parse("sixteen-letters.").is_ok());
        assert!(Secret::parse(&"x".repeat(SECRET_MAX + 1)).is_err());
    }
}
