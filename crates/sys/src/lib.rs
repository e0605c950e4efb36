//! Every system call, wrapped once, with a narrow type. All unsafe code of the project lives here (and in `tap`).
//!
//! Two halves. Places: [`namespace`], [`place`], [`netlink`], [`nft`], [`tun`], [`cgroup`] build the lab and take it down.
//! The loop: [`clock`], [`epoll`], [`timer`], [`socket`], [`uring`], [`sched`], [`signal`] are what the data path runs on.
//! [`accounting`] reads what the kernel counted, [`capture`] the packets that pass a device. [`probe`] tries what could
//! be done here, and leaves nothing changed.
#![allow(clippy::disallowed_methods, reason = "this room is where clocks and waiting are wrapped")]

pub mod accounting;
pub mod beside;
pub mod capture;
pub mod cgroup;
pub mod clock;
pub mod collected;
pub mod datagrams;
pub mod epoll;
mod error;
pub mod file;
pub mod idle;
pub mod inherited;
pub mod limits;
pub mod namespace;
pub mod netlink;
pub mod nft;
pub mod pace;
pub mod packets;
pub mod place;
pub mod probe;
pub mod process;
pub mod relay;
pub mod sched;
pub mod scratch;
pub mod signal;
pub mod socket;
pub mod timer;
pub mod tun;
pub mod uring;
pub mod worker;

pub use error::{Error, Result};
