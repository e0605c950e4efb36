//! What shows a run as it goes and after, what becomes of runs in the book, and what leaves for other tools; without privilege.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod showing {
    mod export;
    mod live;
    mod runs_book;
    mod runs_carried;
    mod runs_shell;
    mod standing;
}
