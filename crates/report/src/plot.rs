//! Plots, as pure functions: data in, SVG out. No file, no clock, no font.
//!
//! ```text
//!   Chart  lines and steps over numbers: time, distributions, percentile curves, histograms ─┐
//!   Bars   values by name, or parts of a whole                                               ├─> Figure ─> SVG
//!   Heat   distribution of durations over time                                              │
//!   Spans  differences with their intervals                                                  │
//!   Diagram  the testbed: clients, path, server, with figures                                │
//!   [f64; 2] ─> thin (min and max of each pixel stay) ─> Scale (linear, log, tail) ─> path ──┘
//! ```
//!
//! A [`Figure`] is drawn for a page ([`Figure::inline`]), whose style sheet has the colours, or as a separate file
//! ([`Figure::standalone`]), which includes them. Both follow the reader's dark or light mode. No coordinate is ever
//! NaN or outside of the view box: values that cannot be drawn (NaN, infinite, not positive on a logarithmic axis) are
//! gaps.
//!
//! Read [`chart`] first, then `draw` for how it becomes SVG.

pub mod bars;
pub mod chart;
mod curves;
pub mod diagram;
mod draw;
pub mod heat;
mod legend;
pub mod quantity;
mod rows;
mod scale;
pub mod spans;
mod stacked;
mod svg;
mod thin;
mod ticks;

pub use bars::Bars;
pub use chart::{Axis, Band, Chart, Rule, Scale, Series, Shape};
pub use diagram::{Diagram, Node};
pub(crate) use draw::over_time as is_over_time;
pub use heat::{Heat, HeatCell};
pub use quantity::Quantity;
pub use spans::{SpanRow, Spans};
pub(crate) use svg::{COLORS as COLORS_CSS, STYLE as STYLE_CSS, escape};

/// Width of a figure in CSS pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Full width of a page, for plots over time.
    Full,
    /// Half a page, for distributions.
    Half,
    /// A phone in portrait orientation.
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

/// A plot of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    /// Over numbers.
    Chart(Chart),
    /// Over names.
    Bars(Bars),
    /// Over time and length.
    Heat(Heat),
    /// Differences with intervals.
    Spans(Spans),
    /// The testbed.
    Diagram(Diagram),
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

impl From<Heat> for Figure {
    fn from(heat: Heat) -> Self {
        Figure::Heat(heat)
    }
}

impl From<Spans> for Figure {
    fn from(spans: Spans) -> Self {
        Figure::Spans(spans)
    }
}

impl From<Diagram> for Figure {
    fn from(diagram: Diagram) -> Self {
        Figure::Diagram(diagram)
    }
}

impl Figure {
    /// The title.
    pub fn title(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.title,
            Figure::Bars(bars) => &bars.title,
            Figure::Heat(heat) => &heat.title,
            Figure::Spans(spans) => &spans.title,
            Figure::Diagram(diagram) => &diagram.title,
        }
    }

    /// A description for caption and screen readers; may be empty.
    pub fn about(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.about,
            Figure::Bars(bars) => &bars.about,
            Figure::Heat(heat) => &heat.about,
            Figure::Spans(spans) => &spans.about,
            Figure::Diagram(diagram) => &diagram.about,
        }
    }

    /// Whether the plot needs the full width of a page.
    pub fn is_wide(&self) -> bool {
        match self {
            Figure::Chart(chart) => chart.x.quantity == Quantity::Seconds,
            Figure::Bars(_) => false,
            Figure::Heat(_) | Figure::Spans(_) | Figure::Diagram(_) => true,
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match self {
            Figure::Chart(chart) => chart.is_empty(),
            Figure::Bars(bars) => bars.is_empty(),
            Figure::Heat(heat) => heat.is_empty(),
            Figure::Spans(spans) => spans.is_empty(),
            Figure::Diagram(diagram) => diagram.is_empty(),
        }
    }

    /// An SVG element without colours and visible title, which the page has.
    pub fn inline(&self, width: Width) -> String {
        self.drawn(width, false)
    }

    /// A complete SVG file with title, and colours for dark and light mode.
    pub fn standalone(&self) -> String {
        let width = if self.is_wide() { Width::Full } else { Width::Half };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", self.drawn(width, true))
    }

    fn drawn(&self, width: Width, standalone: bool) -> String {
        match self {
            Figure::Chart(chart) => draw::chart(chart, width, standalone),
            Figure::Bars(bars) => rows::bars(bars, width, standalone),
            Figure::Heat(heat) => heat::heat(heat, width, standalone),
            Figure::Spans(spans) => spans::spans(spans, width, standalone),
            Figure::Diagram(diagram) => diagram::diagram(diagram, width, standalone),
        }
    }
}
