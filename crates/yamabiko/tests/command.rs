//! Arguments, output and error messages of the command; without privilege.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "../../watch/tests/support/packets.rs"]
mod packets;
mod support;

mod command {
    mod cli;
    mod doctor;
    mod explain;
    mod output;
    mod page;
    mod tunnel;
    mod watch_captures;
    mod watch_file;
    mod watch_remote;
}
