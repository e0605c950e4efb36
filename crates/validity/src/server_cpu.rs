//! Checks of other processes on the server's cores: how precisely its CPU time is known, and how far they may have
//! raised response times.

use schema::document::{Check, Document, Weight};
use schema::{OtherProcess, ServerCores};
use units::figures::{duration, duration_f64};

use super::draft::Draft;

/// Largest share of a request's CPU time that may belong to other processes: one run does not distinguish servers that
/// differ by less.
const ATTRIBUTABLE_SHARE: f64 = 0.10;
/// Allowed CPU time of an idle machine, for rare requests: timers and agents that wake up, with their interrupts.
/// Together they use up to 1 % of a core, or 2 ms per second of each of the server's cores if there are many.
const QUIET_CORES: f64 = 0.01;
const QUIET_SHARE: f64 = 0.002;

/// Both checks, for a server of the testbed.
pub fn checks(document: &Document) -> [Check; 2] {
    [attributable(document), undisturbed(document)]
}

fn attributable(document: &Document) -> Check {
    let check = Draft::new("server_cpu_attributable", Weight::Suspect, "us");
    let Some(server) = &document.server else { return check.not_applicable("the testbed did not start the server") };
    let (Some(each_us), Some(load)) = (server.cpu_us_per_request, &document.load) else {
        return check.not_applicable("no response, so there is no CPU time per request");
    };
    let Some(cores) = &server.cores else {
        return check.could_not_run("/proc/stat could not be read, so the use of the server's cores is unknown");
    };
    let quiet_s = cores.elapsed_s * QUIET_CORES.max(QUIET_SHARE * f64::from(cores.cores));
    let quiet_us = quiet_s * 1e6 / load.completed.max(1) as f64;
    let value_us = cores.not_attributable_s * 1e6 / load.completed.max(1) as f64;
    check.at_most(
        value_us,
        (ATTRIBUTABLE_SHARE * each_us).max(quiet_us),
        "CPU time of a request that may belong to other processes on the server's cores",
        &format!(
            "{} of the CPU time of a request may belong to other processes on the server's cores ({}{}): keep the cores free of other work, and \
             use the figure as an interval",
            duration_f64(value_us * 1e3),
            used_by(cores),
            stolen(cores)
        ),
    )
}

fn undisturbed(document: &Document) -> Check {
    let check = Draft::new("server_cores_undisturbed", Weight::Suspect, "ns");
    let Some(server) = &document.server else { return check.not_applicable("the testbed did not start the server") };
    let Some(cores) = &server.cores else {
        return check.could_not_run("/proc could not be read, so the use of the server's cores is unknown");
    };
    let Some(moved) = &cores.could_have_moved else {
        return check.not_applicable("there is no response time");
    };
    check.at_most(
        moved.by_ns,
        moved.limit_ns,
        &format!("upper bound of what other processes on the server's cores added to the response times ({})", moved.figure),
        &format!(
            "other processes on the server's cores delayed it by up to {}, at most {} at a time, which could have added {} to the {} of the response times ({}): {}; \
             keep the server's cores free of other work",
            duration_f64(cores.delayed_by_others_s * 1e9),
            duration(cores.delayed_longest_ns),
            duration_f64(moved.by_ns),
            moved.figure.replace('_', "."),
            duration_f64(moved.value_ns),
            used_by(cores)
        ),
    )
}

/// The processes that used the server's cores, by name where it is known.
fn used_by(cores: &ServerCores) -> String {
    let [least, most] = cores.other_processes_s;
    let all =
        format!("other processes used {:.1} % of a core", 100.0 * (least + most) / 2.0 / cores.elapsed_s.max(1e-9));
    let named: Vec<String> = cores.processes.iter().map(name).collect();
    if named.is_empty() { all } else { format!("{all}: {}", named.join(", ")) }
}

fn name(process: &OtherProcess) -> String {
    let whose = if process.ended_children { "ended children of " } else { "" };
    format!("{whose}{} (pid {}) {:.1} %", process.name, process.pid, 100.0 * process.share)
}

fn stolen(cores: &ServerCores) -> String {
    let share = cores.stolen_s / (cores.elapsed_s * f64::from(cores.cores)).max(1e-9);
    if share < 0.001 { String::new() } else { format!("; the hypervisor took {:.1} %", 100.0 * share) }
}
