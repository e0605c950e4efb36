//! Live pages and progress, the run store, and exports to other tools; without privilege.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod results {
    mod export;
    mod live;
    mod merge;
    mod progress;
    mod run_store;
    mod runs_import;
    mod runs_shell;
}
