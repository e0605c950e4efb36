//! One connection's input: how many answers it asks for.

use super::{ResponseRef, Responses};
use crate::request::{Body, FIELDS_MAX, Method, Parsed, parse_within};

/// What is known of a connection's input so far.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The beginning of a head.
    partial: Vec<u8>,
    /// Bytes of a request's body still to be passed over.
    skip: u64,
    /// What is asked for once they have been.
    after_body: Option<ResponseRef>,
    /// The last answer has been asked for: what still comes means nothing.
    ended: bool,
}

impl Reader {
    /// Takes in bytes as they came; the answers they ask for, in order.
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

    /// Reads all that is whole; what is left is the beginning of a head.
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
                    // A body that is chunked, or held back until 100 is said, is not worth following.
                    let followed = request.body != Body::Chunked && !request.expects_continue;
                    let answer =
                        answers.to(request.keep_alive && followed, request.old, request.method == Method::Head);
                    bytes = &bytes[request.length..];
                    // An answer before the request is whole would make an upload look short, and ends the connection
                    // at clients that have not sent it all.
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

/// A head may be this long.
const HEAD_BYTES: usize = 32 << 10;
