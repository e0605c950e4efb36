//! The path, its ends and the vantage points, checked with other programs.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_path {
    mod browser;
    mod learn;
    mod net;
    mod net_signals;
    mod packet_capture;
    mod page;
    mod profile_check;
    mod targets;
    mod targets_host;
    mod watch;
    mod watch_live;
}
