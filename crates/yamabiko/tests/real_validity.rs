//! What makes figures untrue is named, what cannot be is refused, and whatever happens nothing is left behind.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_validity {
    mod cores;
    mod doctor;
    mod kill;
    mod refusals;
    mod rootless;
    mod stalls;
    mod suspect_runs;
}
