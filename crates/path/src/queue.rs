//! A bottleneck that stores its packets, for everything without a closed form: limits in packets, disciplines that drop
//! packets on departure (CoDel) or by a probability that follows the queue (PIE), rates that change, traces.
//!
//! ```text
//!   offer --limit?--PIE?--> waiting ... waiting --CoDel?--> being sent --> leaves at a computed time
//!              `- queue_full  `- aqm                  `- aqm
//! ```
//!
//! The queue works in computed time. Its next event, [`Queue::next`], is known exactly. The owner of the queue
//! processes it ([`Queue::advance`]) before any later packet ([`Queue::offer`]); how late that happens changes nothing.
//! Read [`Queue::offer`] and [`Queue::advance`], then `steady.rs` and `trace.rs` (departure times), `codel.rs`,
//! `pie.rs`.

mod codel;
mod pie;
mod steady;
mod trace;

use std::collections::VecDeque;
use std::sync::Arc;

use schema::DropCause;
use units::time::saturating_nanos;

use crate::draw::Draw;
use crate::spec::{Bottleneck, Discipline, QueueLimit, RateSpec};
use crate::timeline::{Start, State, Timeline};

use codel::CoDel;
use pie::Pie;
use steady::Steady;
use trace::Opportunities;

/// A bottleneck with the packets `P` that wait for it.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    line: Line<P>,
    discipline: Control,
    limit: QueueLimit,
    /// When the next packet leaves, or the next delivery opportunity; `None` while there is nothing to send.
    next: Option<u64>,
}

/// Waiting packets, and the packet being sent.
#[derive(Debug)]
struct Line<P> {
    waiting: VecDeque<Waiting<P>>,
    /// IP bytes of the waiting packets.
    waiting_bytes: u64,
    /// The packet being sent.
    sending: Option<(P, u32)>,
    sender: Sender,
    timeline: Option<Arc<Timeline>>,
}

#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    bytes: u32,
    since: u64,
}

#[derive(Debug)]
enum Sender {
    Steady(Steady),
    Trace(Opportunities),
}

#[derive(Debug)]
enum Control {
    DropTail,
    CoDel(CoDel),
    Pie(Box<Pie>),
}

/// The outcome of a packet that had been accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The packet leaves at this time, in nanoseconds.
    Leaves(u64),
    /// The queue's discipline dropped the packet.
    Dropped(DropCause),
}

/// The largest packet of a link: CoDel never drops the last such packet, and PIE counts in it.
const MTU: u64 = 1500;

impl<P> Queue<P> {
    /// An empty queue. Its rate follows `timeline`; PIE draws from `draw`.
    pub(crate) fn new(spec: &Bottleneck, timeline: Option<Arc<Timeline>>, draw: Draw) -> Self {
        let sender = match &spec.rate {
            RateSpec::Constant(rate) => Sender::Steady(Steady::new(*rate)),
            RateSpec::Trace(trace) => Sender::Trace(Opportunities::new(trace.clone())),
        };
        let discipline = match &spec.queue.discipline {
            Discipline::DropTail => Control::DropTail,
            Discipline::CoDel(codel) => Control::CoDel(CoDel::new(codel)),
            Discipline::Pie(pie) => Control::Pie(Box::new(Pie::new(pie, draw))),
        };
        let line = Line { waiting: VecDeque::new(), waiting_bytes: 0, sending: None, sender, timeline };
        Queue { line, discipline, limit: spec.queue.limit, next: None }
    }

    /// The time of the next event.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// A packet of `bytes` IP bytes arrives at `at`. Everything due until then has been processed ([`Self::advance`]).
    /// A rejected packet is returned with the cause.
    pub(crate) fn offer(&mut self, at: u64, packet: P, bytes: u32, start: Start) -> Result<(), (P, DropCause)> {
        let Queue { line, discipline, limit, next } = self;
        if let Control::Pie(pie) = discipline {
            pie.update_until(at, |time| line.wait(time, start));
        }
        let is_idle = line.is_idle();
        if !is_idle && line.is_full(at, *limit, bytes, start) {
            return Err((packet, DropCause::QueueFull));
        }
        if let Control::Pie(pie) = discipline
            && pie.drops(line.wait(at, start), line.waiting_bytes)
        {
            return Err((packet, DropCause::Aqm));
        }
        line.waiting.push_back(Waiting { packet, bytes, since: at });
        line.waiting_bytes += u64::from(bytes);
        if is_idle {
            *next = match &mut line.sender {
                Sender::Trace(trace) => Some(trace.wake(at, start)),
                Sender::Steady(steady) => {
                    steady.begin(at);
                    // A single packet that has not waited: no discipline drops it.
                    line.send_next(discipline, at, start, &mut |_, _| {})
                }
            };
        }
        Ok(())
    }

    /// Processes all events due at `until` or before, in order; `out` receives each packet and its outcome.
    pub(crate) fn advance(&mut self, until: u64, start: Start, out: &mut impl FnMut(P, Outcome)) {
        let Queue { line, discipline, next, .. } = self;
        while let Some(at) = next.filter(|&next| next <= until) {
            if let Control::Pie(pie) = discipline {
                pie.update_until(at, |time| line.wait(time, start));
            }
            *next = match line.sender {
                Sender::Steady(_) => {
                    let (packet, _) = line.sending.take().expect("a packet is being sent until the event");
                    out(packet, Outcome::Leaves(at));
                    line.send_next(discipline, line.free_at(), start, out)
                }
                Sender::Trace(_) => line.use_opportunity(discipline, at, start, out),
            };
        }
    }

    /// The start of the timeline is set or changed: the packet being sent may end at another time.
    pub(crate) fn restart(&mut self, start: Start) {
        let Queue { line, next, .. } = self;
        if next.is_none() {
            return;
        }
        let state = line.state();
        *next = match (&mut line.sender, &line.sending) {
            (Sender::Steady(steady), Some((_, bytes))) => Some(steady.send(*bytes, state, start)),
            (Sender::Steady(_), None) => None,
            (Sender::Trace(trace), _) => Some(trace.next(start)),
        };
    }

    /// Removes all packets, the one being sent first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = P> {
        self.next = None;
        self.line.waiting_bytes = 0;
        let sending = self.line.sending.take().map(|(packet, _)| packet);
        sending.into_iter().chain(self.line.waiting.drain(..).map(|waiting| waiting.packet))
    }
}

impl<P> Line<P> {
    fn is_idle(&self) -> bool {
        self.sending.is_none() && self.waiting.is_empty()
    }

    /// The rates of the timeline.
    fn state(&self) -> Rates {
        Rates(self.timeline.clone())
    }

    /// When everything whose sending has begun is sent, rounded down to the nanosecond.
    fn free_at(&self) -> u64 {
        match &self.sender {
            Sender::Steady(steady) => steady.free_at(),
            Sender::Trace(_) => unreachable!("a trace sends at its opportunities"),
        }
    }

    /// Nanoseconds that a packet arriving at `at` would wait before its first bit is sent.
    fn wait(&self, at: u64, start: Start) -> u64 {
        if self.is_idle() {
            return 0;
        }
        let begins = match &self.sender {
            Sender::Steady(steady) => steady.after(self.waiting_bytes, &self.state(), start),
            Sender::Trace(trace) => {
                trace.after(self.waiting_bytes, self.waiting.len() as u64, &self.state(), at, start)
            }
        };
        begins.saturating_sub(at)
    }

    /// Whether a packet of `bytes` more would exceed the limit. The line is not idle.
    fn is_full(&self, at: u64, limit: QueueLimit, bytes: u32, start: Start) -> bool {
        match limit {
            QueueLimit::Packets(packets) => {
                self.waiting.len() as u64 + u64::from(self.sending.is_some()) + 1 > u64::from(packets)
            }
            QueueLimit::Time(time) => self.wait(at, start) > saturating_nanos(time),
            QueueLimit::Bytes(limit) => {
                let sending = self.sending.as_ref().map_or(0, |(_, bytes)| *bytes);
                let remaining = match &self.sender {
                    Sender::Steady(_) if sending == 0 => 0,
                    Sender::Steady(steady) => steady.remaining_work(at, &self.state(), start),
                    Sender::Trace(trace) => trace.remaining(sending),
                };
                remaining + u128::from(self.waiting_bytes + u64::from(bytes)) * BYTE > u128::from(limit.0) * BYTE
            }
        }
    }

    /// The next packet to send at `at`, after those that the discipline drops.
    fn dequeue(&mut self, control: &mut Control, at: u64, out: &mut impl FnMut(P, Outcome)) -> Option<(P, u32)> {
        let Line { waiting, waiting_bytes, .. } = self;
        let mut take = || {
            let first = waiting.pop_front()?;
            *waiting_bytes -= u64::from(first.bytes);
            Some((first, *waiting_bytes))
        };
        let next = match control {
            Control::CoDel(codel) => codel.dequeue(at, take, |dropped| {
                out(dropped.packet, Outcome::Dropped(DropCause::Aqm));
            }),
            Control::DropTail | Control::Pie(_) => take().map(|(first, _)| first),
        };
        next.map(|next| (next.packet, next.bytes))
    }

    /// At a steady rate: begins the next packet when the last one ended; returns when it leaves.
    fn send_next(
        &mut self,
        control: &mut Control,
        at: u64,
        start: Start,
        out: &mut impl FnMut(P, Outcome),
    ) -> Option<u64> {
        self.sending = self.dequeue(control, at, out);
        let (_, bytes) = self.sending.as_ref()?;
        let rates = self.state();
        let Sender::Steady(steady) = &mut self.sender else { return None };
        steady.proceed();
        Some(steady.send(*bytes, rates, start))
    }

    /// With a trace: sends what the opportunities at `at` allow; returns when the next opportunity is.
    fn use_opportunity(
        &mut self,
        control: &mut Control,
        at: u64,
        start: Start,
        out: &mut impl FnMut(P, Outcome),
    ) -> Option<u64> {
        let rates = self.state();
        loop {
            let Sender::Trace(trace) = &mut self.sender else { return None };
            let next = trace.next(start);
            if next > at {
                return Some(next);
            }
            let mut budget = trace.take(&rates, at, start);
            while budget > 0 {
                if self.sending.is_none() {
                    self.sending = self.dequeue(control, at, out);
                    let Some((_, bytes)) = &self.sending else { return None };
                    let Sender::Trace(trace) = &mut self.sender else { return None };
                    trace.load(*bytes);
                }
                let Sender::Trace(trace) = &mut self.sender else { return None };
                if trace.send(&mut budget)
                    && let Some((packet, _)) = self.sending.take()
                {
                    out(packet, Outcome::Leaves(at));
                }
            }
            if self.is_idle() {
                return None;
            }
        }
    }
}

/// The factor by which rates are changed, over time.
#[derive(Clone, Debug)]
struct Rates(Option<Arc<Timeline>>);

impl Rates {
    fn factor(&self, start: Start, at: u64) -> f64 {
        self.0.as_ref().map_or(State::UNCHANGED, |timeline| timeline.at(start, at)).rate
    }

    fn next_after(&self, start: Start, at: u64) -> Option<u64> {
        self.0.as_ref()?.next_after(start, at)
    }
}

/// A byte, in bits times 10^9: nanoseconds times bits per second.
const BYTE: u128 = 8_000_000_000;

#[cfg(test)]
mod tests;
