//! Evaluates the end of a request, over any version of HTTP: writes its record, checks its response, and schedules
//! follow-ups.
//!
//! ```text
//!   request, response --cookies, redirect?, expected?, values--> record
//!                                  |                     \--part of a session--> next part, next step
//!                                  \--next hop
//! ```
//!
//! A chain of redirects is a chain of requests: each hop has its own record, is scheduled at the end of the hop before,
//! and has the index of the plan's original request. Expectations and extracted values apply to the last response. A
//! redirect to a host and port outside of the plan is not followed, as its owner has not agreed to the load.

use std::time::Duration;

use schema::{FailureCause, Method, RequestRecord};
use units::Timestamp;

use super::sessions::PartEnd;
use super::{Load, Loop};
use crate::due::Wake;
use crate::in_flight::{FollowUp, Hop, InFlightRequest, Purpose, PurposeKey};
use crate::rendering::Rendering;
use crate::virtual_users::Reply;
use crate::workload::redirect::{method_after, resolve};
use crate::workload::{RequestSpec, Values, fields};

/// The stored parts of a complete response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedResponse<'a> {
    pub(crate) status: u16,
    /// The final head in the form of HTTP/1; empty unless requested by [`Needs::head`].
    pub(crate) head: &'a [u8],
    /// The body without framing; `None` unless requested by [`Needs::body`], or if it is too long to store.
    pub(crate) body: Option<&'a [u8]>,
    /// Bytes of the body without framing, stored or not.
    pub(crate) body_length: u64,
}

/// Which parts of a response must be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) head: bool,
    pub(crate) body: bool,
}

/// The properties of an ended request that are needed after its record is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    client: u32,
    url: u32,
    purpose_key: PurposeKey,
    started_at: Option<Timestamp>,
    /// Whether a byte of a response was received.
    answered: bool,
    verdict: Result<(), FailureCause>,
}

impl Ended {
    pub(super) fn of(in_flight: &InFlightRequest, verdict: Result<(), FailureCause>) -> Self {
        let InFlightRequest { record, purpose_key, .. } = in_flight;
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

/// The properties of a request of the workload that the engine needs for every arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    /// Host and port: an index into the load's targets.
    pub(super) endpoint: u16,
    pub(super) method: Method,
    pub(super) needs: Needs,
    /// Whether its response is evaluated: for cookies, redirects, expectations or extracted values.
    evaluated: bool,
}

impl Outline {
    pub(super) fn is_evaluated(self) -> bool {
        self.evaluated
    }

    pub(super) fn new(request: &RequestSpec, endpoint: u16, cookies: bool) -> Self {
        let takes_head = request.extract.iter().any(|extract| !extract.needs_body());
        let takes_body = request.extract.iter().any(crate::workload::Extract::needs_body);
        let needs = Needs {
            head: cookies || request.redirects_max > 0 || takes_head,
            body: takes_body || request.expect.needs_body(),
        };
        let evaluated = needs != Needs::default() || !request.expect.is_nothing();
        Outline { endpoint, method: request.method, needs, evaluated }
    }
}

impl Load {
    /// Which parts of the response to a request must be stored.
    pub(super) fn needs(&self, in_flight: &InFlightRequest) -> Needs {
        self.outlines[in_flight.record.url as usize].needs
    }

    /// Whether the response to a request is evaluated. If not, the fields of [`ReceivedResponse`] may be empty.
    pub(super) fn is_evaluated(&self, in_flight: &InFlightRequest) -> bool {
        self.outlines[in_flight.record.url as usize].evaluated
    }

    /// The host and port of a request: an index into the load's targets.
    pub(super) fn endpoint_of(&self, url: u32, purpose_key: PurposeKey) -> u16 {
        self.purposes.hop(purpose_key).map_or(self.outlines[url as usize].endpoint, |hop| hop.endpoint)
    }

    /// The method of a request.
    pub(super) fn method_of(&self, url: u32, purpose_key: PurposeKey) -> Method {
        let purpose = self.purposes.purpose(purpose_key);
        let own = purpose.and_then(|Purpose { hop, workload_request, .. }| {
            hop.as_ref()
                .map(|hop| hop.method)
                .or_else(|| workload_request.as_ref().map(|workload_request| workload_request.ask.method))
        });
        own.unwrap_or(self.outlines[url as usize].method)
    }

    /// The input for writing a request at `now`.
    pub(super) fn rendering(&self, in_flight: &InFlightRequest, now: Timestamp) -> Rendering<'_> {
        let record = &in_flight.record;
        let mut rendering =
            self.rendering_without_cookie(record.client, record.sequence, record.url, in_flight.purpose_key);
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
        let workload_content = self.virtual_users.as_ref().zip(self.purposes.workload_request(purpose_key));
        let workload_content =
            workload_content.map(|(virtual_users, workload_request)| virtual_users.content_of(workload_request));
        Rendering {
            request,
            values,
            hop: purpose.and_then(|purpose| purpose.hop.as_deref()),
            cookie: None,
            workload_content,
        }
    }

    /// Ends a request: stores its record, which must already contain the properties of the response, counts it, and
    /// schedules its follow-ups. Changes no connection.
    ///
    /// In a closed loop without sessions it returns the next hop of a redirect. The worker that issued the request
    /// issues the hop next, with [`Self::schedule_follow_up`], or drops it with [`Self::drop_purpose`].
    pub(super) fn conclude(
        &mut self,
        done_at: Timestamp,
        mut in_flight: InFlightRequest,
        outcome: Result<ReceivedResponse<'_>, FailureCause>,
    ) -> Option<FollowUp> {
        if self.virtual_users.is_some() {
            return self.conclude_workload_request(done_at, in_flight, Reply::NONE, outcome.err());
        }
        let (verdict, hop) = match outcome {
            Err(cause) => (Err(cause), None),
            Ok(_) if !self.is_evaluated(&in_flight) => (Ok(()), None),
            Ok(received) => self.evaluate(done_at, &in_flight, received),
        };
        let ended = Ended::of(&in_flight, verdict);
        in_flight.record.done_at = done_at;
        in_flight.record.failure = verdict.err();
        self.records.push(in_flight.record);
        self.settle(done_at, ended, hop)
    }

    /// Counts a request whose record is written, and schedules its follow-ups.
    #[inline]
    pub(super) fn settle(&mut self, done_at: Timestamp, ended: Ended, hop: Option<Box<Hop>>) -> Option<FollowUp> {
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
        let mut follow_up = None;
        if let Some(hop) = hop {
            let purpose_key = self.purposes.set_hop(purpose_key, hop);
            follow_up = self.follow(done_at, client, FollowUp { url, purpose_key });
        } else if purpose_key != PurposeKey::PLAIN
            && let Some(part) = self.purposes.end(purpose_key)
        {
            let end = verdict.map_or_else(|cause| PartEnd::Failed { cause, answered }, |()| PartEnd::Complete);
            self.part_ended(done_at, part, end);
        }
        if self.live.in_flight == 0 && self.live.backlog == 0 {
            self.all_ended(done_at);
        }
        follow_up
    }

    /// Schedules the next hop of a redirect at `at`, or returns it in a closed loop.
    fn follow(&mut self, at: Timestamp, client: u32, follow_up: FollowUp) -> Option<FollowUp> {
        if matches!(self.arrivals, Loop::Closed(_)) {
            return Some(follow_up);
        }
        let FollowUp { url, purpose_key } = follow_up;
        if self.phase.admits(at) && !self.phase.is_over() {
            self.due.push(at, Wake::Request { client, url, purpose_key });
        } else {
            self.drop_purpose(at, purpose_key);
        }
        None
    }

    /// Evaluates a complete response: the verdict, and the next hop if the response is a redirect to follow.
    #[inline(never)]
    fn evaluate(
        &mut self,
        now: Timestamp,
        in_flight: &InFlightRequest,
        received: ReceivedResponse<'_>,
    ) -> (Result<(), FailureCause>, Option<Box<Hop>>) {
        let purpose_key = in_flight.purpose_key;
        let RequestRecord { client, sequence, url, .. } = in_flight.record;
        let redirected = method_after(received.status, self.method_of(url, purpose_key));
        let redirected = redirected.filter(|_| self.spec.workload.requests[url as usize].redirects_max > 0);
        let sets_cookie = self.spec.workload.cookies && fields::first(received.head, "set-cookie").is_some();
        let (mut path, mut hop) = (Vec::new(), Ok(None));
        if redirected.is_some() || sets_cookie {
            let rendering = self.rendering_without_cookie(client, sequence, url, purpose_key);
            rendering.path(&mut path);
            if let Some(method) = redirected {
                hop = self.next_hop(&rendering, url, method, &path, received.head).map(Some);
            }
        }
        if sets_cookie {
            let hop = self.purposes.hop(purpose_key);
            let target = hop.map_or(&self.spec.workload.requests[url as usize].target, |hop| &hop.target);
            self.cookies.take_in(client, received.head, target, &path, now);
        }
        match hop {
            Err(cause) => (Err(cause), None),
            Ok(Some(hop)) => (Ok(()), Some(hop)),
            Ok(None) => (self.check(url, purpose_key, received), None),
        }
    }

    /// The next hop of a redirect.
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
        let target_index = self.targets.iter().position(|other| other.same_endpoint(&target));
        let endpoint = target_index.and_then(|index| u16::try_from(index).ok()).ok_or(FailureCause::BadRedirect)?;
        let drops_body = method != from.method() || from.hop.is_some_and(|hop| hop.drops_body);
        let home = self.outlines[url as usize].endpoint;
        let left_original_host = endpoint != home || from.hop.is_some_and(|hop| hop.left_original_host);
        Ok(Box::new(Hop { target, endpoint, method, count: followed + 1, drops_body, left_original_host }))
    }

    /// Checks a response against its expectations, and stores extracted values for the session.
    fn check(&mut self, url: u32, purpose_key: PurposeKey, received: ReceivedResponse<'_>) -> Result<(), FailureCause> {
        let request = &self.spec.workload.requests[url as usize];
        request.expect.check(received.status, received.body_length, received.body)?;
        let part = self.purposes.purpose(purpose_key).and_then(|purpose| purpose.part);
        for extract in &request.extract {
            let value = extract.from(received.head, received.body).ok_or(FailureCause::MissingValue)?;
            if let Some(part) = part {
                self.sessions.set_variable(part, extract.variable, value);
            }
        }
        Ok(())
    }
}
