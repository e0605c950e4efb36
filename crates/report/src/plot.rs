//! Plots, as pure functions: data in, SVG out. No file, no clock, no font.
//!
//! ```text
//!   Chart  lines and steps over numbers: time, distributions, percentile curves, histograms ─┐
//!   Bars   lengths beside names: by distance, by cause                                       ├─> Figure ─> SVG
//!   Heat   how often what lasted how long, second by second                                  │
//!   Spans  differences with their intervals                                                  │
//!   Picture  the lab: clients, path, server, with figures on them                            │
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
pub mod heat;
mod legend;
pub mod picture;
pub mod quantity;
mod rows;
mod scale;
pub mod spans;
mod svg;
mod thin;
mod ticks;

pub use bars::Bars;
pub use chart::{Axis, Band, Chart, Rule, Scale, Series, Shape};
pub(crate) use draw::over_time as is_over_time;
pub use heat::{Heat, HeatCell};
pub use picture::{Picture, Place};
pub use quantity::Quantity;
pub use spans::{SpanRow, Spans};
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
    /// Over time and length.
    Heat(Heat),
    /// Differences with intervals.
    Spans(Spans),
    /// The lab.
    Picture(Picture),
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

impl From<Picture> for Figure {
    fn from(picture: Picture) -> Self {
        Figure::Picture(picture)
    }
}

impl Figure {
    /// Its title, in words.
    pub fn title(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.title,
            Figure::Bars(bars) => &bars.title,
            Figure::Heat(heat) => &heat.title,
            Figure::Spans(spans) => &spans.title,
            Figure::Picture(picture) => &picture.title,
        }
    }

    /// One sentence on what it shows, for the caption and for those who cannot see it; may be empty.
    pub fn about(&self) -> &str {
        match self {
            Figure::Chart(chart) => &chart.about,
            Figure::Bars(bars) => &bars.about,
            Figure::Heat(heat) => &heat.about,
            Figure::Spans(spans) => &spans.about,
            Figure::Picture(picture) => &picture.about,
        }
    }

    /// Whether it deserves a page's whole width.
    pub fn is_wide(&self) -> bool {
        match self {
            Figure::Chart(chart) => chart.x.quantity == Quantity::Seconds,
            Figure::Bars(_) => false,
            Figure::Heat(_) | Figure::Spans(_) | Figure::Picture(_) => true,
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match self {
            Figure::Chart(chart) => chart.is_empty(),
            Figure::Bars(bars) => bars.is_empty(),
            Figure::Heat(heat) => heat.is_empty(),
            Figure::Spans(spans) => spans.is_empty(),
            Figure::Picture(picture) => picture.is_empty(),
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
            Figure::Heat(heat) => heat::heat(heat, width, standalone),
            Figure::Spans(spans) => spans::spans(spans, width, standalone),
            Figure::Picture(picture) => picture::picture(picture, width, standalone),
        }
    }
}
