//! The state of the live page, as text and numbers.
//!
//! A state is serialised as JSON for the script `assets/live.js`, with the field names of this file. A section or piece
//! keeps its `id` as long as it exists, so that a step can refer to it.

use serde::Serialize;

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct State {
    /// What the page shows: a run's id.
    pub title: String,
    /// State in a word or two, and its colour: `going`, `good`, `doubt`, `bad` or `soft`.
    pub status: Status,
    /// The result in one sentence.
    pub lead: String,
    /// Progress, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The headline figures.
    pub facts: Vec<Fact>,
    /// The verdict, provisional during the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
    /// Sections of the page.
    pub sections: Vec<Section>,
    /// Lines at the foot.
    pub foot: Vec<String>,
    /// A sentence or two for screen readers.
    pub aloud: String,
    /// Whether the run is over, so that nothing changes any more.
    pub is_over: bool,
}

/// A word with a colour.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// The word.
    pub word: String,
    /// Colour of the word.
    pub tone: &'static str,
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// From 0 to 1.
    pub share: f64,
    /// `12 s of 60 s`.
    pub text: String,
}

/// A headline figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fact {
    /// Name of the figure.
    pub name: &'static str,
    /// Text for people.
    pub text: String,
    /// The exact number in the unit of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// A few words under it.
    pub note: String,
    /// Colour, if any: `bad` or `doubt`.
    pub tone: &'static str,
}

/// The verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// `Valid`, `Suspect`, `Invalid`.
    pub word: &'static str,
    /// Colour of the verdict.
    pub tone: &'static str,
    /// A sentence.
    pub summary: String,
    /// Checks that did not pass.
    pub open: Vec<Row>,
    /// The other checks.
    pub rest: Vec<Row>,
}

/// One check: name, result, colour of the result, value, limit, reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The cells from left to right.
    pub cells: Vec<String>,
    /// Colour of the second cell.
    pub tone: &'static str,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Section {
    /// Id in the page.
    pub id: String,
    /// The heading; may be empty.
    pub heading: String,
    /// Pieces of the section.
    pub pieces: Vec<Piece>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Piece {
    /// Lines over time.
    Chart(Chart),
    /// Counts over time and value.
    Heat(Heat),
    /// Rows of text.
    Table(Table),
    /// A paragraph, or text to be copied.
    Text(Text),
    /// A drawing made by the program (SVG).
    Drawing(Drawing),
}

impl Piece {
    /// Id in the page.
    pub fn id(&self) -> &str {
        match self {
            Piece::Chart(chart) => &chart.head.id,
            Piece::Heat(heat) => &heat.head.id,
            Piece::Table(table) => &table.id,
            Piece::Text(text) => &text.id,
            Piece::Drawing(drawing) => &drawing.id,
        }
    }
}

/// Lines over time. Every series has a value, or `null`, for every entry of `xs`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chart {
    /// Everything except the numbers.
    #[serde(flatten)]
    pub head: ChartHead,
    /// Positions of the points in seconds, rising.
    pub xs: Vec<f64>,
    /// Values of the points, by series.
    pub ys: Vec<Vec<Option<f64>>>,
}

/// Head of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ChartHead {
    /// Id in the page.
    pub id: String,
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Quantity of the vertical axis: `count`, `rate`, `ns`, `bytes`, `share`.
    pub quantity: &'static str,
    /// Whether the vertical axis is logarithmic.
    pub log: bool,
    /// Whether the chart has the full width of the page.
    pub wide: bool,
    /// The lines.
    pub series: Vec<Line>,
    /// Shaded times: from, to, label.
    pub bands: Vec<(f64, f64, &'static str)>,
}

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Which of the six colours.
    pub color: u8,
    /// Whether the line is dashed: a configured value, or an extreme.
    pub dash: bool,
    /// Whether the area under the line is filled.
    pub fill: bool,
}

/// A heat map: distributions of values, one column for each interval of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heat {
    /// Everything except the columns.
    #[serde(flatten)]
    pub head: HeatHead,
    /// The columns from left to right.
    pub columns: Vec<Column>,
}

/// Head of a heat map.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeatHead {
    /// Id in the page.
    pub id: String,
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Width of a column in seconds.
    pub seconds: u32,
    /// Number of the lowest row.
    pub lowest: u16,
    /// Edges of the rows in ns, rising: one more than there are rows.
    pub edges: Vec<u64>,
}

/// One interval of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// Start of the interval in seconds.
    pub x: u32,
    /// Alternating row and count; empty rows are omitted.
    pub cells: Vec<u64>,
}

/// Rows of text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// Id in the page.
    pub id: String,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Columns of text, from 0.
    pub left: Vec<usize>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Link of the first cell by row: a path within the page's own root. Empty without links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// A paragraph, or verbatim text to be copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Text {
    /// Id in the page.
    pub id: String,
    /// The text.
    pub text: String,
    /// Whether the text is verbatim, to be copied.
    pub verbatim: bool,
}

/// A figure drawn by the program: SVG markup with all text escaped.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Drawing {
    /// Id in the page.
    pub id: String,
    /// The title.
    pub title: String,
    /// A description; may be empty.
    pub about: String,
    /// Whether the chart has the full width of the page.
    pub wide: bool,
    /// SVG for half a page or a whole one.
    pub large: String,
    /// SVG for a phone.
    pub small: String,
}

impl State {
    /// The complete state as one line of JSON.
    pub fn whole(&self) -> String {
        serde_json::to_string(self).expect("a state has plain keys and finite numbers")
    }

    /// Every piece, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.sections.iter().flat_map(|section| &section.pieces)
    }
}

impl Section {
    /// An empty section.
    pub fn new(id: impl Into<String>, heading: impl Into<String>) -> Self {
        Section { id: id.into(), heading: heading.into(), pieces: Vec::new() }
    }

    /// Adds a piece, if there is one.
    pub fn with(mut self, piece: impl Into<Option<Piece>>) -> Self {
        self.pieces.extend(piece.into());
        self
    }
}

impl Fact {
    /// A figure with its number.
    pub fn new(name: &'static str, text: String, value: f64, note: impl Into<String>) -> Self {
        Fact { name, text, value: value.is_finite().then_some(value), note: note.into(), tone: "" }
    }
}

/// A number with six digits, more than a screen shows; a value that is not finite is a gap.
pub(super) fn number(value: f64) -> Option<f64> {
    if !value.is_finite() {
        return None;
    }
    let scale = 10_f64.powi(5 - value.abs().max(1e-9).log10().floor() as i32);
    let short = (value * scale).round() / scale;
    Some(if short.is_finite() { short } else { value })
}
