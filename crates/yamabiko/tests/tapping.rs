//! Programs under `yamabiko tap`, without privilege.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod tapping {
    mod agent;
    mod manager;
    mod tap;
    mod tap_others;
}
