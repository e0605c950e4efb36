//! Event streams (server-sent events): one state, and the same bytes for all who look on.
//!
//! ```text
//!   publish(step, whole) ──frame──▶ queue of viewer 1 ──▶ response body
//!                          └──────▶ queue of viewer 2 ──▶ ..           a queue that is full: cut off
//!   join(after) ── frames since `after`, if they are still here; else the whole state
//! ```
//!
//! A frame is serialised once, however many look on, and so is the whole state, when somebody needs it. Every frame has an id;
//! a browser that lost its connection names the last one it had, and is sent what it missed. Ids begin with a name of this
//! hub's own, so that after a restart of the process nothing is mistaken for what it is not: the viewer gets the whole.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use hyper::body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{DoorError, Secret};

/// Makes the whole state into text without line breaks.
pub type Whole = Box<dyn Fn() -> String + Send>;

/// How many may look on at once, over all hubs of a door.
#[derive(Clone, Debug)]
pub struct Viewers(Arc<Semaphore>);

impl Viewers {
    /// At most `most`.
    pub fn new(most: usize) -> Viewers {
        Viewers(Arc::new(Semaphore::new(most)))
    }
}

/// One state that others look on. Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    name: Arc<str>,
    viewers: Viewers,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    /// Number of the newest frame; 0: there is none yet.
    newest: u64,
    whole: Option<Whole>,
    /// The whole state as a frame, if somebody needed it since the newest frame.
    whole_frame: Option<Bytes>,
    /// The newest steps, by number, without gaps.
    recent: VecDeque<(u64, Bytes)>,
    recent_bytes: usize,
    queues: Vec<mpsc::Sender<Bytes>>,
    serialised: u64,
    is_closed: bool,
}

impl Hub {
    /// A hub without a state.
    ///
    /// # Errors
    /// No random bytes can be had for its name.
    pub fn new(viewers: &Viewers) -> Result<Hub, DoorError> {
        let name = Secret::random()?.text()[..8].into();
        Ok(Hub { name, viewers: viewers.clone(), held: Arc::default() })
    }

    /// The state is now `whole`, and `step` leads to it from the one before; without a step it begins anew. `step` is text
    /// without line breaks.
    pub fn publish(&self, step: Option<&str>, whole: Whole) {
        let mut held = self.lock();
        held.newest += 1;
        held.whole = Some(whole);
        held.whole_frame = None;
        let number = held.newest;
        match step.filter(|_| number > 1) {
            Some(step) => {
                let frame = frame(STEP, &self.name, number, step);
                held.serialised += 1;
                held.keep(number, frame.clone());
                held.send(&frame);
            }
            None => {
                held.recent.clear();
                held.recent_bytes = 0;
                if !held.queues.is_empty()
                    && let Some(frame) = held.whole_frame(&self.name)
                {
                    held.send(&frame);
                }
            }
        }
    }

    /// Sends every viewer a sign of life, which no script sees. It finds out those who are gone.
    pub fn beat(&self) {
        self.lock().send(&Bytes::from_static(b":\n\n"));
    }

    /// Somebody looks on. `after` is the id of the last frame that they had, if any. Refused with 503 where too many look on
    /// already.
    pub fn join(&self, after: Option<&str>) -> Response {
        let Ok(place) = Arc::clone(&self.viewers.0).try_acquire_owned() else {
            let mut refusal =
                (StatusCode::SERVICE_UNAVAILABLE, "Too many look on already. Close another page of this.\n")
                    .into_response();
            refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
            return refusal;
        };
        let (sends, queue) = mpsc::channel(LAG_MAX);
        let mut held = self.lock();
        // The queue has room for all of these: `recent` is shorter than it.
        let _ = sends.try_send(Bytes::from(format!("retry: {RETRY_MS}\n\n")));
        match after.and_then(|after| self.number_of(after)).and_then(|after| held.missed(after)) {
            Some(missed) => missed.into_iter().for_each(|frame| drop(sends.try_send(frame))),
            None => {
                if let Some(frame) = held.whole_frame(&self.name) {
                    let _ = sends.try_send(frame);
                }
            }
        }
        if held.is_closed {
            let _ = sends.try_send(Bytes::from_static(END));
        } else {
            held.queues.push(sends);
        }
        drop(held);
        let mut response = Response::new(axum::body::Body::new(Events { queue, _place: place }));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    /// How many look on, as far as is known.
    pub fn viewers(&self) -> usize {
        let mut held = self.lock();
        held.queues.retain(|queue| !queue.is_closed());
        held.queues.len()
    }

    /// How many frames were made so far, whole states included.
    pub fn serialised(&self) -> u64 {
        self.lock().serialised
    }

    /// Ends every stream once it has got what was sent, with an event `end`; who joins afterwards gets the last state and then
    /// that.
    pub fn close(&self) {
        let mut held = self.lock();
        held.is_closed = true;
        held.send(&Bytes::from_static(END));
        held.queues.clear();
    }

    /// The number in an id of this hub.
    fn number_of(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&*self.name)?.strip_prefix('.')?.parse().ok()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn keep(&mut self, number: u64, frame: Bytes) {
        self.recent_bytes += frame.len();
        self.recent.push_back((number, frame));
        while self.recent.len() > LAG_MAX - 2 || self.recent_bytes > RECENT_BYTES_MAX {
            let Some((_, gone)) = self.recent.pop_front() else { break };
            self.recent_bytes -= gone.len();
        }
    }

    fn send(&mut self, frame: &Bytes) {
        // A queue that is full belongs to one who does not keep up: its stream ends, and the browser comes again for the whole.
        self.queues.retain(|queue| queue.try_send(frame.clone()).is_ok());
    }

    /// The frames after number `after`; `None` where some of them are not here any more, or never were.
    fn missed(&self, after: u64) -> Option<Vec<Bytes>> {
        let first = self.recent.front().map_or(self.newest + 1, |(number, _)| *number);
        let known = after <= self.newest && after + 1 >= first && after > 0;
        known
            .then(|| self.recent.iter().filter(|(number, _)| *number > after).map(|(_, frame)| frame.clone()).collect())
    }

    fn whole_frame(&mut self, name: &str) -> Option<Bytes> {
        if self.whole_frame.is_none() {
            let text = self.whole.as_ref()?();
            self.serialised += 1;
            self.whole_frame = Some(frame(WHOLE, name, self.newest, &text));
        }
        self.whole_frame.clone()
    }
}

/// The body of an event stream.
struct Events {
    queue: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().queue.poll_recv(context).map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }
}

fn frame(event: &str, name: &str, number: u64, text: &str) -> Bytes {
    debug_assert!(!text.contains(['\n', '\r']), "a line break would end the event");
    Bytes::from(format!("event: {event}\nid: {name}.{number}\ndata: {text}\n\n"))
}

/// Name of the event that carries the whole state.
const WHOLE: &str = "whole";
/// Name of the event that leads from the state before to the next.
const STEP: &str = "step";
/// Nothing comes any more from this process.
const END: &[u8] = b"event: end\ndata: {}\n\n";
/// Frames that a viewer may lag behind: half a minute at one a second.
const LAG_MAX: usize = 32;
/// Bytes of steps kept for those who come again.
const RECENT_BYTES_MAX: usize = 1 << 20;
/// How soon a browser comes again.
const RETRY_MS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(most: usize) -> Hub {
        Hub::new(&Viewers::new(most)).unwrap()
    }

    fn whole(text: &str) -> Whole {
        let text = text.to_owned();
        Box::new(move || text.clone())
    }

    /// What waits in a response's stream.
    fn waiting(response: &mut Response) -> String {
        let mut text = String::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(response.body_mut()).poll_frame(&mut context) {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        text
    }

    #[test]
    fn one_frame_for_all() {
        let hub = hub(64);
        hub.publish(None, whole("one"));
        let mut viewers: Vec<_> = (0..20).map(|_| hub.join(None)).collect();
        assert_eq!((hub.serialised(), hub.viewers()), (1, 20), "the whole state once");
        hub.publish(Some("two"), whole("unused"));
        assert_eq!(hub.serialised(), 2, "the step once");
        for viewer in &mut viewers {
            let text = waiting(viewer);
            assert!(
                text.contains("event: whole\n") && text.contains("data: one\n\n") && text.ends_with("data: two\n\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn who_comes_again_is_sent_what_they_missed() {
        let hub = hub(8);
        hub.publish(None, whole("one"));
        for step in ["two", "three"] {
            hub.publish(Some(step), whole("all"));
        }
        let id = |number| format!("{}.{number}", hub.name);
        let sent = |after: Option<&str>| waiting(&mut hub.join(after));
        assert!(sent(Some(&id(1))).contains("data: two") && sent(Some(&id(1))).contains("data: three"));
        assert!(!sent(Some(&id(2))).contains("data: two") && !sent(Some(&id(3))).contains("data:"));
        // Another process's id, one from the future, one too old, nonsense: the whole.
        for other in ["other.2", &id(4), &id(0), "", &format!("{}.x", hub.name)] {
            assert!(sent(Some(other)).contains("event: whole\n"), "{other}");
        }
        for _ in 0..LAG_MAX {
            hub.publish(Some("more"), whole("all"));
        }
        assert!(sent(Some(&id(3))).contains("data: all"));
        assert!(!sent(Some(&id(10))).contains("data: all"));
    }

    #[test]
    fn who_does_not_keep_up_is_cut_off() {
        let hub = hub(8);
        hub.publish(None, whole("one"));
        let mut slow = hub.join(None);
        for _ in 0..LAG_MAX + 1 {
            hub.publish(Some("more"), whole("all"));
        }
        assert_eq!(hub.viewers(), 0);
        // What was sent before is still read; then the stream ends.
        assert_eq!(waiting(&mut slow).matches("data: more").count(), LAG_MAX - 2);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(Pin::new(slow.body_mut()).poll_frame(&mut context), Poll::Ready(None)));
    }

    #[test]
    fn so_many_and_no_more() {
        let hub = hub(2);
        let first = hub.join(None);
        let _second = hub.join(None);
        assert_eq!(hub.join(None).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert_eq!(hub.join(None).status(), StatusCode::OK, "a place is free again");
    }

    #[test]
    fn the_end_is_told_to_all() {
        let hub = hub(8);
        hub.publish(None, whole("one"));
        let mut viewer = hub.join(None);
        hub.publish(Some("last"), whole("end"));
        hub.close();
        assert!(waiting(&mut viewer).ends_with("data: last\n\nevent: end\ndata: {}\n\n"));
        let mut late = hub.join(None);
        assert!(waiting(&mut late).ends_with("data: end\n\nevent: end\ndata: {}\n\n"));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(Pin::new(late.body_mut()).poll_frame(&mut context), Poll::Ready(None)));
    }
}
