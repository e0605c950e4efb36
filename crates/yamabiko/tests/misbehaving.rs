//! Loads on servers that misbehave, by protocol violations, delays and false reports.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod misbehaving {
    mod hostile;
    mod hostile_http2;
    mod hostile_self;
    mod lying;
}
