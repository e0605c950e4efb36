//! A request in flight, and what it is part of.

use schema::{Method, RequestRecord};
use slab::Slab;

use crate::Target;
use crate::virtual_users::WorkloadRequest;

/// A request that has been intended and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct InFlightRequest {
    pub(crate) record: RequestRecord,
    /// What it is part of.
    pub(crate) purpose_key: PurposeKey,
    /// It was sent before, on a connection that the server had closed.
    pub(crate) retried: bool,
}

/// Names what a request is part of: a session, a chain of redirects, both or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurposeKey(u32);

impl PurposeKey {
    /// A request by itself, which nothing hangs on.
    pub(crate) const PLAIN: PurposeKey = PurposeKey(u32::MAX);
}

/// What a request is part of.
#[derive(Debug, Default)]
pub(crate) struct Purpose {
    /// The step of a session.
    pub(crate) part: Option<Part>,
    /// Where redirects have led so far.
    pub(crate) hop: Option<Box<Hop>>,
    /// The ask of a workload.
    pub(crate) asking: Option<Box<WorkloadRequest>>,
}

/// Part of a step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Place of the step under way.
    pub(crate) stage: u32,
    /// 0 for the step's own request, k for its k-th embedded object.
    pub(crate) nth: u32,
}

/// What redirects have made of a request.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) target: Target,
    pub(crate) endpoint: u16,
    pub(crate) method: Method,
    /// Redirects followed, this one included.
    pub(crate) count: u8,
    /// The method has become GET on the way: there is no body any more.
    pub(crate) drops_body: bool,
    /// The chain has left the request's own host and port on the way: what is meant for it alone is not sent along.
    pub(crate) left_home: bool,
}

/// The next request of a closed loop's position: a hop of a chain of redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Onward {
    pub(crate) url: u32,
    pub(crate) purpose_key: PurposeKey,
}

/// The purposes of all requests in hand that have one.
#[derive(Debug, Default)]
pub(crate) struct Purposes(Slab<Purpose>);

impl Purposes {
    /// # Panics
    /// With 2^32 - 1 of them.
    pub(crate) fn begin(&mut self, purpose: Purpose) -> PurposeKey {
        let place = u32::try_from(self.0.insert(purpose)).ok().filter(|&place| place != u32::MAX);
        PurposeKey(place.expect("fewer requests in hand than numbers for them"))
    }

    pub(crate) fn purpose(&self, purpose_key: PurposeKey) -> Option<&Purpose> {
        if purpose_key == PurposeKey::PLAIN { None } else { self.0.get(purpose_key.0 as usize) }
    }

    /// Where redirects have led a request.
    pub(crate) fn hop(&self, purpose_key: PurposeKey) -> Option<&Hop> {
        self.purpose(purpose_key)?.hop.as_deref()
    }

    /// The chain of redirects goes on with `hop`.
    pub(crate) fn set_hop(&mut self, purpose_key: PurposeKey, hop: Box<Hop>) -> PurposeKey {
        match self.0.get_mut(purpose_key.0 as usize) {
            Some(purpose) => {
                purpose.hop = Some(hop);
                purpose_key
            }
            None => self.begin(Purpose { hop: Some(hop), ..Purpose::default() }),
        }
    }

    /// The ask of a request of a workload.
    pub(crate) fn asking(&self, purpose_key: PurposeKey) -> Option<&WorkloadRequest> {
        self.purpose(purpose_key)?.asking.as_deref()
    }

    pub(crate) fn asking_mut(&mut self, purpose_key: PurposeKey) -> Option<&mut WorkloadRequest> {
        if purpose_key == PurposeKey::PLAIN {
            None
        } else {
            self.0.get_mut(purpose_key.0 as usize)?.asking.as_deref_mut()
        }
    }

    /// Takes the cache request of a request that has ended, or will not be scheduled; the caller must still call
    /// [`Self::end`].
    pub(crate) fn take_asking(&mut self, purpose_key: PurposeKey) -> Option<Box<WorkloadRequest>> {
        if purpose_key == PurposeKey::PLAIN { None } else { self.0.get_mut(purpose_key.0 as usize)?.asking.take() }
    }

    /// Forgets the purpose of a request that has ended, or never began; which part of a session it was.
    pub(crate) fn end(&mut self, purpose_key: PurposeKey) -> Option<Part> {
        if purpose_key == PurposeKey::PLAIN { None } else { self.0.try_remove(purpose_key.0 as usize)?.part }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
