//! Pages and exports with a real browser, real shells, real readers, and the testbed.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_results {
    mod exports;
    mod fleet;
    mod live;
    mod progress;
    mod shells;
    mod tutorial;
}
