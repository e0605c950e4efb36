//! Agents and manager of taps, as processes: every exchange once and in its place whatever is killed or cut; what comes from
//! outside and must not come in; and what programs that are not ours make of it.
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
    mod once;
    mod readers;
    mod refusals;
    mod site;
    mod strangers;
}
