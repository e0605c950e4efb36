//! The error of this machine's wall clock, as the program that synchronises it knows it.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use schema::document::WallClock;
use sys::clock::Deadline;

/// Longest wait for chronyc, which asks a program of this machine.
const CHRONYC_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Most bytes of chronyc's output; it has about 600.
const OUTPUT_MAX: u64 = 16 << 10;

/// The wall clock and its error: by chrony where it runs, otherwise by the kernel.
pub(crate) fn read() -> WallClock {
    let boot_id = sys::clock::boot_id().unwrap_or_default();
    if let Some((offset_ns, bound_ns)) = chronyc().as_deref().and_then(tracking) {
        let (offset_ns, bound_ns) = (Some(offset_ns), Some(bound_ns));
        return WallClock { boot_id, source: Some("chrony".into()), offset_ns, bound_ns };
    }
    let bound_ns = sys::clock::wall_clock_error().map(units::time::saturating_nanos);
    WallClock { boot_id, source: bound_ns.map(|_| "kernel".into()), offset_ns: None, bound_ns }
}

/// Output of `chronyc tracking`; `None` without chrony.
fn chronyc() -> Option<String> {
    let mut command = Command::new("chronyc");
    command.args(["-n", "tracking"]).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let deadline = Deadline::after(CHRONYC_TIMEOUT);
    while child.try_wait().ok()?.is_none() {
        if deadline.has_passed() {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let mut text = String::new();
    child.stdout.take()?.take(OUTPUT_MAX).read_to_string(&mut text).ok()?;
    child.wait().ok()?.success().then_some(text)
}

/// Offset and bound, in nanoseconds, from the output of `chronyc tracking`. The bound is that of its manual: offset +
/// root dispersion + half of the root delay. `None` if the clock is not synchronised.
fn tracking(text: &str) -> Option<(i64, u64)> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start().strip_prefix(':').map(str::trim)
    };
    let seconds = |text: &str| {
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        seconds.is_finite().then_some(seconds)
    };
    if value("Leap status")? == "Not synchronised" {
        return None;
    }
    let system = value("System time")?;
    let magnitude = seconds(system)?.abs();
    let offset = if system.contains("slow") { -magnitude } else { magnitude };
    let bound = magnitude + seconds(value("Root dispersion")?)?.abs() + seconds(value("Root delay")?)?.abs() / 2.0;
    Some(((offset * 1e9).round() as i64, (bound * 1e9).ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACKING: &str = "\
Reference ID    : CB00710F (203.0.113.15)
Stratum         : 3
Ref time (UTC)  : Fri Jan 27 09:49:17 2017
System time     : 0.000006523 seconds slow of NTP time
Last offset     : -0.000006747 seconds
RMS offset      : 0.000035822 seconds
Frequency       : 3.225 ppm slow
Residual freq   : -0.000 ppm
Skew            : 0.129 ppm
Root delay      : 0.013639022 seconds
Root dispersion : 0.001100737 seconds
Update interval : 64.2 seconds
Leap status     : Normal
";

    #[test]
    fn chrony_reports_offset_and_bound() {
        // 6,523 + 1,100,737 + 13,639,022 / 2, rounded up.
        let near = |read: Option<(i64, u64)>, offset: i64| {
            read.is_some_and(|(own, bound)| own == offset && (7_926_771..=7_926_772).contains(&bound))
        };
        assert!(near(tracking(TRACKING), -6_523), "{:?}", tracking(TRACKING));
        assert!(near(tracking(&TRACKING.replace("slow of", "fast of")), 6_523));
        assert_eq!(tracking(&TRACKING.replace("Normal", "Not synchronised")), None);
        assert_eq!(tracking(&TRACKING.replace("0.013639022", "nan")), None);
        assert_eq!(tracking(""), None);
        assert_eq!(tracking(&TRACKING.replace("Root delay", "Root")), None);
    }

    #[test]
    fn a_clock_without_a_measured_error_has_none() {
        let clock = read();
        assert_eq!(clock.source.is_some(), clock.bound_ns.is_some());
        assert!(clock.offset_ns.is_none() || clock.source.as_deref() == Some("chrony"));
        assert_eq!(clock.boot_id.len(), 36);
    }
}
