//! Seconds merged into as many points as a screen can show.

use super::state::{Chart, ChartHead, Line, number};

/// Most points of a series, and columns of a heat map. A longer run has points of two seconds, then of four, and so on.
pub const POINTS_MAX: usize = 1000;

/// How the seconds of a point are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// The mean.
    Mean,
    /// The maximum.
    Max,
}

/// A line of a chart: style, merging of seconds, value of a row. Values that are not finite are omitted.
pub(super) struct LineSource<'a, R> {
    line: Line,
    fold: Fold,
    value: Box<dyn Fn(&R) -> f64 + 'a>,
}

impl<'a, R> LineSource<'a, R> {
    pub(super) fn new(name: &str, color: u8, fold: Fold, value: impl Fn(&R) -> f64 + 'a) -> Self {
        LineSource {
            line: Line { name: name.to_owned(), color, dash: false, fill: false },
            fold,
            value: Box::new(value),
        }
    }

    pub(super) fn dashed(mut self) -> Self {
        self.line.dash = true;
        self
    }

    pub(super) fn filled(mut self) -> Self {
        self.line.fill = true;
        self
    }
}

/// Rows of one vantage point, each with its second.
pub(super) struct Seconds<'a, R> {
    rows: Vec<(u32, &'a R)>,
}

impl<'a, R> Seconds<'a, R> {
    /// Rows in order of their seconds.
    pub(super) fn new(rows: impl Iterator<Item = (u32, &'a R)>) -> Self {
        Seconds { rows: rows.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn span(&self) -> Option<(u32, u32)> {
        let seconds = || self.rows.iter().map(|(second, _)| *second);
        Some((seconds().min()?, seconds().max()?))
    }

    /// The values of a line at `points` points of `width` seconds, from `first` on.
    fn values(&self, source: &LineSource<'_, R>, first: u32, width: u32, points: usize) -> Vec<Option<f64>> {
        let mut folded: Vec<(f64, u32)> = vec![(0.0, 0); points];
        for (second, row) in &self.rows {
            let Some(slot) = folded.get_mut(((second.saturating_sub(first)) / width) as usize) else { continue };
            let value = (source.value)(row);
            if !value.is_finite() {
                continue;
            }
            slot.0 = match source.fold {
                Fold::Mean => slot.0 + value,
                Fold::Max if slot.1 == 0 => value,
                Fold::Max => slot.0.max(value),
            };
            slot.1 += 1;
        }
        let mean = |(sum, count): (f64, u32)| match (count, source.fold) {
            (0, _) => None,
            (_, Fold::Max) => number(sum),
            (count, Fold::Mean) => number(sum / f64::from(count)),
        };
        folded.into_iter().map(mean).collect()
    }
}

/// The points of a page: intervals of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Points {
    first: u32,
    width: u32,
    count: usize,
}

impl Points {
    /// Points over all these seconds. The width is a power of two and points begin at its multiples, so that points do
    /// not move during the run.
    pub(super) fn over(spans: impl IntoIterator<Item = Option<(u32, u32)>>) -> Points {
        let (first, last) = spans
            .into_iter()
            .flatten()
            .reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
            .unwrap_or((0, 0));
        let mut width = 1;
        while (last / width - first / width) as usize >= POINTS_MAX {
            width *= 2;
        }
        let first = first / width * width;
        Points { first, width, count: ((last - first) / width + 1) as usize }
    }

    fn xs(&self) -> Vec<f64> {
        (0..self.count).map(|at| f64::from(self.first) + at as f64 * f64::from(self.width)).collect()
    }
}

/// A chart over time under construction, from several vantage points.
pub(super) struct OverTime {
    points: Points,
    chart: Chart,
}

impl OverTime {
    /// Points over the seconds of all vantage points.
    pub(super) fn points<A, B, C>(load: &Seconds<'_, A>, wire: &Seconds<'_, B>, server: &Seconds<'_, C>) -> Points {
        Points::over([load.span(), wire.span(), server.span()])
    }

    pub(super) fn new(points: Points, id: &str, title: &str, about: &str, quantity: &'static str) -> Self {
        let about = match points.width {
            1 => about.to_owned(),
            width => {
                format!("{about} Each point covers {width} seconds: mean of means, maximum of maxima.")
            }
        };
        let head = ChartHead { id: id.to_owned(), title: title.to_owned(), about, quantity, ..ChartHead::default() };
        OverTime { points, chart: Chart { head, xs: points.xs(), ys: Vec::new() } }
    }

    /// Seconds in a point.
    pub(super) fn width(&self) -> u32 {
        self.points.width
    }

    /// Adds a sentence to the description.
    pub(super) fn noted(mut self, note: &str) -> Self {
        self.chart.head.about.push(' ');
        self.chart.head.about.push_str(note);
        self
    }

    pub(super) fn log(mut self, log: bool) -> Self {
        self.chart.head.log = log;
        self
    }

    pub(super) fn wide(mut self) -> Self {
        self.chart.head.wide = true;
        self
    }

    pub(super) fn bands(mut self, bands: &[(f64, f64, &'static str)]) -> Self {
        self.chart.head.bands = bands.to_vec();
        self
    }

    /// Adds a line; nothing without rows.
    pub(super) fn line<R>(mut self, seconds: &Seconds<'_, R>, source: LineSource<'_, R>) -> Self {
        if !seconds.is_empty() {
            let Points { first, width, count } = self.points;
            self.chart.ys.push(seconds.values(&source, first, width, count));
            self.chart.head.series.push(source.line);
        }
        self
    }

    /// The chart; `None` without lines.
    pub(super) fn chart(self) -> Option<super::state::Piece> {
        (!self.chart.ys.is_empty()).then_some(super::state::Piece::Chart(self.chart))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_fit_the_limit_and_do_not_move() {
        let over = |first, last| Points::over([Some((first, last))]);
        assert_eq!(over(0, 999), Points { first: 0, width: 1, count: 1000 });
        assert_eq!(over(0, 1000), Points { first: 0, width: 2, count: 501 });
        assert_eq!(over(5, 3600), Points { first: 4, width: 4, count: 900 });
        assert_eq!(Points::over([None, None]), Points { first: 0, width: 1, count: 1 });
        for last in (0..100_000).step_by(777) {
            assert!(over(3, last.max(3)).count <= POINTS_MAX);
        }
    }

    #[test]
    fn seconds_are_merged_into_points_and_gaps_stay() {
        let rows: Vec<f64> = vec![1.0, 3.0, f64::NAN, 7.0, 9.0];
        let seconds = Seconds::new([0, 1, 2, 6, 7].into_iter().zip(&rows));
        let values = |fold| seconds.values(&LineSource::new("", 0, fold, |value: &f64| *value), 0, 2, 4);
        assert_eq!(values(Fold::Mean), [Some(2.0), None, None, Some(8.0)]);
        assert_eq!(values(Fold::Max), [Some(3.0), None, None, Some(9.0)]);
    }
}
