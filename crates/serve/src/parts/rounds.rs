//! Repeats an operation and measures its cost.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use sys::clock::{monotonic_ns, thread_cpu_time};

use crate::spec::{ServeError, system};

/// One round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalRound {
    /// Number of operations.
    pub count: u64,
    /// CPU time of the thread, without excluded parts.
    pub cpu: Duration,
    /// Elapsed time, without excluded parts.
    pub elapsed: Duration,
    /// Blocks of 512 bytes read from a device.
    pub blocks_read: u64,
    /// Bytes to the server per operation, for handshakes.
    pub up_bytes: u64,
    /// Bytes from the server per operation.
    pub down_bytes: u64,
}

/// Number and length of rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repetitions {
    pub rounds: u32,
    /// CPU time of one round.
    pub each: Duration,
}

/// Operations between two readings of the clock at most: a reading costs some 200 ns, which must be negligible.
const BATCH_MAX: u64 = 64;

/// Repeats `operation`, first for half an uncounted round.
pub(super) fn rounds(
    repetitions: Repetitions,
    mut operation: impl FnMut() -> Result<(), ServeError>,
) -> Result<Vec<LocalRound>, ServeError> {
    let mut round = |each: Duration| {
        let (blocks, begun_ns, cpu) = (blocks_read()?, monotonic_ns(), thread_cpu_time());
        let (mut count, mut batch) = (0, 1);
        loop {
            for _ in 0..batch {
                operation()?;
            }
            count += batch;
            let used = thread_cpu_time().saturating_sub(cpu);
            // Large files must not be read 64 times before the clock is checked.
            if used < each / 8 && batch < BATCH_MAX {
                batch *= 2;
            }
            if used >= each {
                return Ok(LocalRound {
                    count,
                    cpu: used,
                    elapsed: Duration::from_nanos(monotonic_ns().saturating_sub(begun_ns)),
                    blocks_read: blocks_read()?.saturating_sub(blocks),
                    ..LocalRound::default()
                });
            }
        }
    };
    round(repetitions.each / 2)?;
    (0..repetitions.rounds).map(|_| round(repetitions.each)).collect()
}

/// Measures sections of an operation: between [`Meter::begin`] and [`Meter::end`]. Each pair reads two clocks twice,
/// and one reading falls into the section: [`Meter::new`] measures that overhead, which is subtracted.
#[derive(Debug)]
pub(super) struct Meter {
    own_cpu: Duration,
    own_elapsed: Duration,
    begun: (u64, Duration),
    cpu: Duration,
    elapsed: Duration,
    pairs: u32,
    pub count: u64,
}

impl Meter {
    pub fn new() -> Self {
        let zero = Duration::ZERO;
        let mut meter =
            Meter { own_cpu: zero, own_elapsed: zero, begun: (0, zero), cpu: zero, elapsed: zero, pairs: 0, count: 0 };
        const SELF_MEASUREMENTS: u32 = 2000;
        for _ in 0..SELF_MEASUREMENTS {
            meter.begin();
            meter.end();
        }
        (meter.own_cpu, meter.own_elapsed) = (meter.cpu / SELF_MEASUREMENTS, meter.elapsed / SELF_MEASUREMENTS);
        meter.reset();
        meter
    }

    pub fn begin(&mut self) {
        self.begun = (monotonic_ns(), thread_cpu_time());
    }

    pub fn end(&mut self) {
        let cpu = thread_cpu_time();
        self.cpu += cpu.saturating_sub(self.begun.1);
        self.elapsed += Duration::from_nanos(monotonic_ns().saturating_sub(self.begun.0));
        self.pairs += 1;
    }

    pub fn reset(&mut self) {
        (self.cpu, self.elapsed, self.pairs, self.count) = (Duration::ZERO, Duration::ZERO, 0, 0);
    }

    /// CPU time in the sections so far.
    pub fn cpu(&self) -> Duration {
        self.cpu.saturating_sub(self.own_cpu * self.pairs)
    }

    /// Measurements since the last reset.
    pub fn round(&self) -> LocalRound {
        LocalRound {
            count: self.count,
            cpu: self.cpu(),
            elapsed: self.elapsed.saturating_sub(self.own_elapsed * self.pairs),
            ..LocalRound::default()
        }
    }
}

/// Blocks read from devices by this process.
pub(super) fn blocks_read() -> Result<u64, ServeError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(system("getrusage"))?;
    Ok(u64::try_from(usage.block_reads()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_counted_and_costs_cpu_time() {
        let mut done = 0_u64;
        let repetitions = Repetitions { rounds: 3, each: Duration::from_millis(2) };
        let made = rounds(repetitions, || {
            done += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(made.len(), 3);
        // Operations before the first round are not counted.
        let counted: u64 = made.iter().map(|round| round.count).sum();
        assert!(counted < done && counted > 0, "{counted} {done}");
        assert!(made.iter().all(|round| round.cpu >= repetitions.each && round.count > 0), "{made:?}");
    }

    #[test]
    fn an_error_of_an_operation_ends_the_rounds() {
        let repetitions = Repetitions { rounds: 1, each: Duration::from_secs(3600) };
        assert!(rounds(repetitions, || Err(super::super::refused("no"))).is_err());
    }

    #[test]
    fn a_meter_measures_only_between_begin_and_end() {
        let mut meter = Meter::new();
        let spin = |least: Duration| {
            let from = thread_cpu_time();
            while thread_cpu_time().saturating_sub(from) < least {}
        };
        spin(Duration::from_millis(5));
        meter.begin();
        spin(Duration::from_millis(2));
        meter.end();
        meter.count += 1;
        spin(Duration::from_millis(5));
        let round = meter.round();
        assert_eq!(round.count, 1);
        assert!(round.cpu >= Duration::from_micros(1900) && round.cpu < Duration::from_millis(5), "{round:?}");
        meter.reset();
        assert_eq!(meter.round(), LocalRound::default());
    }
}
