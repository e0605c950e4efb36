//! Programs under `yamabiko tap`, without privilege.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "support/fleet.rs"]
#[allow(dead_code, reason = "the tests of many agents use the rest")]
mod fleet;
mod support;

mod tapping {
    mod agent;
    mod fleet;
    mod manager;
    mod tap;
    mod tap_others;
}
