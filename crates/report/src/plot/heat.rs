//! Heat map: distribution of durations over time.
//!
//! ```text
//!   rows of (second, from, to, count) ─> columns of whole seconds, rows of equal ratio ─> shades ─> one path a shade
//! ```
//!
//! For any length of the run and any width of its buckets there are at most [`COLUMNS`] columns and [`ROWS`] rows.

use std::collections::BTreeMap;

use super::chart::{Axis, Band};
use super::draw::{BELOW, EDGE, GAP, HALF_LINE, LABEL, RIGHT, TITLE};
use super::legend::{self, Entry};
use super::scale::Ruler;
use super::svg::{Anchor, Svg, text_width};
use super::{Quantity, Width};
use crate::figures;

/// Durations counted by second and by bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Name of the durations: `response time`.
    pub label: String,
    /// The counts.
    pub cells: Vec<HeatCell>,
    /// Shaded times.
    pub bands: Vec<Band>,
}

/// Count of values in `[from_ns, to_ns)` in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeatCell {
    /// Seconds since the run's zero, a whole number.
    pub second: u32,
    /// Lower bound in nanoseconds, inclusive.
    pub from_ns: u64,
    /// Upper bound in nanoseconds, exclusive.
    pub to_ns: u64,
    /// The count.
    pub count: u64,
}

impl Heat {
    /// A heat map of durations, such as response times.
    pub fn new(title: impl Into<String>, label: impl Into<String>, cells: Vec<HeatCell>) -> Self {
        Heat { title: title.into(), about: String::new(), label: label.into(), cells, bands: Vec::new() }
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        !self.cells.iter().any(|cell| cell.count > 0)
    }
}

/// The drawn cells, limited in number and of one size.
struct Grid {
    /// First second, and seconds per column.
    first: u32,
    step: u32,
    columns: u32,
    /// Rows per doubling.
    rows_a_doubling: f64,
    /// Values per second by column and row.
    counts: BTreeMap<(u32, i32), f64>,
}

impl Grid {
    fn of(cells: &[HeatCell], columns_max: u32) -> Option<Grid> {
        let counted = || cells.iter().filter(|cell| cell.count > 0);
        let (first, last) = (counted().map(|cell| cell.second).min()?, counted().map(|cell| cell.second).max()?);
        let step = (last - first).saturating_add(1).div_ceil(columns_max).max(1);
        let ends = counted().map(ends).fold([f64::MAX, 0.0_f64], |[l, h], [low, high]| [l.min(low), h.max(high)]);
        let fits = |finer: &&f64| (ends[1] / ends[0]).log2() * **finer <= f64::from(ROWS);
        let rows_a_doubling = *[8.0, 4.0, 2.0].iter().find(fits).unwrap_or(&1.0);
        let mut counts = BTreeMap::new();
        for cell in counted() {
            let column = (cell.second - first) / step;
            let mean = cell.count as f64 / f64::from(step);
            for (row, part) in shares(ends_in_rows(cell, rows_a_doubling)) {
                *counts.entry((column, row)).or_insert(0.0) += mean * part;
            }
        }
        Some(Grid { first, step, columns: (last - first) / step + 1, rows_a_doubling, counts })
    }

    /// Range of a column in seconds.
    fn across(&self, column: u32) -> [f64; 2] {
        let at = |column: u32| f64::from(self.first) + f64::from(column) * f64::from(self.step);
        [at(column), at(column + 1)]
    }

    /// Range of a row in nanoseconds.
    fn up(&self, row: i32) -> [f64; 2] {
        [row, row + 1].map(|edge| (f64::from(edge) / self.rows_a_doubling).exp2())
    }
}

/// Draws it.
pub(super) fn heat(heat: &Heat, width: Width, standalone: bool) -> String {
    let (across, plot_height) = width.size();
    let columns_max = if width == Width::Narrow { COLUMNS / 2 } else { COLUMNS };
    let grid = Grid::of(&heat.cells, columns_max);
    let most = grid.iter().flat_map(|grid| grid.counts.values()).fold(0.0_f64, |most, &count| most.max(count));
    let least = grid.iter().flat_map(|grid| grid.counts.values()).fold(most, |least, &count| least.min(count));
    let scale = Shades::between(least, most);
    let shades = scale.named();
    let entries: Vec<Entry<'_>> =
        shades.iter().map(|(shade, name)| Entry { name, class: format!("heat f0 h{shade}"), filled: true }).collect();
    let title = if standalone { TITLE } else { 0.0 };
    let names = legend::lines(&entries, across - 2.0 * EDGE) as f64 * legend::LINE;
    let top = title + names + HALF_LINE + LABEL;
    let height = title + names + plot_height;
    let bottom = height - BELOW;

    let ends = grid.iter().flat_map(|grid| grid.counts.keys().flat_map(move |&(_, row)| grid.up(row)));
    let y = Ruler::new(&Axis::log("", Quantity::Nanoseconds), ends, bottom, top, 5);
    let widest = y.ticks.iter().map(|(_, label)| text_width(label)).fold(0.0, f64::max);
    let (left, right) = ((widest + GAP).clamp(28.0, across / 2.0), across - RIGHT);
    let seconds = grid.iter().flat_map(|grid| [grid.across(0)[0], grid.across(grid.columns - 1)[1]]);
    let x = Ruler::new(&Axis::new("", Quantity::Seconds), seconds, left, right, ((right - left) / 72.0) as usize);

    let mut svg = Svg::new(across, height, &heat.title, &description(heat, &grid, most), standalone);
    if standalone {
        svg.text("title", [EDGE, TITLE - 10.0], Anchor::Start, &legend::fitting(&heat.title, across * 0.75));
    }
    legend::draw(&mut svg, &entries, EDGE, title, across - 2.0 * EDGE);
    svg.text("label", [EDGE, top - HALF_LINE - 3.0], Anchor::Start, &legend::fitting(&heat.label, across - EDGE));
    super::draw::bands(&mut svg, &heat.bands, &x, top, bottom);
    for (at, label) in &y.ticks {
        let Some(place) = y.position(*at) else { continue };
        svg.line("grid", [left, place], [right, place]);
        svg.text("tick", [left - GAP, place + 4.0], Anchor::End, label);
    }
    if let Some(grid) = &grid {
        cells(&mut svg, grid, &scale, &x, &y);
    } else {
        svg.text("nothing", [(left + right) / 2.0, (top + bottom) / 2.0], Anchor::Middle, "no values");
    }
    super::draw::x_marks(&mut svg, &x, bottom, across);
    svg.line("axis", [left, bottom], [right, bottom]);
    svg.text("label", [(left + right) / 2.0, height - 5.0], Anchor::Middle, "time (s)");
    svg.into_text()
}

/// One path for each shade; adjacent cells of a column with one shade are one rectangle.
fn cells(svg: &mut Svg, grid: &Grid, scale: &Shades, x: &Ruler, y: &Ruler) {
    let mut by_shade: Vec<Vec<[f64; 4]>> = vec![Vec::new(); SHADES];
    let mut open: Option<(u32, i32, i32, usize)> = None;
    let mut close = |(column, low, high, shade): (u32, i32, i32, usize)| {
        let [from, to] = grid.across(column).map(|second| x.position(second));
        let [bottom, top] = [grid.up(low)[0], grid.up(high)[1]].map(|nanos| y.position(nanos));
        if let (Some(from), Some(to), Some(bottom), Some(top)) = (from, to, bottom, top) {
            by_shade[shade].push([from, top, to - from, bottom - top]);
        }
    };
    // Cells are in the order of columns, and from bottom to top in a column.
    for (&(column, row), &count) in &grid.counts {
        let shade = scale.of(count);
        match &mut open {
            Some((of, _, high, same)) if *of == column && *high + 1 == row && *same == shade => *high = row,
            other => {
                if let Some(done) = other.replace((column, row, row, shade)) {
                    close(done);
                }
            }
        }
    }
    if let Some(done) = open {
        close(done);
    }
    for (shade, blocks) in by_shade.iter().enumerate() {
        svg.blocks(&format!("heat f0 h{shade}"), blocks);
    }
}

/// Shade of a cell by the logarithm of its count, so that one slow request among thousands is visible.
struct Shades {
    least: f64,
    most: f64,
}

impl Shades {
    /// Smallest and largest count of a cell, at most five powers of ten apart.
    fn between(least: f64, most: f64) -> Self {
        Shades { least: least.max(most * 1e-5), most }
    }

    /// From 0, the lightest.
    fn of(&self, count: f64) -> usize {
        let part = (count / self.least).ln() / (self.most / self.least).ln();
        // With equal counts every cell has the darkest shade.
        if part.is_nan() { SHADES - 1 } else { ((part * SHADES as f64).floor().max(0.0) as usize).min(SHADES - 1) }
    }

    /// Shades of the legend with their smallest count per second, the lightest first.
    fn named(&self) -> Vec<(usize, String)> {
        if self.most <= 0.0 {
            return Vec::new();
        }
        let begins = |shade: usize| self.least * (self.most / self.least).powf(shade as f64 / SHADES as f64);
        let shades = [0, SHADES / 3, 2 * SHADES / 3, SHADES - 1];
        shades.map(|shade| (shade, format!("from {}", figures::rate(begins(shade))))).to_vec()
    }
}

fn description(heat: &Heat, grid: &Option<Grid>, most: f64) -> String {
    let counted: u64 = heat.cells.iter().fold(0, |sum, cell| sum.saturating_add(cell.count));
    let column = grid.as_ref().map_or(1, |grid| grid.step);
    let values = format!(
        "{} values; a column is {column} s; the densest cell has {}.",
        figures::count(counted),
        figures::rate(most)
    );
    if heat.about.is_empty() { values } else { format!("{} {values}", heat.about) }
}

/// Edges of a bucket in nanoseconds, at least one microsecond.
fn ends(cell: &HeatCell) -> [f64; 2] {
    let from = cell.from_ns.clamp(LEAST_NS, u64::MAX - 1);
    // Near the largest numbers a double distinguishes few values.
    [from as f64, (cell.to_ns.max(from + 1) as f64).max(from as f64 * 1.001)]
}

fn ends_in_rows(cell: &HeatCell, rows_a_doubling: f64) -> [f64; 2] {
    ends(cell).map(|edge| edge.log2() * rows_a_doubling)
}

/// Distributes a bucket over rows, whose edges differ from those of buckets; otherwise the map would have stripes.
fn shares([low, high]: [f64; 2]) -> impl Iterator<Item = (i32, f64)> {
    let (first, last) = (low.floor() as i32, (high.ceil() as i32 - 1).max(low.floor() as i32));
    (first..=last).filter_map(move |row| {
        let inside = (high.min(f64::from(row) + 1.0) - low.max(f64::from(row))) / (high - low);
        (inside > 0.0).then_some((row, inside))
    })
}

/// Smallest duration on the axis, as in other distributions.
const LEAST_NS: u64 = 1_000;
/// Maximum number of columns; narrower ones would not be visible.
const COLUMNS: u32 = 160;
/// Maximum number of rows.
const ROWS: u32 = 72;
/// Number of distinguishable shades, as in `plot.css`.
const SHADES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(second: u32, from_ns: u64, count: u64) -> HeatCell {
        HeatCell { second, from_ns, to_ns: from_ns + from_ns / 8, count }
    }

    #[test]
    fn heat_map_size_does_not_grow_with_the_run() {
        // The same number of cells, over more seconds.
        let of = |seconds: u32| {
            let each = (seconds / 2_000).max(1);
            let cells: Vec<HeatCell> = (0..seconds)
                .step_by(each as usize)
                .flat_map(|second| (0..60).map(move |at| cell(second, 1_000_000 + 30_000_000 * at, at * 31 % 977 + 1)))
                .collect();
            let heat = Heat::new("t", "response time", cells);
            [Width::Full, Width::Narrow].map(|width| super::heat(&heat, width, false).len())
        };
        for bytes in [of(60), of(3_600), of(100_000)] {
            assert!(bytes.iter().all(|&bytes| bytes < 400_000), "{bytes:?}");
        }
    }

    #[test]
    fn heat_map_columns_are_means_of_their_seconds() {
        let cells = vec![cell(10, 2_000_000, 30), cell(11, 2_000_000, 10), cell(400, 2_000_000, 1)];
        let grid = Grid::of(&cells, 160).unwrap();
        assert_eq!((grid.first, grid.step, grid.columns), (10, 3, 131));
        let sum: f64 = grid.counts.values().map(|mean| mean * f64::from(grid.step)).sum();
        assert!((sum - 41.0).abs() < 1e-9, "{sum}");
        assert_eq!(grid.across(0), [10.0, 13.0]);
        assert!(Grid::of(&[], 160).is_none() && Grid::of(&[cell(3, 5, 0)], 160).is_none());
    }

    #[test]
    fn heat_map_shows_single_requests_and_darkest_maximum() {
        let scale = Shades::between(1.0, 10_000.0);
        assert_eq!([1.0, 9.0, 11.0, 10_000.0].map(|count| scale.of(count)), [0, 1, 2, SHADES - 1]);
        assert_eq!(scale.of(1e-9), 0);
        assert!((1..1000).map(|count| scale.of(f64::from(count))).is_sorted());
        assert_eq!(Shades::between(0.0, 0.0).named(), []);
        assert_eq!(scale.named()[3], (7, "from 3,162/s".to_owned()));
        assert_eq!(Shades::between(5.0, 5.0).of(5.0), SHADES - 1);
    }

    #[test]
    fn heat_map_accepts_extreme_cells() {
        for cells in [
            vec![HeatCell { second: u32::MAX, from_ns: 0, to_ns: 0, count: 1 }],
            vec![cell(0, u64::MAX / 2, u64::MAX), cell(u32::MAX, 1, u64::MAX)],
            vec![HeatCell { second: 5, from_ns: 9, to_ns: 3, count: 2 }],
            vec![HeatCell { second: 5, from_ns: u64::MAX, to_ns: u64::MAX, count: 2 }],
            vec![],
        ] {
            let svg = super::heat(&Heat::new("t", "l", cells), Width::Full, true);
            assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.len() < 20_000, "{svg}");
        }
    }
}
