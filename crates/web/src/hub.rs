//! Event streams (server-sent events): one state, and the same bytes for all viewers.
//!
//! ```text
//!   publish(step, snapshot) ──frame──▶ queue of viewer 1 ──▶ response body
//!                             └──────▶ queue of viewer 2 ──▶ ..           a full queue: disconnect
//!   join(after) ── frames since `after`, if they are stored; else a snapshot
//! ```
//!
//! A frame is serialised once for all viewers, and a snapshot once when a viewer needs it. Every frame has an id: a
//! reconnecting browser sends the last id it had and gets the missed frames. Ids begin with a random name of the hub,
//! so that a viewer of an earlier process gets a snapshot.

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

use crate::{Secret, WebServerError};

/// Serialises the complete state as text without line breaks.
pub type Serialize = Box<dyn Fn() -> String + Send>;

/// Limit of concurrent viewers, over all hubs of a server.
#[derive(Clone, Debug)]
pub struct Viewers(Arc<Semaphore>);

impl Viewers {
    /// At most `limit` concurrent viewers.
    pub fn new(limit: usize) -> Viewers {
        Viewers(Arc::new(Semaphore::new(limit)))
    }
}

/// The publisher of one state to its viewers. Clones are handles of the same hub.
#[derive(Clone)]
pub struct Hub {
    name: Arc<str>,
    viewers: Viewers,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Number of the newest frame; 0 before the first.
    newest: u64,
    serialize: Option<Serialize>,
    /// The snapshot frame, if a viewer needed it since the newest frame.
    snapshot_frame: Option<Bytes>,
    /// The newest step frames, by number, without gaps.
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
    /// No random bytes are available for its name.
    pub fn new(viewers: &Viewers) -> Result<Hub, WebServerError> {
        let name = Secret::random()?.text()[..8].into();
        Ok(Hub { name, viewers: viewers.clone(), state: Arc::default() })
    }

    /// Publishes a new state: `serialize` serialises it, `step` leads to it from the previous state. Without a step
    /// every viewer gets a snapshot. `step` is text without line breaks.
    pub fn publish(&self, step: Option<&str>, serialize: Serialize) {
        let mut state = self.lock();
        state.newest += 1;
        state.serialize = Some(serialize);
        state.snapshot_frame = None;
        let number = state.newest;
        match step.filter(|_| number > 1) {
            Some(step) => {
                let frame = frame(STEP, &self.name, number, step);
                state.serialised += 1;
                state.store(number, frame.clone());
                state.send(&frame);
            }
            None => {
                state.recent.clear();
                state.recent_bytes = 0;
                if !state.queues.is_empty()
                    && let Some(frame) = state.snapshot_frame(&self.name)
                {
                    state.send(&frame);
                }
            }
        }
    }

    /// Sends every viewer an SSE comment, which scripts do not see. It detects disconnected viewers.
    pub fn heartbeat(&self) {
        self.lock().send(&Bytes::from_static(b":\n\n"));
    }

    /// Adds a viewer. `after` is the id of the last frame that the viewer has, if any. The response is 503 beyond the
    /// viewer limit.
    pub fn join(&self, after: Option<&str>) -> Response {
        let Ok(slot) = Arc::clone(&self.viewers.0).try_acquire_owned() else {
            let mut refusal =
                (StatusCode::SERVICE_UNAVAILABLE, "Too many viewers already. Close another tab of this page.\n")
                    .into_response();
            refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
            return refusal;
        };
        let (sender, queue) = mpsc::channel(LAG_FRAMES_MAX);
        let mut state = self.lock();
        // The queue has space for all frames of `recent`, which is shorter.
        let _ = sender.try_send(Bytes::from(format!("retry: {RETRY_MS}\n\n")));
        match after.and_then(|after| self.number_of(after)).and_then(|after| state.missed(after)) {
            Some(missed) => missed.into_iter().for_each(|frame| drop(sender.try_send(frame))),
            None => {
                if let Some(frame) = state.snapshot_frame(&self.name) {
                    let _ = sender.try_send(frame);
                }
            }
        }
        if state.is_closed {
            let _ = sender.try_send(Bytes::from_static(END));
        } else {
            state.queues.push(sender);
        }
        drop(state);
        let mut response = Response::new(axum::body::Body::new(Events { queue, _slot: slot }));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    /// Number of connected viewers. A viewer counts until a failed send detects its disconnection.
    pub fn viewers(&self) -> usize {
        let mut state = self.lock();
        state.queues.retain(|queue| !queue.is_closed());
        state.queues.len()
    }

    /// Number of frames serialised so far, including snapshots.
    pub fn serialised(&self) -> u64 {
        self.lock().serialised
    }

    /// Ends every stream after its queued frames with an event `end`. A viewer that joins later gets the last state and
    /// `end`.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.send(&Bytes::from_static(END));
        state.queues.clear();
    }

    /// The frame number in an id of this hub.
    fn number_of(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&*self.name)?.strip_prefix('.')?.parse().ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn store(&mut self, number: u64, frame: Bytes) {
        self.recent_bytes += frame.len();
        self.recent.push_back((number, frame));
        while self.recent.len() > LAG_FRAMES_MAX - 2 || self.recent_bytes > RECENT_BYTES_MAX {
            let Some((_, dropped)) = self.recent.pop_front() else { break };
            self.recent_bytes -= dropped.len();
        }
    }

    fn send(&mut self, frame: &Bytes) {
        // A full queue belongs to a viewer that lags: its stream ends, and the browser reconnects for a snapshot.
        self.queues.retain(|queue| queue.try_send(frame.clone()).is_ok());
    }

    /// The frames after number `after`; `None` if some of them were dropped or never existed.
    fn missed(&self, after: u64) -> Option<Vec<Bytes>> {
        let first = self.recent.front().map_or(self.newest + 1, |(number, _)| *number);
        let is_available = after <= self.newest && after + 1 >= first && after > 0;
        is_available
            .then(|| self.recent.iter().filter(|(number, _)| *number > after).map(|(_, frame)| frame.clone()).collect())
    }

    fn snapshot_frame(&mut self, name: &str) -> Option<Bytes> {
        if self.snapshot_frame.is_none() {
            let text = self.serialize.as_ref()?();
            self.serialised += 1;
            self.snapshot_frame = Some(frame(SNAPSHOT, name, self.newest, &text));
        }
        self.snapshot_frame.clone()
    }
}

/// The body of an event stream.
struct Events {
    queue: mpsc::Receiver<Bytes>,
    _slot: OwnedSemaphorePermit,
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

/// Name of the event with the complete state.
const SNAPSHOT: &str = "snapshot";
/// Name of the event that leads from the previous state to the next.
const STEP: &str = "step";
/// Last event: this process publishes no more.
const END: &[u8] = b"event: end\ndata: {}\n\n";
/// Maximum number of frames that a viewer may lag behind: half a minute at one frame a second.
const LAG_FRAMES_MAX: usize = 32;
/// Maximum bytes of step frames stored for reconnecting viewers.
const RECENT_BYTES_MAX: usize = 1 << 20;
/// Time after which a browser reconnects.
const RETRY_MS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(limit: usize) -> Hub {
        Hub::new(&Viewers::new(limit)).unwrap()
    }

    fn serialize(text: &str) -> Serialize {
        let text = text.to_owned();
        Box::new(move || text.clone())
    }

    /// The queued text of a response's stream.
    fn waiting(response: &mut Response) -> String {
        let mut text = String::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(response.body_mut()).poll_frame(&mut context) {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
        text
    }

    #[test]
    fn one_serialised_frame_serves_all_viewers() {
        let hub = hub(64);
        hub.publish(None, serialize("one"));
        let mut viewers: Vec<_> = (0..20).map(|_| hub.join(None)).collect();
        assert_eq!((hub.serialised(), hub.viewers()), (1, 20), "the complete state was serialised once");
        hub.publish(Some("two"), serialize("unused"));
        assert_eq!(hub.serialised(), 2, "the step was serialised once");
        for viewer in &mut viewers {
            let text = waiting(viewer);
            assert!(
                text.contains("event: snapshot\n") && text.contains("data: one\n\n") && text.ends_with("data: two\n\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_reconnecting_viewer_gets_the_missed_frames() {
        let hub = hub(8);
        hub.publish(None, serialize("one"));
        for step in ["two", "three"] {
            hub.publish(Some(step), serialize("all"));
        }
        let id = |number| format!("{}.{number}", hub.name);
        let sent = |after: Option<&str>| waiting(&mut hub.join(after));
        assert!(sent(Some(&id(1))).contains("data: two") && sent(Some(&id(1))).contains("data: three"));
        assert!(!sent(Some(&id(2))).contains("data: two") && !sent(Some(&id(3))).contains("data:"));
        // Ids of another process, from the future, too old or malformed get a snapshot.
        for other in ["other.2", &id(4), &id(0), "", &format!("{}.x", hub.name)] {
            assert!(sent(Some(other)).contains("event: snapshot\n"), "{other}");
        }
        for _ in 0..LAG_FRAMES_MAX {
            hub.publish(Some("more"), serialize("all"));
        }
        assert!(sent(Some(&id(3))).contains("data: all"));
        assert!(!sent(Some(&id(10))).contains("data: all"));
    }

    #[test]
    fn a_viewer_that_lags_is_disconnected() {
        let hub = hub(8);
        hub.publish(None, serialize("one"));
        let mut slow = hub.join(None);
        for _ in 0..LAG_FRAMES_MAX + 1 {
            hub.publish(Some("more"), serialize("all"));
        }
        assert_eq!(hub.viewers(), 0);
        // Queued frames are still readable; then the stream ends.
        assert_eq!(waiting(&mut slow).matches("data: more").count(), LAG_FRAMES_MAX - 2);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(Pin::new(slow.body_mut()).poll_frame(&mut context), Poll::Ready(None)));
    }

    #[test]
    fn viewers_beyond_the_limit_get_503() {
        let hub = hub(2);
        let first = hub.join(None);
        let _second = hub.join(None);
        assert_eq!(hub.join(None).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert_eq!(hub.join(None).status(), StatusCode::OK, "a slot is free again");
    }

    #[test]
    fn closing_a_hub_ends_all_streams() {
        let hub = hub(8);
        hub.publish(None, serialize("one"));
        let mut viewer = hub.join(None);
        hub.publish(Some("last"), serialize("end"));
        hub.close();
        assert!(waiting(&mut viewer).ends_with("data: last\n\nevent: end\ndata: {}\n\n"));
        let mut late = hub.join(None);
        assert!(waiting(&mut late).ends_with("data: end\n\nevent: end\ndata: {}\n\n"));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(Pin::new(late.body_mut()).poll_frame(&mut context), Poll::Ready(None)));
    }
}
