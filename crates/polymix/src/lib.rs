//! The workload that virtual users and origin of a cache benchmark share: requests, objects, identities of responses,
//! and their verification.
//!
//! ```text
//!   CacheWorkload --> World  properties of every object: size, cacheable, versions, body  (both ends)
//!                 |--> Stream   the next request                                   (virtual users)
//!                 |--> Body     the bytes of a response                            (origin)
//!                 |--> Checker  checks one response, piece by piece                (virtual users)
//!                 '--> Verifier verifies all exchanges in order: hits, faults      (recorder)
//! ```
//!
//! Both ends exchange three short texts: the object's path ([`World::write_path`]), the request id
//! ([`REQUEST_ID_FIELD`]) and the identity of the response ([`IDENTITY_FIELD`], [`ResponseIdentity`]). All properties
//! of an object are a pure function of world, kind and number, so that neither end needs a table of objects.
//!
//! Read [`spec`] first, then [`world`]. Life cycles use Unix time in whole seconds, like dates in HTTP.

pub mod body;
pub mod check;
pub mod distribution;
pub mod origin_figures;
pub mod reply;
pub mod spec;
pub mod stream;
pub mod verifier;
pub mod world;

pub use body::{Body, BodyContent};
pub use check::{CheckedResponse, Checker, Content, ReadDirective};
pub use distribution::Distribution;
pub use origin_figures::*;
pub use reply::{IDENTITY_FIELD, REQUEST_ID_FIELD, ResponseIdentity};
pub use spec::{
    CacheWorkload, EmbedSpec, Expires, FormShares, KindSpec, LifeSpec, MethodShares, Popularity, Vary, WorkloadDigest,
    WorkloadPhase,
};
pub use stream::{DrawnRequest, Form, Stream};
pub use verifier::Verifier;
pub use world::{Object, RequestId, Variant, Version, World};
