//! Plots, as pure functions: data in, SVG out. No file, no clock, no font.
//!
//! ```text
//!   Chart  lines and steps over numbers: time, distributions, percentile curves, histograms ─┐
//!   Bars   lengths beside names: by distance, by cause                                       ├─> Figure ─> SVG
//!   [f64; 2] ─> thin (min and max of each pixel stay) ─> Scale (linear, log, tail) ─> path ──┘
//! ```
//!
//! A [`Figure`] is drawn for a page ([`Figure::inline`]), whose style sheet gives the colours, or as a file of its own
//! ([`Figure::standalone`]), which carries them. Both follow the reader's choice of dark or light. Whatever the data
//! are, no coordinate is NaN and none lies outside the view box: values that cannot be drawn (NaN, infinite, or not
//! positive on a logarithmic axis) are gaps.
//!
//! Read [`chart`] first, then `draw` for how it becomes SVG.

pub mod bars;
pub mod chart;
mod curves;
mod draw;
mod legend;
pub mod quantity;
mod rows;
mod scale;
mod svg;
mod thin;
mod ticks;

pub use bars::Bars;
pub use chart::{Axis, Band, Chart, Rule, Scale, Series, Shape};
pub(crate) use draw::over_time as is_over_time;
pub use quantity::Quantity;
pub(crate) use svg::{COLORS as COLORS_CSS, STYLE as STYLE_CSS, escape};

/// How wide a figure is drawn, in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Across a page: what goes over time.
    Full,
    /// Half a page: distributions.
    Half,
    /// A phone held upright.
    Narrow,
}

impl Width {
    /// Width and height of the plot.
    pub const fn size(self) -> (f64, f64) {
        match self {
            Width::Full => (960.0, 280.0),
            Width::Half => (468.0, 290.0),
            Width::Narrow => (340.0, 260.0),
        }
    }
}

/// Anything that can be drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Over numbers.
    Chart(Chart),
    /// Over names.
    Bars(Bars),
}

impl From<Chart> for Figure {
    fn from(chart: Chart) -> Self {
        Figure::Chart(chart)
    }
}

impl From<Bars> for Figure {
    fn from(bars: Bars) -> Self {
        Figure::Bars(bars)
    }
}

impl Figure {
    /// Its title, in words.
    pub fn title(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.title,
            Figure::Bars(bars) => &bars.title,
        }
    }

    /// One sentence on what it shows, for the caption and for those who cannot see it; may be empty.
    pub fn about(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.about,
            Figure::Bars(bars) => &bars.about,
        }
    }

    /// Whether it deserves a page's whole width.
    pub fn is_wide(&self) -> bool {
        matches!(self, Figure::Chart(chart) if chart.x.quantity == Quantity::Seconds)
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match self {
            Figure::Chart(chart) => chart.is_empty(),
            Figure::Bars(bars) => bars.is_empty(),
        }
    }

    /// An SVG element without colours and without a visible title: the page around it has both.
    pub fn inline(&self, width: Width) -> String {
        self.drawn(width, false)
    }

    /// A whole SVG file, with its title above and colours for dark and light.
    pub fn standalone(&self) -> String {
        let width = if self.is_wide() { Width::Full } else { Width::Half };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", self.drawn(width, true))
    }

    fn drawn(&self, width: Width, standalone: bool) -> String {
        match self {
            Figure::Chart(chart) => draw::chart(chart, width, standalone),
            Figure::Bars(bars) => rows::bars(bars, width, standalone),
        }
    }
}
