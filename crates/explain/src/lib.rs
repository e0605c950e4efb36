//! What limits a response: its time, from scheduled start to last byte, divided among causes. No descriptor, thread or
//! clock.
//!
//! ```text
//!   load's times, packets of both ends, path's record,         intervals with cause,
//!   TCP_INFO, HTTP/2 windows, CPU accounting      --explain--> confidence and rule   --Summary--> shares, sentence
//!                                                                    '--what_if--> predicted gain of a remedy
//! ```
//!
//! [`explain`](fn@explain) is the entry point, [`Evidence`] its input; [`evidence`](fn@evidence) makes that of capture
//! files. Read `request.rs` (handshakes and request), `response.rs` (from arrival to arrival), `hold.rs` (what held the
//! sender back), then `client_side.rs` (packets of the client alone).
//!
//! # What a share means
//!
//! Each instant belongs to what happened on the way to the response's last byte: a packet in a queue, a bit in
//! transmission, a receiver delaying an ACK, a server computing. Propagation is special. One round trip, the
//! request's way there and the response's way back, is *distance*, which no setting avoids; every further round trip
//! belongs to what made it necessary: a handshake, the congestion window, a receive or HTTP/2 window, the recovery of a
//! loss.
//!
//! # Precedence
//!
//! Where several causes hold at the same time:
//!
//! 1. *What the path added comes before the wait around it.* A round trip of 210 ms, of which 200 ms are a queue, is
//!    10 ms of congestion window and 200 ms of queue: the window needs the round trip, and the queue made it long. The
//!    same holds for ACK delay, and for queue and serialisation during handshakes.
//! 2. *The bottleneck's rate comes before windows.* While the bottleneck transmits the response's own bytes, a larger
//!    window gains nothing at that instant. A queue of the response's own packets is the rate's, not the queue's.
//! 3. *Of two closed windows the one that opened last.* Without it the data would have left earlier; without the other
//!    it would not.
//! 4. *A stated window comes before an inferred one.* HTTP/2 and receive windows are read; the congestion window is
//!    inferred from a departure at an ACK's arrival, with TCP_INFO as its proof. The send buffer's time by TCP_INFO
//!    comes before both an earlier loss and the congestion window.
//! 5. *A loss has its consequences.* They are the time from when the lost packet would have arrived until its bytes
//!    did, as far as nothing else arrived; and waits for the congestion window after the time at which slow start
//!    without the loss would have sent everything. A packet that was only late, and that the sender took for lost, is
//!    reordering with the same consequences.
//! 6. *Other streams' bytes come before what delayed them.* While they arrive between the response's own, the cause is
//!    head-of-line blocking; only a full HTTP/2 window of stream or connection comes before.
//! 7. *The CPU's accounting comes before processing.* A server that was not allowed to run did not compute.
//!
//! A share is where the time went. What removing a cause gains may be more or less, where causes multiply each other:
//! [`what_if`] predicts it.
//!
//! # Confidence
//!
//! *Certain*: the evidence states it. *Likely*: the evidence supports it, and what would exclude the others is
//! missing. *Weak*: one of several that fit. *Unknown* is a cause of its own: the evidence does not decide. A path
//! whose delay without queues is not known has only weak distances and windows, because a queue that never empties
//! looks like distance.

mod capture;
mod client_side;
mod evidence;
mod explanation;
mod facts;
mod fates;
mod hold;
mod http2;
mod quic;
mod request;
mod response;
mod run;
mod sentence;
mod sequence;
mod spacing;
mod steps;
mod summary;
mod timeline;
mod transfer;
mod view;
mod what_if;

pub use capture::{Connections, clock_difference, evidence};
pub use evidence::{
    CpuInterval, CpuWait, DataFrame, Evidence, Http2Windows, LoadTimes, Packet, PathRecord, Protocol, Span, TcpSample,
    WindowUpdate,
};
pub use explanation::{Dominant, Explanation, Share, explain};
pub use facts::Facts;
pub use fates::{ClientLinks, LinkFacts};
pub use quic::{QuicCapture, QuicConnections, QuicResponse, quic_evidence};
pub use run::{Frames, RunInputs, RunJoin, TcpSamples};
pub use schema::share::{Cause, Confidence, Limit, Rule};
pub use sequence::{TimeSequence, time_sequence};
pub use summary::{Advice, Explained, Group, Summary};
pub use timeline::Interval;
pub use transfer::{Transfer, TransferTime};
pub use what_if::{Prediction, Remedy, transfer, what_if};
