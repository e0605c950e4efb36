//! CPU time of the machine's cores during a load, and of a service that the testbed did not start.

use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use sys::accounting::{CpuTimes, ProcessStat, cpu_times, tree_usage};
use testbed::Observer;
use testbed::drive::progress::{Phase, Snapshot};

/// Forwards everything to another observer, and reads at the first and last tick of the measured phase.
pub struct Gauge {
    inner: Box<dyn Observer>,
    pid: Option<i32>,
    first: Option<Reading>,
    last: Option<Reading>,
}

#[derive(Clone, Debug)]
struct Reading {
    at: Duration,
    cores: Vec<(usize, CpuTimes)>,
    used: Duration,
    completed: u64,
}

/// The readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    /// CPU time of the service and its children, in cores.
    pub processes: f64,
    /// Busy cores of the given ones, by any program.
    pub cores: f64,
    /// Requests completed per second meanwhile.
    pub rate_per_s: f64,
}

impl Gauge {
    /// With `pid`: of a service on this host.
    pub fn new(inner: Box<dyn Observer>, pid: Option<i32>) -> Self {
        Gauge { inner, pid, first: None, last: None }
    }

    /// Readings over the phase, of these cores (all, if empty); `None` of a phase with fewer than two ticks.
    pub fn read(&self, cores: &[usize]) -> Option<Read> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let elapsed_s = last.at.saturating_sub(first.at).as_secs_f64();
        if elapsed_s <= 0.0 {
            return None;
        }
        let of_ours = last.cores.iter().filter(|(core, _)| cores.is_empty() || cores.contains(core));
        let busy = of_ours.filter_map(|(core, times)| {
            let before = first.cores.iter().find(|(other, _)| other == core)?;
            Some(times.since(&before.1).busy().as_secs_f64())
        });
        Some(Read {
            processes: last.used.saturating_sub(first.used).as_secs_f64() / elapsed_s,
            cores: busy.sum::<f64>() / elapsed_s,
            rate_per_s: last.completed.saturating_sub(first.completed) as f64 / elapsed_s,
        })
    }
}

/// CPU time of a process and its descendants.
fn used(pid: i32) -> Duration {
    let Some(stat) = ProcessStat::read(pid) else { return Duration::ZERO };
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
    let below = tree_usage(pid);
    Duration::from_secs_f64((stat.own_ticks.0 + stat.own_ticks.1) as f64 / per_second) + below.user + below.system
}

impl Observer for Gauge {
    fn inner(&mut self) -> Option<&mut dyn Observer> {
        Some(&mut *self.inner)
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        if snapshot.phase == Phase::Measured {
            let reading = Reading {
                at: elapsed,
                cores: cpu_times().unwrap_or_default(),
                used: self.pid.map(used).unwrap_or_default(),
                completed: snapshot.completed,
            };
            self.first.get_or_insert_with(|| reading.clone());
            self.last = Some(reading);
        }
        self.inner.tick(elapsed, snapshot);
    }
}

#[cfg(test)]
mod tests {
    use testbed::NoObserver;

    use super::*;

    #[test]
    fn cpu_time_is_read_over_the_measured_phase_only() {
        let own = std::process::id() as i32;
        let mut gauge = Gauge::new(Box::new(NoObserver), Some(own));
        let mut snapshot = testbed::drive::progress::Progress::default().snapshot();
        gauge.tick(Duration::from_millis(100), &snapshot);
        assert_eq!(gauge.read(&[]), None);
        snapshot.phase = Phase::Measured;
        snapshot.completed = 10;
        gauge.tick(Duration::from_millis(300), &snapshot);
        assert_eq!(gauge.read(&[]), None, "a single tick has no distance");
        // Work that both counters see, whatever else runs on this machine.
        let before = used(own);
        while used(own) < before + Duration::from_millis(30) {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
        snapshot.completed = 110;
        gauge.tick(Duration::from_millis(500), &snapshot);
        let read = gauge.read(&[]).unwrap();
        assert!(read.processes >= 0.03 / 0.2 * 0.9 && read.cores > 0.0, "{read:?}");
        assert!((read.rate_per_s - 500.0).abs() < 1e-6);
        assert_eq!(gauge.read(&[usize::MAX]).unwrap().cores, 0.0);
    }
}
