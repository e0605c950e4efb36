//! The workload that virtual users and origin of a cache benchmark share: requests, objects, identities of responses, and
//! their verification.
//!
//! ```text
//!   CacheWorkload --> World  properties of every object: size, cacheable, versions, body  (both ends)
//!                 |--> Stream   the next request                                   (virtual users)
//!                 |--> Body     the bytes of a response                            (origin)
//!                 |--> Checker  checks one response, piece by piece                (virtual users)
//!                 '--> Judge    verifies all exchanges in order: hits, faults      (recorder)
//! ```
//!
//! Both ends exchange three short texts: the object's path ([`World::write_path`]), the request id ([`ASK`]) and the identity
//! of the response ([`STAMP`], [`Stamp`]). All properties of an object are a pure function of world, kind and number, so that
//! neither end needs a table of objects.
//!
//! Read [`spec`] first, then [`world`]. Life cycles use Unix time in whole seconds, like dates in HTTP.

pub mod check;
pub mod judge;
pub mod law;
pub mod matter;
pub mod origin_figures;
pub mod reply;
pub mod spec;
pub mod stream;
pub mod world;

pub use check::{Checker, Content, Go, Seen};
pub use judge::Judge;
pub use law::Law;
pub use matter::{Body, BodyContent};
pub use origin_figures::*;
pub use reply::{ASK, STAMP, Stamp};
pub use spec::{
    CacheWorkload, EmbedSpec, Expires, FormShares, KindSpec, LifeSpec, MethodShares, Popularity, Vary, WorkloadDigest,
    WorkloadPhase,
};
pub use stream::{Ask, Form, Stream};
pub use world::{Object, RequestId, Variant, Version, World};
