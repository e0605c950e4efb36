//! What the result cache did for an answer, and why: the same words in the log, the figures and Cache-Status.

/// What the result cache did and the one reason for it. Copied into logs and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whose answer it is.
    pub(crate) outcome: Outcome,
    /// Why.
    pub(crate) reason: Reason,
}

impl Finding {
    /// The cache was not asked: a file, a refusal, or a dynamic answer where no cache is.
    pub(crate) const NONE: Finding = Finding { outcome: Outcome::None, reason: Reason::None };

    /// A pair.
    pub(crate) const fn new(outcome: Outcome, reason: Reason) -> Self {
        Finding { outcome, reason }
    }
}

/// What the result cache did for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// It was not asked.
    None,
    /// A fresh stored answer was given.
    Hit,
    /// A stored answer was given although its time was over.
    Stale,
    /// The upstream was asked, and its answer may be stored.
    Miss,
    /// The upstream was asked whether a stored answer still holds; it does, and was given.
    Revalidated,
    /// The answer to another client's request, which was under way, was given.
    Collapsed,
    /// The upstream was asked, and its answer is for this client alone.
    Bypass,
}

impl Outcome {
    /// All of them, in the order of [`Outcome::index`].
    pub const ALL: [Outcome; 7] = [
        Outcome::None,
        Outcome::Hit,
        Outcome::Stale,
        Outcome::Miss,
        Outcome::Revalidated,
        Outcome::Collapsed,
        Outcome::Bypass,
    ];

    /// Its place in [`Outcome::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One word, as logs and figures have it.
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

/// Why an answer had its [`Outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// No reason to tell: the cache was not asked.
    None,
    /// Hit: within its lifetime.
    Fresh,
    /// Stale: the origin allows it while the answer is being validated (stale-while-revalidate).
    WhileRevalidating,
    /// Stale: the upstream failed, and the origin or the client allows it then (stale-if-error).
    UpstreamFailed,
    /// Stale: this client takes it (max-stale).
    ClientAllows,
    /// Miss: nothing is stored under this address.
    Absent,
    /// Miss: what is stored was selected by other request fields (Vary).
    OtherVariant,
    /// Miss or revalidated: the lifetime of what is stored is over.
    Expired,
    /// Miss or revalidated: the client demands it (no-cache, max-age, min-fresh).
    ClientDemands,
    /// Miss or revalidated: the origin demands it for every request (no-cache).
    OriginDemands,
    /// Collapsed: the same was being fetched.
    UnderWay,
    /// Bypass: a method other than GET.
    Method,
    /// Bypass: a GET with a body.
    Body,
    /// Bypass: the client asks for a part of what is not stored (Range).
    Range,
    /// Bypass: If-Match or If-Unmodified-Since.
    Precondition,
    /// Bypass: the client forbids storing (no-store).
    ClientForbids,
    /// Bypass: the client takes a stored answer only (only-if-cached), and there is none: 504.
    OnlyIfCached,
    /// Bypass: a request with credentials, and no word of the origin that its answer may be shared.
    Credentials,
    /// Bypass: the origin forbids storing (no-store).
    OriginForbids,
    /// Bypass: for one client (private).
    Private,
    /// Bypass: it sets a cookie and is not said to be public.
    SetsCookie,
    /// Bypass: selected by more than request fields (Vary: *), or by too many.
    VaryAny,
    /// Bypass: a status that is not stored (206, 304, or one this server does not understand).
    Status,
    /// Bypass: the origin gives no lifetime, and no validator that could stand in for it.
    NoLifetime,
    /// Bypass: larger than one stored answer may be.
    TooLarge,
    /// Bypass: answers on their way to slow clients take all the memory there is.
    NoRoom,
    /// Bypass: the upstream could not be asked, or failed; the answer is this server's own.
    UpstreamUnavailable,
}

impl Reason {
    /// All of them, in the order of [`Reason::index`].
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

    /// Its place in [`Reason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One word with underscores, as logs and figures have it.
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
    fn the_lists_are_in_order_and_names_are_different() {
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
