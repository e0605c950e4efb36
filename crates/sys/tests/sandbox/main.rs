//! Sandboxes, namespaces, devices, control groups, servers and SIGKILL against the real kernel.
//!
//! `cargo test -p sys --test sandbox [FILTER]`. Each case is a separate process (`--case NAME`), because a sandbox is
//! started while its process has one thread. Cases need root: without it they fail with a message. The cases of
//! `rootless` drop root first.
#![allow(clippy::disallowed_methods, reason = "these tests wait for real processes")]

mod capture;
mod check;
mod control_groups;
mod lifecycle;
mod network;
mod rootless;
mod runner;
mod servers;
mod sigkill;

use runner::{Case, Identity};

fn main() {
    runner::main(CASES);
}

macro_rules! cases {
    ($($identity:ident: $module:ident: $($name:ident)+;)+) => {
        &[$($(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            identity: Identity::$identity,
            run: $module::$name,
        },)+)+]
    };
}

const CASES: &[Case] = cases! {
    Root: lifecycle:
        command_ends_with_its_exit_code command_ends_by_a_signal failed_exec_is_reported failed_setup_step_is_reported start_fails_with_several_threads
        sandbox_sees_only_its_own_processes sandbox_has_its_own_hosts_file command_inherits_no_descriptors_or_signal_settings command_gets_the_settings_of_its_spec
        output_pipe_ends_with_the_command daemon_survives_its_launcher stop_kills_after_the_grace_period dropped_sandbox_kills_its_processes usage_includes_running_and_ended_processes
        killed_init_is_reported sandbox_joins_an_existing_network;
    Root: network:
        creating_a_namespace_keeps_the_caller_in_its_own run_returns_values_and_panics device_is_configured sockets_bind_any_address_of_a_local_route
        route_sets_tcp_properties tun_carries_packets network_errors_name_the_cause receive_processing_is_steered tcp_counters_start_with_the_namespace;
    Root: capture:
        capture_sees_loopback_packets_once matching_packets_are_captured_truncated capture_of_a_tun_has_no_link_header capture_counts_packets_lost_without_a_free_block
        capture_errors_name_the_cause datagrams_that_travel_as_one_packet_are_described_and_divided;
    Root: control_groups:
        cpu_share_is_limited memory_is_limited usage_includes_dead_processes group_is_removed_on_drop sweep_removes_groups_of_dead_processes_only;
    Root: servers: nginx_in_front nginx_as_a_daemon apache_as_a_daemon;
    Ordinary: rootless:
        user_namespace_is_allowed command_keeps_its_real_identity low_ports_and_ping_are_allowed nginx_serves apache_serves
        tun_carries_packets missing_control_group_is_an_error;
    Root: sigkill: sigkill_of_root_leaves_nothing;
    Ordinary: sigkill: sigkill_of_rootless_leaves_nothing;
};
