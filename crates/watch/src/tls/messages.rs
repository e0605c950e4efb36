//! Handshake messages of one direction, put together from records.

use wire::tls::handshake::kind;

use crate::out::Out;

/// The messages of one direction. Bodies are stored only of the hellos; others are skipped by length.
#[derive(Debug, Default)]
pub(super) struct Messages {
    header: [u8; 4],
    header_length: usize,
    left: usize,
    body: Vec<u8>,
}

/// A message that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    /// Empty unless it is a hello.
    pub(super) body: Vec<u8>,
}

impl Messages {
    /// Reads from `bytes`, and shortens them by what was used, up to the next complete message. `None` if more bytes are
    /// needed, or there is no memory for a hello.
    pub(super) fn next(&mut self, bytes: &mut &[u8], out: &mut Out<'_>) -> Option<Message> {
        while !bytes.is_empty() || (self.header_length == 4 && self.left == 0) {
            crate::work::spend(1);
            if self.header_length < 4 {
                let used = bytes.len().min(4 - self.header_length);
                self.header[self.header_length..][..used].copy_from_slice(&bytes[..used]);
                self.header_length += used;
                *bytes = &bytes[used..];
                let [_, a, b, c] = self.header;
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                continue;
            }
            let used = bytes.len().min(self.left);
            let is_hello = matches!(self.header[0], kind::CLIENT_HELLO | kind::SERVER_HELLO);
            if is_hello && self.body.len() + used <= HELLO_MAX && out.hold(used) {
                crate::work::spend(used);
                self.body.extend_from_slice(&bytes[..used]);
            }
            self.left -= used;
            *bytes = &bytes[used..];
            if self.left == 0 {
                self.header_length = 0;
                out.release(self.body.len());
                return Some(Message { kind: self.header[0], body: std::mem::take(&mut self.body) });
            }
        }
        None
    }

    /// Releases all memory.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        out.release(self.body.len());
        self.body = Vec::new();
    }
}

/// A ClientHello has a few kilobytes, even with post-quantum keys.
const HELLO_MAX: usize = 16 * 1024;
