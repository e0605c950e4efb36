//! `yamabiko serve`: responses, log, and end.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;
#[path = "../../serve/src/tests/table.rs"]
mod table;

mod serving {
    mod serve_life;
    mod serve_log;
    mod serve_rfc;
}
