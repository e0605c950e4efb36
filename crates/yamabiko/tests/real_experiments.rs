//! Experiments of several runs, in the testbed.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_experiments {
    mod cache_hostile;
    mod cache_path;
    mod caches;
    mod capacity;
    mod gateway;
    mod gateway_faults;
    mod gateway_kill;
    mod gateway_lab;
    mod predict;
    mod reproduce;
    mod reproduce_emulators;
    mod reproduce_gateway;
    mod reproduce_http3;
    mod reproduce_servers;
    mod transparent;
}
