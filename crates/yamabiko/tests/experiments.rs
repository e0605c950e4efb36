//! Experiments and loads over the loopback, without privilege: no figure is checked.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "../../watch/tests/support/packets.rs"]
mod packets;
mod support;

mod experiments {
    mod ab;
    mod arrivals;
    mod cache_faults;
    mod cache_hostile;
    mod cache_output;
    mod cache_points;
    mod capacity_output;
    mod compare_output;
    mod disk;
    mod gateway_auth;
    mod gateway_output;
    mod http_versions;
    mod learn;
    mod predict_output;
    mod workload;
    mod workload_seed;
}
