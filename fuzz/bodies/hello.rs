//! Any bytes as the ClientHello at the start of a TLS connection.

use wire::tls::{ServerName, is_handshake, server_name};

/// A result from a prefix does not change with more bytes.
pub fn run(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(2048)];
    let mut first = None;
    for length in 0..=bytes.len() {
        let now = server_name(&bytes[..length]);
        match (&first, &now) {
            (None, ServerName::Incomplete) => {}
            (None, _) => first = Some(now.clone()),
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
