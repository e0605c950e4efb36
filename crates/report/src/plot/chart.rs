//! Lines, steps and areas over numbers.

use super::Quantity;

/// A plot of one or more series over a numeric axis. Use a constructor for the kind of plot
/// ([`Chart::over_time`], [`Chart::cumulative`], [`Chart::percentiles`], [`Chart::histogram`]) and add series.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// A description for caption and screen readers; may be empty.
    pub about: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series; the first is drawn at the bottom.
    pub series: Vec<Series>,
    /// Shaded ranges of the horizontal axis.
    pub bands: Vec<Band>,
    /// Horizontal lines at configured or published values.
    pub rules: Vec<Rule>,
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Label, with a unit unless the ticks have it: `concurrent connections`.
    pub label: String,
    /// Quantity of the values.
    pub quantity: Quantity,
    /// Scale of the axis.
    pub scale: Scale,
    /// Smallest value on the axis; `None`: from the data.
    pub from: Option<f64>,
    /// Largest value on the axis; `None`: from the data.
    pub to: Option<f64>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic. Values that are not positive are not drawn.
    Log,
    /// For quantiles from 0 to 1: 90 %, 99 %, 99.9 % have equal distances, so that the tail is readable. The quantile 1
    /// is not drawn.
    Tail,
}

/// One named row of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the series in the legend.
    pub name: String,
    /// Shape of the series.
    pub shape: Shape,
    /// `[x, y]`, x rising. A point with a value that is not finite is a gap.
    pub points: Vec<[f64; 2]>,
    /// Whether the line is thin and dashed, for configured values.
    pub dashed: bool,
    /// Index of the colour, from 0; `None`: by position among the series. Set it to use one colour in several plots of
    /// a page.
    pub color: Option<usize>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Straight lines from point to point.
    Line,
    /// Straight lines with a dot at each point, for few points, so that a single point is visible.
    Dotted,
    /// Steps: a value lasts until the next point; the last point repeats the last value.
    Step,
    /// Steps, filled down to the axis.
    Area,
}

/// A shaded range of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Start.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Label: `warm-up`.
    pub label: String,
}

/// A horizontal line at a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The value.
    pub at: f64,
    /// Label: `offered: 110/s`.
    pub label: String,
}

impl Axis {
    /// A linear axis over the range of the data.
    pub fn new(label: impl Into<String>, quantity: Quantity) -> Self {
        Axis { label: label.into(), quantity, scale: Scale::Linear, from: None, to: None }
    }

    /// A linear axis from 0, for gauges and rates.
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
        Series { name: name.into(), shape: Shape::Line, points, dashed: false, color: None }
    }

    /// Values of seconds, each from `x` for one second. A missing second is a gap.
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

    /// Makes the series thin and dashed.
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// Adds a dot at each point of the series.
    pub fn dotted(mut self) -> Self {
        self.shape = Shape::Dotted;
        self
    }

    /// Sets the colour of the series.
    pub fn color(mut self, color: usize) -> Self {
        self.color = Some(color);
        self
    }

    /// Whether no point can be drawn.
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

    /// A gauge or rate over time in seconds, from 0. On a page it is interactive.
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

    /// Shades a range; an empty range adds nothing.
    pub fn band(mut self, from: f64, to: f64, label: impl Into<String>) -> Self {
        if from < to {
            self.bands.push(Band { from, to, label: label.into() });
        }
        self
    }

    /// Draws a horizontal line; a value that is not finite adds nothing.
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

    /// The label of the vertical axis, unless the title is the same.
    pub(crate) fn y_label(&self) -> &str {
        if self.y.label.eq_ignore_ascii_case(&self.title) { "" } else { &self.y.label }
    }

    /// The colour of a series by its position.
    pub(crate) fn color_of(&self, at: usize) -> usize {
        self.series.get(at).and_then(|series| series.color).unwrap_or(at) % COLORS
    }
}

/// Number of colours, distinguishable by most colour-blind people; further series repeat them.
pub(crate) const COLORS: usize = 6;
