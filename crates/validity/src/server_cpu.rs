//! Whether the server had its cores to itself: what its processor time is known to, and what others on its cores did to the response times.

use schema::document::{Check, Document, Weight};
use schema::{OtherProcess, ServerCores};

use super::draft::Draft;

/// Of the processor time of a request so much may be others' work: two servers that differ by less are not told apart by one run.
const ATTRIBUTABLE_SHARE: f64 = 0.10;
/// And where a request is rare, what an otherwise idle machine does by itself: timers and agents that wake, with the interrupts that they cause. They use
/// up to 1 % of a core together, or 2 ms a second of each of the server's cores where those are many.
const QUIET_CORES: f64 = 0.01;
const QUIET_SHARE: f64 = 0.002;

/// Both, of the server of the lab.
pub fn checks(document: &Document) -> [Check; 2] {
    [attributable(document), undisturbed(document)]
}

fn attributable(document: &Document) -> Check {
    let check = Draft::new("server_cpu_attributable", Weight::Suspect, "us");
    let Some(server) = &document.server else { return check.not_applicable("the server is not the lab's") };
    let (Some(each_us), Some(load)) = (server.cpu_us_per_request, &document.load) else {
        return check.not_applicable("no request was answered that processor time could be counted for");
    };
    let Some(cores) = &server.cores else {
        return check
            .could_not_run("/proc/stat could not be read, so whose the time of the server's cores was is not known");
    };
    let quiet_s = cores.elapsed_s * QUIET_CORES.max(QUIET_SHARE * f64::from(cores.cores));
    let quiet_us = quiet_s * 1e6 / load.completed.max(1) as f64;
    let value_us = cores.not_attributable_s * 1e6 / load.completed.max(1) as f64;
    check.at_most(
        value_us,
        (ATTRIBUTABLE_SHARE * each_us).max(quiet_us),
        "processor time of a request that may be others' work on the server's cores",
        &format!(
            "of the processor time of a request {} cannot be told apart from others' work on the server's cores ({}{}): keep them free of other work, and \
             take the figure as its interval",
            microseconds(value_us),
            used_by(cores),
            stolen(cores)
        ),
    )
}

fn undisturbed(document: &Document) -> Check {
    let check = Draft::new("server_cores_undisturbed", Weight::Suspect, "ns");
    let Some(server) = &document.server else { return check.not_applicable("the server is not the lab's") };
    let Some(cores) = &server.cores else {
        return check.could_not_run("/proc could not be read, so who else used the server's cores is not known");
    };
    let Some(moved) = &cores.could_have_moved else {
        return check.not_applicable("no response was timed that others could have delayed");
    };
    check.at_most(
        moved.by_ns,
        moved.limit_ns,
        &format!("what others on the server's cores could have added to the response times, at most ({})", moved.figure),
        &format!(
            "others on the server's cores kept it waiting for {} at most, {} at a stretch, which could have added {} to the {} of the response times ({}): {}; \
             keep the server's cores free of other work",
            milliseconds(cores.delayed_by_others_s * 1e9),
            milliseconds(cores.delayed_longest_ns as f64),
            milliseconds(moved.by_ns),
            moved.figure.replace('_', "."),
            milliseconds(moved.value_ns),
            used_by(cores)
        ),
    )
}

/// Who used them, by name where that is known.
fn used_by(cores: &ServerCores) -> String {
    let [least, most] = cores.other_processes_s;
    let all =
        format!("other processes had {:.1} % of a core", 100.0 * (least + most) / 2.0 / cores.elapsed_s.max(1e-9));
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

fn microseconds(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} us") } else { format!("{:.2} ms", us / 1e3) }
}

fn milliseconds(ns: f64) -> String {
    if ns < 1e6 { format!("{:.0} us", ns / 1e3) } else { format!("{:.1} ms", ns / 1e6) }
}
