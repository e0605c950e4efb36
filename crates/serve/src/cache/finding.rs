//! Outcome and reason of the result cache for a response; the log, the metrics and Cache-Status use the same words.

/// What the result cache did and its reason. Copied into logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Where the response comes from.
    pub(crate) outcome: Outcome,
    /// The reason.
    pub(crate) reason: Reason,
}

impl Finding {
    /// The cache was not involved: a file, a refusal, or a dynamic response without a cache.
    pub(crate) const NONE: Finding = Finding { outcome: Outcome::None, reason: Reason::None };

    /// A pair of outcome and reason.
    pub(crate) const fn new(outcome: Outcome, reason: Reason) -> Self {
        Finding { outcome, reason }
    }
}

/// What the result cache did for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Not involved.
    None,
    /// Served a fresh stored response.
    Hit,
    /// Served a stored response beyond its lifetime.
    Stale,
    /// Forwarded the request; the response may be stored.
    Miss,
    /// Validated a stored response, which is still current, and served it.
    Revalidated,
    /// Served the response to another client's request in flight.
    Collapsed,
    /// Forwarded the request; the response is for this client only.
    Bypass,
}

impl Outcome {
    /// All outcomes, in the order of [`Outcome::index`].
    pub const ALL: [Outcome; 7] = [
        Outcome::None,
        Outcome::Hit,
        Outcome::Stale,
        Outcome::Miss,
        Outcome::Revalidated,
        Outcome::Collapsed,
        Outcome::Bypass,
    ];

    /// Position in [`Outcome::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::None => "none",
            Outcome::Hit => "hit",
            Outcome::Stale => "stale",
            Outcome::Miss => "miss",
            Outcome::Revalidated => "revalidated",
            Outcome::Collapsed => "collapsed",
            Outcome::Bypass => "bypass",
        }
    }
}

/// Reason of an [`Outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The cache was not involved.
    None,
    /// Hit: within its lifetime.
    Fresh,
    /// Stale: the origin permits it while the response is validated (stale-while-revalidate).
    WhileRevalidating,
    /// Stale: the upstream failed, and the origin or the client permits it then (stale-if-error).
    UpstreamFailed,
    /// Stale: the client permits it (max-stale).
    ClientAllows,
    /// Miss: nothing is stored under this key.
    Absent,
    /// Miss: the stored responses are for other request fields (Vary).
    OtherVariant,
    /// Miss or revalidated: the stored response is beyond its lifetime.
    Expired,
    /// Miss or revalidated: the client requires it (no-cache, max-age, min-fresh).
    ClientDemands,
    /// Miss or revalidated: the origin requires it for every request (no-cache).
    OriginDemands,
    /// Collapsed: the same response was being fetched.
    UnderWay,
    /// Bypass: a method other than GET.
    Method,
    /// Bypass: a GET with a body.
    Body,
    /// Bypass: the client requests a range of a response that is not stored (Range).
    Range,
    /// Bypass: If-Match or If-Unmodified-Since.
    Precondition,
    /// Bypass: the client forbids storing (no-store).
    ClientForbids,
    /// Bypass: the client accepts only a stored response (only-if-cached), and there is none: 504.
    OnlyIfCached,
    /// Bypass: the request has credentials, and the origin does not permit sharing the response.
    Credentials,
    /// Bypass: the origin forbids storing (no-store).
    OriginForbids,
    /// Bypass: the response is for one client (private).
    Private,
    /// Bypass: the response sets a cookie and is not marked public.
    SetsCookie,
    /// Bypass: the response depends on more than request fields (Vary: *), or on too many.
    VaryAny,
    /// Bypass: the status is not cacheable here (206, 304, or unknown to this server).
    Status,
    /// Bypass: the origin gives neither a lifetime nor a validator.
    NoLifetime,
    /// Bypass: the response is larger than the limit of one stored response.
    TooLarge,
    /// Bypass: responses being sent to slow clients use all memory of the cache.
    NoRoom,
    /// Bypass: the upstream was not reachable or failed; the server made the response.
    UpstreamUnavailable,
}

impl Reason {
    /// All reasons, in the order of [`Reason::index`].
    pub const ALL: [Reason; 27] = [
        Reason::None,
        Reason::Fresh,
        Reason::WhileRevalidating,
        Reason::UpstreamFailed,
        Reason::ClientAllows,
        Reason::Absent,
        Reason::OtherVariant,
        Reason::Expired,
        Reason::ClientDemands,
        Reason::OriginDemands,
        Reason::UnderWay,
        Reason::Method,
        Reason::Body,
        Reason::Range,
        Reason::Precondition,
        Reason::ClientForbids,
        Reason::OnlyIfCached,
        Reason::Credentials,
        Reason::OriginForbids,
        Reason::Private,
        Reason::SetsCookie,
        Reason::VaryAny,
        Reason::Status,
        Reason::NoLifetime,
        Reason::TooLarge,
        Reason::NoRoom,
        Reason::UpstreamUnavailable,
    ];

    /// Position in [`Reason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in logs and metrics, with underscores.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::None => "none",
            Reason::Fresh => "fresh",
            Reason::WhileRevalidating => "while_revalidating",
            Reason::UpstreamFailed => "upstream_failed",
            Reason::ClientAllows => "client_allows",
            Reason::Absent => "absent",
            Reason::OtherVariant => "other_variant",
            Reason::Expired => "expired",
            Reason::ClientDemands => "client_demands",
            Reason::OriginDemands => "origin_demands",
            Reason::UnderWay => "under_way",
            Reason::Method => "method",
            Reason::Body => "body",
            Reason::Range => "range",
            Reason::Precondition => "precondition",
            Reason::ClientForbids => "client_forbids",
            Reason::OnlyIfCached => "only_if_cached",
            Reason::Credentials => "credentials",
            Reason::OriginForbids => "origin_forbids",
            Reason::Private => "private",
            Reason::SetsCookie => "sets_cookie",
            Reason::VaryAny => "vary_any",
            Reason::Status => "status",
            Reason::NoLifetime => "no_lifetime",
            Reason::TooLarge => "too_large",
            Reason::NoRoom => "no_room",
            Reason::UpstreamUnavailable => "upstream_unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn outcomes_and_reasons_are_in_index_order_with_unique_names() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), at);
        }
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), at);
        }
        assert_eq!(Reason::ALL.map(Reason::name).into_iter().collect::<HashSet<_>>().len(), Reason::ALL.len());
        assert_eq!(Outcome::ALL.map(Outcome::name).into_iter().collect::<HashSet<_>>().len(), Outcome::ALL.len());
    }
}
