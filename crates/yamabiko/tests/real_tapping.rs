//! Programs under `yamabiko tap`, as root.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_tapping {
    mod peers;
    mod tap;
    mod tap_clients;
    mod tap_passed;
    mod tap_users;
}
