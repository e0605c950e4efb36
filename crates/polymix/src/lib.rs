//! The workload between the robots and the origin of a cache benchmark: what is asked for, what every object is, how a
//! reply says what it is, and what is wrong with it.
//!
//! ```text
//!   CacheWorkload --> World  facts of every object: size, cacheable, versions, body      (both ends, no table)
//!                 |--> Stream   the next ask                                        (robots)
//!                 |--> Body     the bytes of a reply                                (origin)
//!                 |--> Checker  one reply against the facts, piece by piece         (robots)
//!                 '--> Judge    all replies in their order: hits, what is wrong     (recorder)
//! ```
//!
//! The two ends share three short texts and nothing else: the object's path ([`World::write_path`]), the request's
//! [`ASK`] and the reply's [`STAMP`] ([`Stamp`]). All facts of an object are a pure function of world, kind and number, so
//! neither end keeps a table of objects.
//!
//! Read [`spec`] first, then [`world`]. Life cycles run on Unix time, since dates in HTTP do: both are in whole seconds.

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
pub use matter::{Body, Matter};
pub use origin_figures::*;
pub use reply::{ASK, STAMP, Stamp};
pub use spec::{
    CacheWorkload, EmbedSpec, Expires, FormShares, KindSpec, LifeSpec, MethodShares, Popularity, Vary, WorkloadDigest,
    WorkloadPhase,
};
pub use stream::{Ask, Form, Stream};
pub use world::{AskId, Object, Variant, Version, World};
