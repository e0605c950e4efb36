//! What the command says, takes and refuses, as those see it who type it; without privilege.
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
