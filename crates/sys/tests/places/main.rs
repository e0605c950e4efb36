//! The places half of `sys` against the real kernel: namespaces, devices, control groups, servers, SIGKILL.
//!
//! `cargo test -p sys --test places [FILTER]`. Each case is a process of its own (`--case NAME`), because a place is
//! started while its process has one thread. Cases need root: without it they fail and say so. The cases of `rootless`
//! give root away first.
#![allow(clippy::disallowed_methods, reason = "these tests wait for real processes")]

mod capture;
mod check;
mod control_groups;
mod network;
mod places;
mod rootless;
mod runner;
mod servers;
mod sigkill;

use runner::{Case, Identity};

fn main() {
    runner::main(CASES);
}

macro_rules! cases {
    ($($identity:ident: $room:ident: $($name:ident)+;)+) => {
        &[$($(Case {
            name: concat!(stringify!($room), "::", stringify!($name)),
            identity: Identity::$identity,
            run: $room::$name,
        },)+)+]
    };
}

const CASES: &[Case] = cases! {
    Root: places:
        ends_with_its_code ends_by_a_signal reports_a_failed_exec reports_a_failed_step refuses_other_threads
        has_its_own_processes has_its_own_hosts inherits_nothing_it_should_not gets_what_the_spec_says
        ends_its_pipe_when_it_ends outlives_its_launcher stops_within_its_grace survives_no_drop counts_its_usage
        notices_that_it_was_killed shares_a_network;
    Root: network:
        creating_moves_nobody run_passes_values_and_panics configures_a_device binds_any_address
        sets_tcp_of_a_route carries_packets tells_what_is_wrong steers_receive_processing counts_from_birth;
    Root: capture:
        sees_loopback_once keeps_what_was_asked_for sees_a_tun_without_link_header loses_what_finds_no_block
        says_what_is_wrong;
    Root: control_groups:
        holds_its_share holds_its_memory counts_the_dead is_removed sweeps_the_dead_only;
    Root: servers: nginx_in_front nginx_as_a_daemon apache_as_a_daemon;
    Ordinary: rootless:
        may_make_a_user_namespace keeps_its_identity opens_ports_and_ping serves_with_nginx serves_with_apache
        carries_packets has_no_control_group_and_says_so;
    Root: sigkill: leaves_nothing_of_root;
    Ordinary: sigkill: leaves_nothing_rootless;
};
