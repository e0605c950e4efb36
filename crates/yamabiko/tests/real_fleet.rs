//! Tap daemons and manager as processes: every exchange is stored exactly once despite kills and network cuts; invalid
//! input from outside is refused; other programs can read the output.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "support/attackers.rs"]
#[allow(dead_code, reason = "the tests of `serve` use the rest")]
mod attackers;
#[path = "support/fleet.rs"]
#[allow(dead_code, reason = "the bench uses the rest")]
mod fleet;
mod support;

mod real_fleet {
    mod hostile;
    mod nats;
    mod once;
    mod readers;
    mod refusals;
    mod site;
    mod unauthenticated;
    mod watch;
}
