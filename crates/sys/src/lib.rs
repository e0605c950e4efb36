//! System calls, each wrapped once, with a narrow type. All unsafe code of the project is here (and in `tap`).
//!
//! Two halves. Sandboxes: [`namespace`], [`sandbox`], [`netlink`], [`nft`], [`tun`], [`cgroup`] build the testbed and
//! remove it. The loop: [`clock`], [`epoll`], [`timer`], [`socket`], [`udp`], [`uring`], [`sched`], [`signal`] serve the data
//! path. [`accounting`] reads the kernel's counters, [`capture`] the packets at a device. [`probe`] tries what is
//! possible here, without leaving a change.
#![allow(clippy::disallowed_methods, reason = "this crate wraps clocks and waiting")]

pub mod accounting;
pub mod auxiliary;
pub mod capture;
pub mod cgroup;
pub mod clock;
pub mod collected;
pub mod cpu_speed;
pub mod datagrams;
pub mod epoll;
mod error;
pub mod file;
pub mod file_lock;
pub mod idle;
pub mod inherited;
pub mod limits;
pub mod namespace;
pub mod netlink;
pub mod nft;
mod owner;
pub mod packets;
pub mod probe;
pub mod process;
pub mod relay;
pub mod sandbox;
pub mod sched;
pub mod scratch;
pub mod signal;
pub mod socket;
pub mod timer;
pub mod tun;
pub mod udp;
pub mod uring;
pub mod worker;

pub use error::{Error, Result};
