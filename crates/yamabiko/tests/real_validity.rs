//! Validity: runs report what makes their figures wrong, impossible runs are refused, and no run leaves anything
//! behind.
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
