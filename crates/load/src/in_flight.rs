//! Requests in flight, and the sessions, redirects and pages that they belong to.

use schema::{Method, RequestRecord};
use slab::Slab;

use crate::Target;
use crate::virtual_users::WorkloadRequest;

/// A request that has been scheduled and has not ended.
#[derive(Clone, Debug)]
pub(crate) struct InFlightRequest {
    pub(crate) record: RequestRecord,
    /// What the request belongs to.
    pub(crate) purpose_key: PurposeKey,
    /// Whether the request is a retry, after the server closed its first connection.
    pub(crate) retried: bool,
}

/// Key of a request's [`Purpose`]: a session, a chain of redirects, both or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurposeKey(u32);

impl PurposeKey {
    /// The key of a request that belongs to nothing.
    pub(crate) const PLAIN: PurposeKey = PurposeKey(u32::MAX);
}

/// What a request belongs to.
#[derive(Debug, Default)]
pub(crate) struct Purpose {
    /// The part of a session's step.
    pub(crate) part: Option<Part>,
    /// The current hop of a chain of redirects.
    pub(crate) hop: Option<Box<Hop>>,
    /// The request of a cache workload.
    pub(crate) workload_request: Option<Box<WorkloadRequest>>,
}

/// A part of a session's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index of the active step.
    pub(crate) active_step: u32,
    /// 0 for the step's own request, k for its k-th embedded object.
    pub(crate) nth: u32,
}

/// A request after one or more redirects.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) target: Target,
    pub(crate) endpoint: u16,
    pub(crate) method: Method,
    /// Redirects followed, this one included.
    pub(crate) count: u8,
    /// Whether a redirect has changed the method to GET, so that the request has no body.
    pub(crate) drops_body: bool,
    /// Whether a redirect has led away from the original host and port, so that headers meant for them are not sent.
    pub(crate) left_original_host: bool,
}

/// A follow-up request, such as the next hop of a chain of redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowUp {
    pub(crate) url: u32,
    pub(crate) purpose_key: PurposeKey,
}

/// The purposes of all requests in flight that have one.
#[derive(Debug, Default)]
pub(crate) struct Purposes(Slab<Purpose>);

impl Purposes {
    /// Stores the purpose of a request.
    ///
    /// # Panics
    /// With 2^32 - 1 purposes.
    pub(crate) fn begin(&mut self, purpose: Purpose) -> PurposeKey {
        let place = u32::try_from(self.0.insert(purpose)).ok().filter(|&place| place != u32::MAX);
        PurposeKey(place.expect("fewer than 2^32 - 1 requests in flight"))
    }

    pub(crate) fn purpose(&self, purpose_key: PurposeKey) -> Option<&Purpose> {
        if purpose_key == PurposeKey::PLAIN { None } else { self.0.get(purpose_key.0 as usize) }
    }

    /// The current hop of a request after redirects.
    pub(crate) fn hop(&self, purpose_key: PurposeKey) -> Option<&Hop> {
        self.purpose(purpose_key)?.hop.as_deref()
    }

    /// Continues a chain of redirects with `hop`.
    pub(crate) fn set_hop(&mut self, purpose_key: PurposeKey, hop: Box<Hop>) -> PurposeKey {
        match self.0.get_mut(purpose_key.0 as usize) {
            Some(purpose) => {
                purpose.hop = Some(hop);
                purpose_key
            }
            None => self.begin(Purpose { hop: Some(hop), ..Purpose::default() }),
        }
    }

    /// The cache workload's part of a request.
    pub(crate) fn workload_request(&self, purpose_key: PurposeKey) -> Option<&WorkloadRequest> {
        self.purpose(purpose_key)?.workload_request.as_deref()
    }

    pub(crate) fn workload_request_mut(&mut self, purpose_key: PurposeKey) -> Option<&mut WorkloadRequest> {
        if purpose_key == PurposeKey::PLAIN {
            None
        } else {
            self.0.get_mut(purpose_key.0 as usize)?.workload_request.as_deref_mut()
        }
    }

    /// Takes the cache workload's part of a request that has ended or will not be scheduled. The caller must still call
    /// [`Self::end`].
    pub(crate) fn take_workload_request(&mut self, purpose_key: PurposeKey) -> Option<Box<WorkloadRequest>> {
        if purpose_key == PurposeKey::PLAIN {
            None
        } else {
            self.0.get_mut(purpose_key.0 as usize)?.workload_request.take()
        }
    }

    /// Removes the purpose of a request that has ended or will not be scheduled, and returns its part of a session.
    pub(crate) fn end(&mut self, purpose_key: PurposeKey) -> Option<Part> {
        if purpose_key == PurposeKey::PLAIN { None } else { self.0.try_remove(purpose_key.0 as usize)?.part }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
