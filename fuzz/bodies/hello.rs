//! The start of a TLS connection: any bytes as a ClientHello.

use wire::tls::{ServerName, is_handshake, server_name};

/// A longer prefix never takes back what a shorter one has said.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(2048)];
    let mut said = None;
    for length in 0..=bytes.len() {
        let now = server_name(&bytes[..length]);
        match (&said, &now) {
            (None, ServerName::Incomplete) => {}
            (None, _) => said = Some(now.clone()),
            (Some(before), now) => assert_eq!(before, now, "{length} bytes"),
        }
        if let ServerName::Name(name) = &now {
            assert!((1..=255).contains(&name.len()));
        }
        if is_handshake(&bytes[..length]) == Some(false) {
            assert!(matches!(now, ServerName::NotHello), "{now:?}");
        }
    }
}
