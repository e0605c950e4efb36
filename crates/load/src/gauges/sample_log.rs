//! The samples of a run's gauges, kept for another run's: the sampling times follow from seed and start, so only the
//! values are kept, each as its difference from the one before.

use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::{GaugeMerger, GaugeSample, Levels};

/// Samples in the order of their times. About 3 bytes each, 11 MB an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleLog {
    /// Three differences a sample, zigzag and LEB128.
    bytes: Vec<u8>,
    #[serde(skip)]
    last: GaugeSample,
}

/// The gauges of several machines, added sample by sample: at each sampling time the sum over the machines.
#[derive(Clone, Debug, Default)]
pub struct SummedSamples(Vec<GaugeSample>);

impl SampleLog {
    /// Appends a sample.
    pub fn push(&mut self, sample: GaugeSample) {
        for (value, before) in sample.values().into_iter().zip(self.last.values()) {
            put(&mut self.bytes, value.wrapping_sub(before).cast_signed());
        }
        self.last = sample;
    }

    /// The samples.
    ///
    /// # Errors
    /// The text for a person; the bytes do not end with a sample.
    pub fn samples(&self) -> Result<Vec<GaugeSample>, String> {
        let (mut rest, mut last, mut samples) = (&self.bytes[..], GaugeSample::default(), Vec::new());
        while !rest.is_empty() {
            let mut next = |before: u64| take(&mut rest).map(|difference| before.wrapping_add_signed(difference));
            let values = (next(last.in_flight), next(last.connections), next(last.backlog));
            let (Some(in_flight), Some(connections), Some(backlog)) = values else {
                return Err("the samples of the gauges are damaged".into());
            };
            last = GaugeSample { in_flight, connections, backlog };
            samples.push(last);
        }
        Ok(samples)
    }
}

impl GaugeSample {
    fn values(self) -> [u64; 3] {
        [self.in_flight, self.connections, self.backlog]
    }
}

impl SummedSamples {
    /// Adds a machine's samples. A machine that ended earlier counts as 0 from its last sample on.
    ///
    /// # Errors
    /// The text for a person; the log is damaged.
    pub fn add(&mut self, log: &SampleLog) -> Result<(), String> {
        let samples = log.samples()?;
        if self.0.len() < samples.len() {
            self.0.resize(samples.len(), GaugeSample::default());
        }
        for (sum, sample) in self.0.iter_mut().zip(samples) {
            sum.in_flight = sum.in_flight.saturating_add(sample.in_flight);
            sum.connections = sum.connections.saturating_add(sample.connections);
            sum.backlog = sum.backlog.saturating_add(sample.backlog);
        }
        Ok(())
    }

    /// The statistics of the sums, for samplers with this seed that began at `start`.
    pub fn levels(&self, seed: u64, start: Timestamp, (from, to): (Timestamp, Timestamp)) -> Levels {
        let mut merger = GaugeMerger::new(seed, start, from, 1);
        merger.set_measured_end(to);
        merger.add(0, &self.0);
        merger.finish()
    }
}

fn put(bytes: &mut Vec<u8>, difference: i64) {
    let mut rest = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn take(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample((in_flight, connections, backlog): (u64, u64, u64)) -> GaugeSample {
        GaugeSample { in_flight, connections, backlog }
    }

    proptest! {
        #[test]
        fn logged_samples_are_read_back(values in prop::collection::vec(any::<(u64, u64, u64)>(), 0..50)) {
            let mut log = SampleLog::default();
            values.iter().for_each(|&value| log.push(sample(value)));
            prop_assert_eq!(log.samples().unwrap(), values.into_iter().map(sample).collect::<Vec<_>>());
        }

        #[test]
        fn damaged_logs_are_refused_or_have_other_samples(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let log = SampleLog { bytes, last: GaugeSample::default() };
            if let Ok(samples) = log.samples() {
                prop_assert!(samples.len() * 3 <= log.bytes.len());
            }
        }
    }

    #[test]
    fn summed_samples_of_machines_equal_one_merger_of_their_shards() {
        let at = Timestamp::from_nanos;
        let (start, measured) = (at(50_000_000), (at(500_000_000), at(3_000_000_000)));
        let mut merger = GaugeMerger::new(7, start, measured.0, 2);
        merger.set_measured_end(measured.1);
        let mut sums = SummedSamples::default();
        // The second machine ends earlier.
        for (machine, length) in [(0, 4_000), (1, 2_500u64)] {
            let samples: Vec<GaugeSample> =
                (0..length).map(|at| sample((at % 17 + machine, at % 5, machine))).collect();
            let mut log = SampleLog::default();
            samples.iter().for_each(|&sample| log.push(sample));
            sums.add(&log).unwrap();
            merger.add(machine as usize, &samples);
            merger.end(machine as usize);
        }
        let (summed, merged) = (sums.levels(7, start, measured), merger.finish());
        assert_eq!((summed.in_flight, summed.connections), (merged.in_flight, merged.connections));
        assert_eq!((summed.samples, summed.seconds), (merged.samples, merged.seconds));
    }
}
