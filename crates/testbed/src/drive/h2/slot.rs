//! A stream in flight: its request, and the response as h2 returns it.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use load::StreamKey;

use super::{H2Event, Why};

/// Largest accepted head of a response, as with HTTP/1.
pub(super) const HEAD_MAX: u32 = 64 << 10;

pub(super) struct Slot {
    pub stream: StreamKey,
    pub number: u32,
    pub response: Option<ResponseFuture>,
    pub body: Option<RecvStream>,
    pub request: SendStream<Bytes>,
    pub head_bytes: u32,
    pub changed: bool,
}

impl Slot {
    /// Reports the events of a stream; true if it has ended.
    pub(super) fn poll(&mut self, events: &mut Vec<H2Event>) -> bool {
        // No waker is needed: see the module's documentation.
        let mut context = Context::from_waker(Waker::noop());
        let stream = self.stream;
        if let Some(response) = &mut self.response {
            match Pin::new(response).poll(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(Err(error)) => return self.fail(&error, events),
                Poll::Ready(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    events.push(H2Event::Head { stream, status: head.status.as_u16(), fields: head.headers });
                    self.response = None;
                    self.body = Some(body);
                }
            }
        }
        let Some(body) = &mut self.body else { return true };
        loop {
            if body.is_end_stream() {
                events.push(H2Event::End { stream });
                return true;
            }
            match body.poll_data(&mut context) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(bytes))) => {
                    // The window is far larger than the data in flight: a failure is the connection's, and reported
                    // there.
                    let _ = body.flow_control().release_capacity(bytes.len());
                    events.push(H2Event::Body { stream, bytes });
                }
                Poll::Ready(Some(Err(error))) => return self.fail(&error, events),
                Poll::Ready(None) => match body.poll_trailers(&mut context) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(_)) => {
                        events.push(H2Event::End { stream });
                        return true;
                    }
                    Poll::Ready(Err(error)) => return self.fail(&error, events),
                },
            }
        }
    }

    fn fail(&self, error: &h2::Error, events: &mut Vec<H2Event>) -> bool {
        let why = match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => Why::Refused,
            Some(_) if error.is_reset() && error.is_remote() => Why::Reset,
            Some(_) if error.is_go_away() && error.is_remote() => Why::GoAway,
            _ if self.head_bytes > HEAD_MAX => Why::HeadTooLarge,
            _ => Why::Malformed,
        };
        events.push(H2Event::Failed { stream: self.stream, why });
        true
    }
}
