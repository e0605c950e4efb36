//! The end of a request, whatever carried it: its record, what its answer is found to be, and what follows from it.
//!
//! ```text
//!   request received, answer --cookies, redirect?, expected?, values--> record
//!                                       |                     \--part of a session--> next part, next step
//!                                       \--next hop
//! ```
//!
//! A chain of redirects is a chain of requests: each hop has its own record, is intended at the end of the hop before,
//! and bears the number of the request that the plan named. What is expected of the response, and what is taken from it,
//! concerns the last one. A hop to a host and port that no request of the plan names is not followed: its load would
//! fall on someone who was not asked.

use std::time::Duration;

use schema::{FailureCause, Method, RequestRecord};
use units::Timestamp;

use super::sessions::PartEnd;
use super::{Load, Loop};
use crate::due::Wake;
use crate::in_flight::{Hop, InFlightRequest, Onward, Purpose, PurposeKey};
use crate::rendering::Rendering;
use crate::virtual_users::Reply;
use crate::workload::redirect::{method_after, resolve};
use crate::workload::{RequestSpec, Values, fields};

/// A complete response, as far as it was kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    /// The final head in the form of HTTP/1; empty unless [`Wants::head`].
    pub(crate) head: &'a [u8],
    /// The body without framing; `None` unless [`Wants::body`], or if it was too long to be kept.
    pub(crate) body: Option<&'a [u8]>,
    /// Bytes of the body without framing, kept or not.
    pub(crate) body_length: u64,
}

/// What must be kept of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) head: bool,
    pub(crate) body: bool,
}

/// What is to be known of a request whose record is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    client: u32,
    url: u32,
    purpose_key: PurposeKey,
    started_at: Option<Timestamp>,
    /// A byte of a response came.
    answered: bool,
    verdict: Result<(), FailureCause>,
}

impl Ended {
    pub(super) fn of(in_hand: &InFlightRequest, verdict: Result<(), FailureCause>) -> Self {
        let InFlightRequest { record, purpose_key, .. } = in_hand;
        Ended {
            client: record.client,
            url: record.url,
            purpose_key: *purpose_key,
            started_at: record.started_at,
            answered: record.first_byte_at.is_some(),
            verdict,
        }
    }
}

/// What the engine has at hand of each request of the workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    /// Its host and port: an index into the load's targets.
    pub(super) endpoint: u16,
    pub(super) method: Method,
    pub(super) wants: Wants,
    /// Its answer is looked at: for cookies, a redirect, what is expected or what is taken.
    judged: bool,
}

impl Outline {
    pub(super) fn is_judged(self) -> bool {
        self.judged
    }

    pub(super) fn new(request: &RequestSpec, endpoint: u16, cookies: bool) -> Self {
        let takes_head = request.extract.iter().any(|extract| !extract.needs_body());
        let takes_body = request.extract.iter().any(crate::workload::Extract::needs_body);
        let wants = Wants {
            head: cookies || request.redirects_max > 0 || takes_head,
            body: takes_body || request.expect.needs_body(),
        };
        let judged = wants != Wants::default() || !request.expect.is_nothing();
        Outline { endpoint, method: request.method, wants, judged }
    }
}

impl Load {
    /// What must be kept of the response to a request.
    pub(super) fn wants(&self, in_hand: &InFlightRequest) -> Wants {
        self.outlines[in_hand.record.url as usize].wants
    }

    /// Whether the response to a request is looked at. If not, [`Answer`] need tell nothing.
    pub(super) fn is_judged(&self, in_hand: &InFlightRequest) -> bool {
        self.outlines[in_hand.record.url as usize].judged
    }

    /// The host and port of a request: an index into the load's targets.
    pub(super) fn endpoint_of(&self, url: u32, purpose_key: PurposeKey) -> u16 {
        self.purposes.hop(purpose_key).map_or(self.outlines[url as usize].endpoint, |hop| hop.endpoint)
    }

    /// The method of a request.
    pub(super) fn method_of(&self, url: u32, purpose_key: PurposeKey) -> Method {
        let purpose = self.purposes.purpose(purpose_key);
        let own = purpose.and_then(|Purpose { hop, asking, .. }| {
            hop.as_ref().map(|hop| hop.method).or_else(|| asking.as_ref().map(|asking| asking.ask.method))
        });
        own.unwrap_or(self.outlines[url as usize].method)
    }

    /// Everything that is needed to write a request, at `now`.
    pub(super) fn rendering(&self, in_hand: &InFlightRequest, now: Timestamp) -> Rendering<'_> {
        let record = &in_hand.record;
        let mut rendering =
            self.rendering_without_cookie(record.client, record.sequence, record.url, in_hand.purpose_key);
        if self.spec.workload.cookies {
            let mut path = Vec::new();
            rendering.path(&mut path);
            rendering.cookie = self.cookies.header(record.client, rendering.target(), &path, now);
        }
        rendering
    }

    fn rendering_without_cookie(&self, client: u32, sequence: u64, url: u32, purpose_key: PurposeKey) -> Rendering<'_> {
        let request = &self.spec.workload.requests[url as usize];
        let purpose = self.purposes.purpose(purpose_key);
        let values = match purpose.and_then(|purpose| purpose.part) {
            Some(part) => Values {
                client,
                sequence,
                session: self.sessions.number(part),
                variables: self.sessions.variables(part),
                seed: self.sessions.request_seed(part),
            },
            None => Values { client, sequence, session: None, variables: &[], seed: self.request_seed(sequence) },
        };
        let asked = self.virtual_users.as_ref().zip(self.purposes.asking(purpose_key));
        let asked = asked.map(|(virtual_users, asking)| virtual_users.asked(asking));
        Rendering { request, values, hop: purpose.and_then(|purpose| purpose.hop.as_deref()), cookie: None, asked }
    }

    /// Ends a request: writes its record, which must tell by now all that was seen of the response, counts it, and has
    /// what follows from it intended. Touches no connection.
    ///
    /// The next hop of a redirect is given back where the loop is closed (without sessions): the position that
    /// issued the request issues it next, with [`Self::intend_onward`], or forgets it with [`Self::drop_purpose`].
    pub(super) fn conclude(
        &mut self,
        done_at: Timestamp,
        mut in_hand: InFlightRequest,
        outcome: Result<Answer<'_>, FailureCause>,
    ) -> Option<Onward> {
        if self.virtual_users.is_some() {
            return self.conclude_ask(done_at, in_hand, Reply::NONE, outcome.err());
        }
        let (verdict, hop) = match outcome {
            Err(cause) => (Err(cause), None),
            Ok(_) if !self.is_judged(&in_hand) => (Ok(()), None),
            Ok(answer) => self.judge(done_at, &in_hand, answer),
        };
        let ended = Ended::of(&in_hand, verdict);
        in_hand.record.done_at = done_at;
        in_hand.record.failure = verdict.err();
        self.records.push(in_hand.record);
        self.settle(done_at, ended, hop)
    }

    /// Counts a request whose record is written, and has what follows from it intended.
    #[inline]
    pub(super) fn settle(&mut self, done_at: Timestamp, ended: Ended, hop: Option<Box<Hop>>) -> Option<Onward> {
        let Ended { client, url, purpose_key, started_at, answered, verdict } = ended;
        let service_time = started_at.map_or(Duration::ZERO, |at| done_at.since(at));
        if started_at.is_some() {
            self.live.in_flight -= 1;
        } else {
            self.live.backlog -= 1;
        }
        match verdict {
            Ok(()) => {
                self.live.completed += 1;
                self.service_time_max = self.service_time_max.max(service_time);
            }
            Err(cause) => {
                self.live.failed += 1;
                self.live.refused += u64::from(cause == FailureCause::ConnectRefused);
            }
        }
        self.last_done_at = self.last_done_at.max(done_at);
        let mut onward = None;
        if let Some(hop) = hop {
            let purpose_key = self.purposes.set_hop(purpose_key, hop);
            onward = self.follow(done_at, client, Onward { url, purpose_key });
        } else if purpose_key != PurposeKey::PLAIN
            && let Some(part) = self.purposes.end(purpose_key)
        {
            let end = verdict.map_or_else(|cause| PartEnd::Failed { cause, answered }, |()| PartEnd::Whole);
            self.part_ended(done_at, part, end);
        }
        if self.live.in_flight == 0 && self.live.backlog == 0 {
            self.drained(done_at);
        }
        onward
    }

    /// The next hop of a chain that is at `at`.
    fn follow(&mut self, at: Timestamp, client: u32, onward: Onward) -> Option<Onward> {
        if matches!(self.arrivals, Loop::Closed(_)) {
            return Some(onward);
        }
        let Onward { url, purpose_key } = onward;
        if self.phase.admits(at) && !self.phase.is_over() {
            self.due.push(at, Wake::Ask { client, url, purpose_key });
        } else {
            self.drop_purpose(at, purpose_key);
        }
        None
    }

    /// What a complete response is found to be, and where it leads.
    #[inline(never)]
    fn judge(
        &mut self,
        now: Timestamp,
        in_hand: &InFlightRequest,
        answer: Answer<'_>,
    ) -> (Result<(), FailureCause>, Option<Box<Hop>>) {
        let purpose_key = in_hand.purpose_key;
        let RequestRecord { client, sequence, url, .. } = in_hand.record;
        let redirected = method_after(answer.status, self.method_of(url, purpose_key));
        let redirected = redirected.filter(|_| self.spec.workload.requests[url as usize].redirects_max > 0);
        let sets_cookie = self.spec.workload.cookies && fields::first(answer.head, "set-cookie").is_some();
        let (mut path, mut hop) = (Vec::new(), Ok(None));
        if redirected.is_some() || sets_cookie {
            let rendering = self.rendering_without_cookie(client, sequence, url, purpose_key);
            rendering.path(&mut path);
            if let Some(method) = redirected {
                hop = self.next_hop(&rendering, url, method, &path, answer.head).map(Some);
            }
        }
        if sets_cookie {
            let hop = self.purposes.hop(purpose_key);
            let target = hop.map_or(&self.spec.workload.requests[url as usize].target, |hop| &hop.target);
            self.cookies.take_in(client, answer.head, target, &path, now);
        }
        match hop {
            Err(cause) => (Err(cause), None),
            Ok(Some(hop)) => (Ok(()), Some(hop)),
            Ok(None) => (self.check(url, purpose_key, answer), None),
        }
    }

    /// Where a redirect leads.
    fn next_hop(
        &self,
        from: &Rendering<'_>,
        url: u32,
        method: Method,
        path: &[u8],
        head: &[u8],
    ) -> Result<Box<Hop>, FailureCause> {
        let followed = from.hop.map_or(0, |hop| hop.count);
        if followed >= from.request.redirects_max {
            return Err(FailureCause::TooManyRedirects);
        }
        let location = fields::first(head, "location").unwrap_or_default();
        let target = resolve(from.target(), path, location).map_err(|_| FailureCause::BadRedirect)?;
        let named = self.targets.iter().position(|named| named.same_endpoint(&target));
        let endpoint = named.and_then(|named| u16::try_from(named).ok()).ok_or(FailureCause::BadRedirect)?;
        let drops_body = method != from.method() || from.hop.is_some_and(|hop| hop.drops_body);
        let home = self.outlines[url as usize].endpoint;
        let left_home = endpoint != home || from.hop.is_some_and(|hop| hop.left_home);
        Ok(Box::new(Hop { target, endpoint, method, count: followed + 1, drops_body, left_home }))
    }

    /// Whether a response is what was expected; what is taken from it is kept for the session.
    fn check(&mut self, url: u32, purpose_key: PurposeKey, answer: Answer<'_>) -> Result<(), FailureCause> {
        let request = &self.spec.workload.requests[url as usize];
        request.expect.check(answer.status, answer.body_length, answer.body)?;
        let part = self.purposes.purpose(purpose_key).and_then(|purpose| purpose.part);
        for extract in &request.extract {
            let value = extract.from(answer.head, answer.body).ok_or(FailureCause::MissingValue)?;
            if let Some(part) = part {
                self.sessions.set_variable(part, extract.variable, value);
            }
        }
        Ok(())
    }
}
