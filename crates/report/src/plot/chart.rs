//! Lines, steps and areas over numbers.

use super::Quantity;

/// A plot of one or more series over a numeric axis. Make one with a constructor that says what it shows
/// ([`Chart::over_time`], [`Chart::cumulative`], [`Chart::percentiles`], [`Chart::histogram`]) and add series.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows, in words.
    pub title: String,
    /// One sentence more, for the caption and for those who cannot see it; may be empty.
    pub about: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, first below.
    pub series: Vec<Series>,
    /// Stretches of the horizontal axis that are shaded.
    pub bands: Vec<Band>,
    /// Horizontal lines at values that were asked for or published.
    pub rules: Vec<Rule>,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is counted along it, with its unit where the ticks do not name it: `connections in process`.
    pub label: String,
    /// What the numbers are.
    pub quantity: Quantity,
    /// How distance on paper follows from value.
    pub scale: Scale,
    /// Least value that must be on it; `None` leaves it to the data.
    pub from: Option<f64>,
    /// Largest value that must be on it; `None` leaves it to the data.
    pub to: Option<f64>,
}

/// How distance on paper follows from value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal distances.
    Linear,
    /// Equal ratios are equal distances. Values that are not positive are not drawn.
    Log,
    /// For quantiles from 0 to 1: 90 %, 99 %, 99.9 % are equal distances apart, so that the tail can be read.
    /// The quantile 1 itself is not drawn.
    Tail,
}

/// One named row of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub shape: Shape,
    /// `[x, y]`, x rising. A point with a value that is not finite is a gap.
    pub points: Vec<[f64; 2]>,
    /// Whether it is what was asked for rather than what was got: drawn thin and dashed.
    pub asked: bool,
    /// Which of the colours, from 0; `None` takes its place among the series. Figures of one page that show the same
    /// things give them the same colours so.
    pub color: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Straight lines from point to point.
    Line,
    /// The same, with a dot at each point, for few of them: a point alone is seen, too.
    Dotted,
    /// A value holds until the next point; end it with a point that repeats the last value.
    Step,
    /// Steps, filled down to the axis.
    Area,
}

/// A shaded stretch of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What it is: `warm-up`.
    pub label: String,
}

/// A horizontal line at a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The value.
    pub at: f64,
    /// What it is: `asked: 110/s`.
    pub label: String,
}

impl Axis {
    /// A linear axis as wide as the data.
    pub fn new(label: impl Into<String>, quantity: Quantity) -> Self {
        Axis { label: label.into(), quantity, scale: Scale::Linear, from: None, to: None }
    }

    /// A linear axis that begins at 0, as every level and rate should.
    pub fn from_zero(label: impl Into<String>, quantity: Quantity) -> Self {
        Axis { from: Some(0.0), ..Axis::new(label, quantity) }
    }

    /// A logarithmic axis, at least a decade long.
    pub fn log(label: impl Into<String>, quantity: Quantity) -> Self {
        Axis { scale: Scale::Log, ..Axis::new(label, quantity) }
    }
}

impl Series {
    /// Straight lines from point to point.
    pub fn line(name: impl Into<String>, points: Vec<[f64; 2]>) -> Self {
        Series { name: name.into(), shape: Shape::Line, points, asked: false, color: None }
    }

    /// Values that each hold for one second from `x`: rows of a table of seconds. A second that is missing between two
    /// others is a gap.
    pub fn seconds(name: impl Into<String>, rows: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut points: Vec<[f64; 2]> = Vec::new();
        let mut end: Option<[f64; 2]> = None;
        for (second, value) in rows {
            if let Some(last) = end.filter(|last| second > last[0] + 1e-6) {
                points.extend([last, [last[0], f64::NAN]]);
            }
            points.push([second, value]);
            end = Some([second + 1.0, value]);
        }
        points.extend(end);
        Series { shape: Shape::Step, ..Series::line(name, points) }
    }

    /// The same, as what was asked for: thin and dashed.
    pub fn asked(mut self) -> Self {
        self.asked = true;
        self
    }

    /// The same with a dot at each point.
    pub fn dotted(mut self) -> Self {
        self.shape = Shape::Dotted;
        self
    }

    /// The same in another colour.
    pub fn color(mut self, color: usize) -> Self {
        self.color = Some(color);
        self
    }

    /// Whether no point of it can be drawn.
    pub fn is_empty(&self) -> bool {
        !self.points.iter().any(|[x, y]| x.is_finite() && y.is_finite())
    }
}

impl Chart {
    /// Any two axes.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Chart {
            title: title.into(),
            about: String::new(),
            x,
            y,
            series: Vec::new(),
            bands: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// A level or rate over time in seconds, from 0 up. On a page it is interactive.
    pub fn over_time(title: impl Into<String>, label: impl Into<String>, quantity: Quantity) -> Self {
        Chart::new(title, Axis::new("time (s)", Quantity::Seconds), Axis::from_zero(label, quantity))
    }

    /// Adds a sentence.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a series.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Shades a stretch; nothing happens where it has no length.
    pub fn band(mut self, from: f64, to: f64, label: impl Into<String>) -> Self {
        if from < to {
            self.bands.push(Band { from, to, label: label.into() });
        }
        self
    }

    /// Draws a horizontal line; nothing happens where the value is not finite.
    pub fn rule(mut self, at: f64, label: impl Into<String>) -> Self {
        if at.is_finite() {
            self.rules.push(Rule { at, label: label.into() });
        }
        self
    }

    /// Whether no series has a point that can be drawn.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(Series::is_empty)
    }

    /// The vertical axis' label, unless the title says the same.
    pub(crate) fn y_label(&self) -> &str {
        if self.y.label.eq_ignore_ascii_case(&self.title) { "" } else { &self.y.label }
    }

    /// The colour of a series, by its place.
    pub(crate) fn color_of(&self, at: usize) -> usize {
        self.series.get(at).and_then(|series| series.color).unwrap_or(at) % COLORS
    }
}

/// Colours that can be told apart by most colour-blind people; further series begin again.
pub(crate) const COLORS: usize = 6;
