//! Rows: the median of each figure over the rounds, by point and emulator.

use std::collections::BTreeMap;

use schema::ReproductionRow;
use stats::median;

use super::peer::{Emulator, NotRun};
use super::points::{CPU_A_PACKET, CPU_OVER_LOOPBACK, Figure, Point};
use crate::figures::{find, row, with_published};

/// The figures of one measurement.
pub type Figures = Vec<Figure>;

/// All rounds of one emulator at one point.
#[derive(Debug, Default)]
pub struct PointRounds {
    /// Figures of each round that had any.
    pub rounds: Vec<Figures>,
    /// Rounds without figures.
    pub failed: usize,
    /// Why the last round without figures had none.
    pub not_run: Option<NotRun>,
}

impl PointRounds {
    /// Adds a round.
    pub fn push(&mut self, outcome: Result<Figures, NotRun>) {
        match outcome {
            Ok(figures) => self.rounds.push(figures),
            Err(not_run) => {
                self.failed += 1;
                self.not_run = Some(not_run);
            }
        }
    }
}

/// Rows of all points measured so far.
pub fn rows(points: &[Point], all: &BTreeMap<(usize, Emulator), PointRounds>) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    for (at, point) in points.iter().enumerate() {
        for emulator in Emulator::ALL {
            if let Some(rounds) = all.get(&(at, emulator)) {
                of_one(point.name.as_str(), point.main, emulator, rounds, &mut rows);
            }
        }
        over_loopback(&point.name, &mut rows);
    }
    rows
}

fn of_one(
    name: &str,
    (quantity, unit): (&str, &str),
    emulator: Emulator,
    rounds: &PointRounds,
    rows: &mut Vec<ReproductionRow>,
) {
    if rounds.rounds.is_empty() {
        if let Some(not_run) = &rounds.not_run {
            let empty = row(name, emulator.name(), quantity, unit, f64::NAN);
            rows.push(with_published(empty, None, &not_run.note()));
        }
        return;
    }
    let Some(first) = rounds.rounds.first() else { return };
    for &(quantity, unit, _) in first {
        let values: Vec<f64> = rounds
            .rounds
            .iter()
            .flat_map(|figures| figures.iter().filter(|(name, ..)| *name == quantity).map(|&(.., value)| value))
            .filter(|value| value.is_finite())
            .collect();
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let mut note = if values.is_empty() {
            "no figure".to_owned()
        } else {
            format!("{} to {}, {} rounds", crate::level(low), crate::level(high), values.len())
        };
        if let (1.., Some(not_run)) = (rounds.failed, &rounds.not_run) {
            note.push_str(&format!("; {} more {}", rounds.failed, not_run.note()));
        }
        rows.push(with_published(row(name, emulator.name(), quantity, unit, median(values)), None, &note));
    }
}

/// CPU of an emulator: that of the machine less what probes and loopback take.
fn over_loopback(name: &str, rows: &mut Vec<ReproductionRow>) {
    let Some(loopback) = find(rows, name, Emulator::Direct.name(), CPU_A_PACKET) else { return };
    for emulator in Emulator::ALL.into_iter().filter(|&one| one != Emulator::Direct) {
        if let Some(cpu) = find(rows, name, emulator.name(), CPU_A_PACKET) {
            rows.push(row(name, emulator.name(), CPU_OVER_LOOPBACK, "us", cpu - loopback));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_median_range_and_failures() {
        let mut rounds = PointRounds::default();
        for value in [3.0, 1.0, 2.0] {
            rounds.push(Ok(vec![("rate error", "%", value)]));
        }
        rounds.push(Err(NotRun::Failed("no answer".into())));
        let mut rows = Vec::new();
        of_one("rate 1 Mbit/s", ("rate error", "%"), Emulator::Rattan, &rounds, &mut rows);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].measured, rows[0].setting.as_str()), (Some(2.0), "rattan"));
        assert_eq!(rows[0].note, "1.00 to 3.00, 3 rounds; 1 more failed: no answer");
    }

    #[test]
    fn missing_peer_has_a_row_without_a_figure() {
        let mut rounds = PointRounds::default();
        rounds.push(Err(NotRun::NotFound));
        let mut rows = Vec::new();
        of_one("rate 1 Mbit/s", ("rate error", "%"), Emulator::Mahimahi, &rounds, &mut rows);
        assert_eq!((rows[0].measured, rows[0].note.as_str()), (None, "not run: not found"));
    }

    #[test]
    fn cpu_over_loopback_needs_loopback() {
        let figure = |setting: &str, value| row("RTT", setting, CPU_A_PACKET, "us", value);
        let mut rows = vec![figure("yamabiko", 9.0), figure("rattan", 20.0)];
        over_loopback("RTT", &mut rows);
        assert_eq!(rows.len(), 2);
        rows.push(figure("loopback", 5.0));
        over_loopback("RTT", &mut rows);
        assert_eq!(find(&rows, "RTT", "rattan", CPU_OVER_LOOPBACK), Some(15.0));
        assert_eq!(rows.len(), 5);
    }
}
