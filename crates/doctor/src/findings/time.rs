//! Clock and timers.

use schema::doctor::{Area, Finding, Measured, State};

use super::{not_ok, ok};
use crate::facts::{Facts, Machine};
use plan::Wait;

const AREA: Area = Area::Time;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![clock_source(&facts.machine, facts.measured.as_ref())];
    if let Some(measured) = &facts.measured {
        found.push(waking(measured));
        found.extend(tun_write(measured));
        found.push(background_load(measured));
    }
    found
}

/// Judged by the measured cost, if there is one: some sources other than tsc are as cheap to read.
fn clock_source(machine: &Machine, measured: Option<&Measured>) -> Finding {
    const NAME: &str = "clock";
    let (current, available) = &machine.clock_source;
    let cost = measured.map(|measured| measured.clock_read_ns.p50);
    let cost_text = cost.map_or(String::new(), |ns| format!("; one reading takes {ns} ns"));
    let name = if current.is_empty() { "unknown" } else { current };
    let cheap = cost.map_or_else(|| VDSO_CLOCKS.iter().any(|source| name.starts_with(source)), |ns| ns <= READ_NS_MAX);
    if cheap {
        return ok(AREA, NAME, format!("source {name}{cost_text}"));
    }
    let fix = if available.iter().any(|source| source == "tsc") && name != "tsc" {
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if the machine's tsc is stable"
    } else {
        "a machine whose clock is read without a system call (tsc)"
    };
    let found = format!("source {name}{cost_text}");
    not_ok(State::Note, AREA, NAME, found, &["requests/s of one core", "timing error"], Some(fix.into()))
}

fn waking(measured: &Measured) -> Finding {
    let hybrid = || measured.wake_up.iter().filter(|wake_up| wake_up.wait == Wait::Hybrid.name());
    let worst = hybrid().map(|wake_up| wake_up.late_ns.p99).max().unwrap_or(0);
    let median = hybrid().map(|wake_up| wake_up.late_ns.p50).max().unwrap_or(0);
    let micros = |ns: u64| ns as f64 / 1e3;
    let found = format!(
        "up to {} us late at the median, {} us at p99, waiting as the load generator does: {}",
        short(micros(median)),
        short(micros(worst)),
        measured.scheduling
    );
    if worst > LATE_NS_MAX {
        let touches =
            ["path_on_time, generator_on_time: timing errors may raise response times under 100 ms by more than 1 %"];
        let fix = "a quieter machine, root for the real-time class, or --wait spin on a spare core";
        return not_ok(State::Note, AREA, "timers", found, &touches, Some(fix.into()));
    }
    ok(AREA, "timers", found)
}

fn tun_write(measured: &Measured) -> Option<Finding> {
    let writes = measured.tun_write_ns.as_ref()?;
    let micros = |ns: u64| short(ns as f64 / 1e3);
    Some(ok(
        AREA,
        "tun write",
        format!(
            "{} us at the median, {} us at p99, for a small UDP packet, up to the receiving socket",
            micros(writes.p50),
            micros(writes.p99)
        ),
    ))
}

/// CPU time of other programs during the timer measurement, which itself sleeps most of the time.
fn background_load(measured: &Measured) -> Finding {
    let percent = |share: f64| 100.0 * share;
    let found = format!(
        "{:.0} % of all cores used, {:.1} % stolen, during the measurement",
        percent(measured.busy_share),
        percent(measured.steal_share)
    );
    if measured.busy_share > BUSY_MAX || measured.steal_share > STEAL_MAX {
        let touches = ["all figures of a run made now"];
        return not_ok(
            State::Note,
            AREA,
            "background CPU load",
            found,
            &touches,
            Some("stop other programs during runs".into()),
        );
    }
    ok(AREA, "background CPU load", found)
}

/// At most three digits: 0.21, 3.4, 81, 1830.
fn short(micros: f64) -> String {
    match micros {
        v if v < 1.0 => format!("{v:.2}"),
        v if v < 10.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Clock sources that the vDSO reads without a system call.
const VDSO_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource", "arch_sys_counter"];
/// A vDSO read takes 20 to 60 ns; a system call or a hardware read takes several times that.
const READ_NS_MAX: u64 = 200;
/// The material error of a response time of 100 ms.
const LATE_NS_MAX: u64 = 1_000_000;
/// The measurement sleeps most of the time, so other programs cause nearly all of this load.
const BUSY_MAX: f64 = 0.25;
/// The validity checks limit a run to 0.1.
const STEAL_MAX: f64 = 0.02;
