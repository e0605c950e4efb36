//! The input of one connection: the number of requests.

use super::{ResponseRef, Responses};
use crate::request::{Body, FIELDS_MAX, Method, Parsed, parse_within};

/// Parser state of a connection.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a head.
    partial: Vec<u8>,
    /// Remaining bytes of a request body to skip.
    skip: u64,
    /// The response that follows the body.
    after_body: Option<ResponseRef>,
    /// The last request was read: further input is ignored.
    ended: bool,
}

impl Reader {
    /// Processes received bytes; returns the responses to their requests, in order.
    pub fn take(&mut self, bytes: &[u8], answers: &Responses, mut ask: impl FnMut(ResponseRef)) {
        if self.partial.is_empty() {
            let rest = self.read(bytes, answers, &mut ask);
            self.partial.extend_from_slice(rest);
        } else {
            let mut joined = std::mem::take(&mut self.partial);
            joined.extend_from_slice(bytes);
            let rest = self.read(&joined, answers, &mut ask).len();
            joined.drain(..joined.len() - rest);
            self.partial = joined;
        }
    }

    /// Whether the connection is between requests.
    pub fn is_idle(&self) -> bool {
        self.partial.is_empty() && self.skip == 0
    }

    /// Processes all complete requests; the rest is the beginning of a head.
    fn read<'a>(&mut self, mut bytes: &'a [u8], answers: &Responses, ask: &mut impl FnMut(ResponseRef)) -> &'a [u8] {
        loop {
            if self.ended {
                return &[];
            }
            let passed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            self.skip -= passed as u64;
            bytes = &bytes[passed..];
            if self.skip == 0
                && let Some(answer) = self.after_body.take()
            {
                self.ended = answer.last;
                ask(answer);
                continue;
            }
            if bytes.is_empty() {
                return bytes;
            }
            if let Some(blind) = answers.blind {
                let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return bytes };
                bytes = &bytes[end + 4..];
                self.ended = blind.close;
                ask(answers.to(!blind.close, false, false));
                continue;
            }
            match parse_within(bytes, HEAD_BYTES, FIELDS_MAX) {
                Parsed::Incomplete => return bytes,
                Parsed::Complete(request) => {
                    // A chunked body, or one that waits for 100 (Continue), is not worth following.
                    let followed = request.body != Body::Chunked && !request.expects_continue;
                    let answer =
                        answers.to(request.keep_alive && followed, request.old, request.method == Method::Head);
                    bytes = &bytes[request.length..];
                    // A response before the end of the request would make an upload appear short, and some clients
                    // would end the connection.
                    self.skip = if let (Body::Bytes(length), true) = (request.body, followed) { length } else { 0 };
                    self.after_body = Some(answer);
                }
                Parsed::Refused(_) => {
                    self.ended = true;
                    ask(answers.refusal());
                }
            }
        }
    }
}

/// Maximum length of a head.
const HEAD_BYTES: usize = 32 << 10;
