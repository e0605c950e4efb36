//! `yamabiko serve` as a server among others: what it answers, logs, and how it ends.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;
#[path = "../../serve/src/tests/table.rs"]
mod table;

mod serving {
    mod serve_life;
    mod serve_log;
    mod serve_rfc;
}
