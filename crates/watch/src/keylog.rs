//! Key logs: the secrets of TLS connections, as browsers, curl and others write them for `SSLKEYLOGFILE`
//! (draft-ietf-tls-keylogfile).
//!
//! ```text
//!   CLIENT_TRAFFIC_SECRET_0 <random of the ClientHello, 64 digits> <secret, 64 or 96 digits>
//! ```

use std::collections::BTreeMap;

/// Secrets by the random of the ClientHello.
#[derive(Clone, Debug, Default)]
pub struct KeyLog {
    connections: BTreeMap<[u8; 32], Secrets>,
}

/// The secrets of one connection; empty where the log has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// TLS 1.2: the master secret.
    pub(crate) master: Vec<u8>,
    pub(crate) early: Vec<u8>,
    /// Of client and server.
    pub(crate) handshake: [Vec<u8>; 2],
    pub(crate) traffic: [Vec<u8>; 2],
}

/// A line of a key log that is not in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct KeyLogError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub reason: &'static str,
}

impl KeyLog {
    /// Parses a key log. Empty lines, comments (`#`) and unknown labels are ignored. Later lines replace earlier ones of
    /// the same label and random.
    ///
    /// # Errors
    /// A line that is not a label, a random of 64 hexadecimal digits and a secret of 64 or 96, each separated by one
    /// space.
    pub fn parse(text: &[u8]) -> Result<KeyLog, KeyLogError> {
        let mut log = KeyLog::default();
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            log.add(line).map_err(|reason| KeyLogError { line: index + 1, reason })?;
        }
        Ok(log)
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether it has no secrets.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The secrets of the connection whose ClientHello has this random.
    pub(crate) fn secrets(&self, random: &[u8; 32]) -> Option<&Secrets> {
        self.connections.get(random)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(label), Some(random), Some(secret), None) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("a label, a random and a secret are expected, each separated by one space");
        };
        let is_label = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        if label.is_empty() || !label.iter().all(is_label) {
            return Err("a label has capital letters, digits and underscores");
        }
        let is_known = LABELS.contains(&label);
        if !is_known {
            return Ok(());
        }
        let random = digits(random).and_then(|random| <[u8; 32]>::try_from(random).ok());
        let random = random.ok_or("the random has 64 hexadecimal digits")?;
        let secret = digits(secret).filter(|secret| matches!(secret.len(), 32 | 48));
        let secret = secret.ok_or("the secret has 64 or 96 hexadecimal digits")?;
        if let Some(place) = self.connections.entry(random).or_default().place(label) {
            *place = secret;
        }
        Ok(())
    }
}

impl Secrets {
    /// Where the secret with this label belongs; `None` for one that is not used.
    pub(crate) fn place(&mut self, label: &[u8]) -> Option<&mut Vec<u8>> {
        Some(match label {
            b"CLIENT_RANDOM" => &mut self.master,
            b"CLIENT_EARLY_TRAFFIC_SECRET" => &mut self.early,
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => &mut self.handshake[0],
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => &mut self.handshake[1],
            b"CLIENT_TRAFFIC_SECRET_0" => &mut self.traffic[0],
            b"SERVER_TRAFFIC_SECRET_0" => &mut self.traffic[1],
            _ => return None,
        })
    }

    /// Whether everything after the handshake can be decrypted.
    pub(crate) fn are_complete(&self) -> bool {
        !self.master.is_empty() || self.handshake.iter().chain(&self.traffic).all(|secret| !secret.is_empty())
    }
}

/// The bytes of hexadecimal digits.
fn digits(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect::<Option<Vec<u8>>>()?;
    rest.is_empty().then_some(bytes)
}

const LABELS: [&[u8]; 6] = [
    b"CLIENT_RANDOM",
    b"CLIENT_EARLY_TRAFFIC_SECRET",
    b"CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    b"SERVER_HANDSHAKE_TRAFFIC_SECRET",
    b"CLIENT_TRAFFIC_SECRET_0",
    b"SERVER_TRAFFIC_SECRET_0",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(label: &str, random: &str, secret: &str) -> String {
        format!("{label} {} {}\n", random.repeat(32), secret)
    }

    #[test]
    fn secrets_are_found_by_the_random() {
        let text = [
            "# a comment\n\n".to_owned(),
            line("CLIENT_TRAFFIC_SECRET_0", "ab", &"0f".repeat(32)),
            line("SERVER_TRAFFIC_SECRET_0", "AB", &"1e".repeat(48)),
            line("EXPORTER_SECRET", "ab", "any"),
            line("CLIENT_RANDOM", "cd", &"2d".repeat(48)).replace('\n', "\r\n"),
        ]
        .concat();
        let log = KeyLog::parse(text.as_bytes()).unwrap();
        let secrets = log.secrets(&[0xAB; 32]).unwrap();
        assert_eq!((&secrets.traffic[0], &secrets.traffic[1]), (&vec![0x0F; 32], &vec![0x1E; 48]));
        assert_eq!(log.secrets(&[0xCD; 32]).unwrap().master, vec![0x2D; 48]);
        assert_eq!((log.len(), log.secrets(&[0; 32])), (2, None));
        assert!(KeyLog::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn lines_in_another_format_are_refused_with_their_number() {
        let good = line("CLIENT_RANDOM", "cd", &"2d".repeat(48));
        for wrong in [
            "CLIENT_RANDOM ab".to_owned(),
            line("CLIENT_RANDOM", "a", &"2d".repeat(48)),
            line("CLIENT_RANDOM", "cd", &"2d".repeat(47)),
            line("CLIENT_RANDOM", "cd", &"2x".repeat(48)),
            line("client_random", "cd", &"2d".repeat(48)),
            format!("CLIENT_RANDOM  {}", &good[14..]),
            format!("{} x", good.trim()),
        ] {
            let error = KeyLog::parse(format!("{good}{wrong}").as_bytes()).unwrap_err();
            assert_eq!(error.line, 2, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = KeyLog::parse(&bytes);
        }
    }
}
