//! A forest plot: differences with their intervals, one line each, around a vertical line at zero.

use super::chart::Axis;
use super::draw::TITLE;
use super::legend;
use super::scale::Ruler;
use super::svg::{Anchor, Svg, text_width};
use super::{Quantity, Width};

/// Differences by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Quantity of the differences.
    pub quantity: Quantity,
    /// Labels left and right of zero: `B is less`, `B is more`.
    pub sides: [String; 2],
    /// The rows from top to bottom.
    pub rows: Vec<SpanRow>,
}

/// One difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanRow {
    /// Name of the figure that differs.
    pub name: String,
    /// The estimated difference; with `None` or NaN only name and text are shown.
    pub at: Option<f64>,
    /// The confidence interval, if known.
    pub interval: Option<[f64; 2]>,
    /// Whether the interval excludes zero: drawn in a strong colour.
    pub shown: bool,
    /// A limit from `--fail-if`.
    pub limit: Option<f64>,
    /// The figures as text, at the right: `+5.0 % (+3.1 to +6.9 %)`.
    pub words: String,
}

impl Spans {
    /// A plot of differences of this quantity, without rows.
    pub fn new(title: impl Into<String>, quantity: Quantity, sides: [&str; 2]) -> Self {
        let sides = sides.map(str::to_owned);
        Spans { title: title.into(), about: String::new(), quantity, sides, rows: Vec::new() }
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a row.
    pub fn row(mut self, row: SpanRow) -> Self {
        self.rows.push(row);
        self
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        !self.rows.iter().any(|row| row.at.is_some_and(f64::is_finite))
    }
}

/// Draws the plot. On a phone each name is above its line.
pub(super) fn spans(spans: &Spans, width: Width, standalone: bool) -> String {
    let (across, _) = width.size();
    let narrow = width == Width::Narrow;
    let title = if standalone { TITLE } else { 0.0 };
    let row_height = if narrow { ROW + NAME } else { ROW };
    let top = title + HEAD;
    let bottom = top + spans.rows.len().max(1) as f64 * row_height;
    let height = bottom + MARKS;
    let widest = |of: fn(&SpanRow) -> &str| spans.rows.iter().map(|row| text_width(of(row))).fold(0.0, f64::max);
    let (left, right) = match narrow {
        true => (EDGE, across - EDGE),
        false => {
            let names = (widest(|row| &row.name) + GAP).min(across * 0.25);
            (names, across - (widest(|row| &row.words) + GAP).min(across * 0.42))
        }
    };
    let ends = |row: &SpanRow| [row.interval.map(|ends| ends[0]), row.interval.map(|ends| ends[1]), row.at, row.limit];
    // A very wide interval must not make the others too small to see: it extends beyond the edge.
    let far = widest_shown(spans);
    let values = spans.rows.iter().flat_map(ends).flatten().filter(|value| value.is_finite());
    let values = values.map(|value| value.clamp(-far, far)).chain([0.0]);
    let axis = Axis::new("", spans.quantity);
    let tick_count = ((right - left) / 90.0).max(2.0) as usize;
    let ruler = Ruler::new(&axis, values, left + MARGIN, right - MARGIN, tick_count);

    let mut svg = Svg::new(across, height, &spans.title, &description(spans), standalone);
    if standalone {
        svg.text("title", [2.0, TITLE - 10.0], Anchor::Start, &legend::fitting(&spans.title, across * 0.75));
    }
    for (at, _) in &ruler.ticks {
        if let Some(place) = ruler.position(*at) {
            svg.line("grid", [place, top], [place, bottom]);
        }
    }
    let none = ruler.position(0.0).unwrap_or(left);
    sides(&mut svg, spans, none, [left, right], top - GAP);
    for (at, row) in spans.rows.iter().enumerate() {
        let from = top + at as f64 * row_height;
        let y = from + row_height - ROW / 2.0;
        match narrow {
            true => {
                let words = text_width(&row.words).min(across * 0.6);
                let available = across - 2.0 * EDGE - words - GAP;
                svg.text("name", [left, from + NAME - 2.0], Anchor::Start, &legend::fitting(&row.name, available));
                svg.text("tick", [right, from + NAME - 2.0], Anchor::End, &legend::fitting(&row.words, words));
            }
            false => {
                svg.text("name", [0.0, y + 4.0], Anchor::Start, &legend::fitting(&row.name, left - GAP));
                let words = legend::fitting(&row.words, across - right - GAP);
                svg.text("tick", [right + GAP, y + 4.0], Anchor::Start, &words);
            }
        }
        line(&mut svg, row, y, &ruler, far);
    }
    svg.line("axis", [none, top - 4.0], [none, bottom + 4.0]);
    super::draw::x_marks(&mut svg, &ruler, bottom + 4.0, across);
    if spans.rows.is_empty() {
        svg.text("nothing", [across / 2.0, bottom - 8.0], Anchor::Middle, "no values");
    }
    svg.into_text()
}

/// Largest absolute value of the axis: it includes every estimate and limit, and three times the first row, up to
/// [`RANGE_FACTOR_MAX`].
fn widest_shown(spans: &Spans) -> f64 {
    let first = spans.rows.first().into_iter().flat_map(|row| row.interval).flatten().map(|end| 3.0 * end.abs());
    let points = spans.rows.iter().flat_map(|row| [row.at, row.limit]).flatten().map(|at| 1.2 * at.abs());
    let far = first.chain(points).filter(|far| far.is_finite()).fold(0.0, f64::max);
    if far > 0.0 { far.min(RANGE_FACTOR_MAX) } else { RANGE_FACTOR_MAX }
}

fn sides(svg: &mut Svg, spans: &Spans, none: f64, [left, right]: [f64; 2], y: f64) {
    let [less, more] = &spans.sides;
    let arrows = [format!("← {less}"), format!("{more} →")];
    if !less.is_empty() && none - left > text_width(&arrows[0]) + GAP {
        svg.text("label", [none - GAP, y], Anchor::End, &arrows[0]);
    }
    if !more.is_empty() && right - none > text_width(&arrows[1]) + GAP {
        svg.text("label", [none + GAP, y], Anchor::Start, &arrows[1]);
    }
}

/// Draws a row. An estimate beyond `far` is an arrow at the edge, and an interval that ends there has no end mark.
fn line(svg: &mut Svg, row: &SpanRow, y: f64, ruler: &Ruler, far: f64) {
    if let Some(limit) = row.limit.and_then(|limit| ruler.position(limit)) {
        svg.line("limit", [limit, y - ROW / 2.0 + 2.0], [limit, y + ROW / 2.0 - 2.0]);
    }
    let strength = if row.shown { "shown" } else { "unshown" };
    if let Some(ends) = row.interval
        && let [Some(low), Some(high)] = ends.map(|end| ruler.position(end))
    {
        svg.line(&format!("s s{} {strength}", color(row)), [low, y], [high, y]);
        for (end, _) in [low, high].into_iter().zip(ends).filter(|(_, value)| value.abs() <= far) {
            svg.line(&format!("s s{} {strength}", color(row)), [end, y - WHISKER], [end, y + WHISKER]);
        }
    }
    let Some((at, place)) = row.at.and_then(|at| Some((at, ruler.position(at)?))) else { return };
    match at {
        at if at > far => svg.text("name", [place, y + 4.0], Anchor::End, "→"),
        at if at < -far => svg.text("name", [place, y + 4.0], Anchor::Start, "←"),
        _ => svg.dot(&format!("f{}", color(row)), [place, y], &format!("{}: {}", row.name, row.words)),
    }
}

/// Colour of a row: detected differences are highlighted, others are grey-blue.
fn color(row: &SpanRow) -> usize {
    if row.shown { 1 } else { 0 }
}

fn description(spans: &Spans) -> String {
    let rows = spans.rows.iter().map(|row| format!("{}: {}.", row.name, row.words));
    std::iter::once(spans.about.clone()).filter(|about| !about.is_empty()).chain(rows).collect::<Vec<_>>().join(" ")
}

const EDGE: f64 = 2.0;
const GAP: f64 = 8.0;
/// Space between the ends of the axis and its values.
const MARGIN: f64 = 8.0;
const ROW: f64 = 26.0;
/// Height of a name above its line.
const NAME: f64 = 16.0;
/// Height of the labels of both sides.
const HEAD: f64 = 24.0;
const MARKS: f64 = 30.0;
const WHISKER: f64 = 4.0;
/// The axis extends to at most this factor: three times the value, or 200 % more.
const RANGE_FACTOR_MAX: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_plot_accepts_extreme_rows() {
        let row = |at: f64, interval: Option<[f64; 2]>| SpanRow {
            name: "<b>p99".repeat(40),
            at: Some(at),
            interval,
            shown: true,
            limit: Some(f64::NAN),
            words: "x".repeat(300),
        };
        let spans = Spans::new("t", Quantity::Share, ["less", "more"])
            .row(row(0.05, Some([0.01, 0.09])))
            .row(row(f64::INFINITY, Some([f64::NEG_INFINITY, f64::NAN])))
            .row(row(-1e300, Some([-1e300, 1e300])))
            .row(SpanRow::default());
        for width in [Width::Full, Width::Narrow] {
            let svg = super::spans(&spans, width, false);
            assert!(!svg.contains("NaN") && !svg.contains("inf ") && !svg.contains("<b>"), "{svg}");
        }
        assert!(!spans.is_empty() && Spans::new("t", Quantity::Share, ["", ""]).is_empty());
    }

    #[test]
    fn an_estimate_beyond_the_axis_is_an_arrow() {
        let row = |at| SpanRow { name: "p99".into(), at: Some(at), ..SpanRow::default() };
        let svg = |at| super::spans(&Spans::new("t", Quantity::Share, ["", ""]).row(row(at)), Width::Full, false);
        assert!(svg(15.6).contains(">→<") && !svg(15.6).contains("<circle"), "{}", svg(15.6));
        assert!(svg(-15.6).contains(">←<") && svg(1.9).contains("<circle"));
    }

    #[test]
    fn interval_plot_has_interval_around_value_and_zero_line() {
        let row = SpanRow {
            name: "p99".into(),
            at: Some(0.05),
            interval: Some([0.01, 0.09]),
            words: "+5.0 %".into(),
            ..SpanRow::default()
        };
        let svg = super::spans(&Spans::new("t", Quantity::Share, ["B less", "B more"]).row(row), Width::Full, false);
        assert!(svg.contains("B more →") && svg.contains(">0 %<") && svg.contains("<circle"), "{svg}");
    }
}
