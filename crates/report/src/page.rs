//! One self-contained HTML page: title, result, URL and command, verdict, sections.
//!
//! ```text
//!   Page::new(title).lead(sentence)
//!     .subject(url, command)                      what was measured, and how
//!     .judged("", &document.validity)             verdict, every check that did not pass; the others folded
//!     .section(Section::new("Over time")
//!         .text("An introduction.")
//!         .figure(Chart::over_time(..).series(..))  consecutive figures are placed side by side
//!         .table(Table::new(&["", "published", "measured"]).row(["1", "4 to 6", "0.1"]))
//!         .folded("How it was done", Section::new("").verbatim("plan", toml)))
//!     .into_html()
//! ```
//!
//! The page makes no network requests: style, script and data are inline, and its content security policy forbids
//! requests. Without script each figure is an SVG; the script replaces charts over time by ones with zoom and values
//! under the cursor. All text is escaped here.

mod interactive;
mod markdown;
pub(crate) mod parts;
mod table;
mod verdict;

use schema::Validity;

pub use table::Table;

use crate::plot::{self, Figure, Width, escape};

/// A page under construction.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    lead: String,
    url: String,
    command: String,
    answer: Section,
    judgements: Vec<(String, Validity)>,
    about: String,
    sections: Vec<Section>,
    foot: String,
}

/// A part of a page: pieces in the order of their addition.
#[derive(Clone, Debug, Default)]
pub struct Section {
    heading: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Table(Table),
    Figure(Box<Figure>),
    Verbatim { label: String, text: String },
    Folded { summary: String, section: Section },
}

impl Page {
    /// An empty page with a title.
    pub fn new(title: impl Into<String>) -> Self {
        Page { title: title.into(), ..Page::default() }
    }

    /// The result in one sentence, under the title.
    pub fn lead(mut self, sentence: impl Into<String>) -> Self {
        self.lead = sentence.into();
        self
    }

    /// What was measured and by which command, under the result; either may be empty.
    pub fn subject(mut self, url: impl Into<String>, command: impl Into<String>) -> Self {
        (self.url, self.command) = (url.into(), command.into());
        self
    }

    /// A section before the verdicts: a result that does not fit into the sentence, with the verdict of each run in it.
    pub fn answer(mut self, section: Section) -> Self {
        self.answer = section;
        self
    }

    /// The verdict of a run, before the sections. With several runs each has its name; with one the name is empty.
    pub fn judged(mut self, name: impl Into<String>, validity: &Validity) -> Self {
        self.judgements.push((name.into(), validity.clone()));
        self
    }

    /// A line under the verdict in small type: start and length of the run.
    pub fn about(mut self, text: impl Into<String>) -> Self {
        self.about = text.into();
        self
    }

    /// Adds a section; a section without pieces is omitted.
    pub fn section(mut self, section: Section) -> Self {
        if !section.pieces.is_empty() {
            self.sections.push(section);
        }
        self
    }

    /// A last line, such as where the run is stored.
    pub fn foot(mut self, text: impl Into<String>) -> Self {
        self.foot = text.into();
        self
    }

    /// Every figure of the page in order, including folded ones.
    pub fn figures(&self) -> Vec<&Figure> {
        fn all<'a>(section: &'a Section, found: &mut Vec<&'a Figure>) {
            for piece in &section.pieces {
                match piece {
                    Piece::Figure(figure) => found.push(figure),
                    Piece::Folded { section, .. } => all(section, found),
                    _ => {}
                }
            }
        }
        let mut found = Vec::new();
        std::iter::once(&self.answer).chain(&self.sections).for_each(|section| all(section, &mut found));
        found
    }

    /// The page as Markdown: text, tables and verdicts, no figures. All text is escaped: none of it becomes markup, a
    /// link or a mention of a person.
    pub fn to_markdown(&self) -> String {
        markdown::page(self)
    }

    /// The complete HTML file.
    pub fn into_html(self) -> String {
        let mut charts = Vec::new();
        let mut body = format!("<header><p class=\"brand\">yamabiko</p><h1>{}</h1>", escape(&self.title));
        if !self.lead.is_empty() {
            body.push_str(&format!("<p class=\"lead\">{}</p>", escape(&self.lead)));
        }
        if !self.url.is_empty() {
            body.push_str(&format!("<p class=\"subject\"><span>URL</span> <code>{}</code></p>", escape(&self.url)));
        }
        if !self.command.is_empty() {
            let command = escape(&self.command);
            body.push_str(&format!("<p class=\"subject\"><span>Command</span> <code>{command}</code></p>"));
        }
        body.push_str("</header>\n<main>\n");
        if !self.answer.pieces.is_empty() {
            body.push_str("<section>");
            put(&mut body, &self.answer, &mut charts);
            body.push_str("</section>\n");
        }
        body.push_str(&verdict::html(&self.judgements));
        if !self.about.is_empty() {
            body.push_str(&format!("<p class=\"about\">{}</p>\n", escape(&self.about)));
        }
        for section in &self.sections {
            body.push_str("<section>");
            put(&mut body, section, &mut charts);
            body.push_str("</section>\n");
        }
        body.push_str("</main>\n");
        if !self.foot.is_empty() {
            body.push_str(&format!("<footer>{}</footer>\n", escape(&self.foot)));
        }
        let (style, script) = interactive::parts(&charts);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<title>{}</title>\n\
             <style>\n{style}{}{}{STYLE}</style>\n</head>\n<body>\n{body}{script}</body>\n</html>\n",
            escape(&self.title),
            plot::COLORS_CSS,
            plot::STYLE_CSS,
        )
    }
}

impl Section {
    /// A section; an empty heading is not shown.
    pub fn new(heading: impl Into<String>) -> Self {
        Section { heading: heading.into(), pieces: Vec::new() }
    }

    /// A paragraph. Empty text adds nothing.
    pub fn text(self, text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { self } else { self.with(Piece::Text(text)) }
    }

    /// A table; one without rows adds nothing.
    pub fn table(self, table: Table) -> Self {
        if table.is_empty() { self } else { self.with(Piece::Table(table.without_empty_columns())) }
    }

    /// A plot; one without values adds nothing.
    pub fn figure(self, figure: impl Into<Figure>) -> Self {
        let figure = figure.into();
        if figure.is_empty() { self } else { self.with(Piece::Figure(Box::new(figure))) }
    }

    /// Text to be copied, such as a file. Empty text adds nothing.
    pub fn verbatim(self, label: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { self } else { self.with(Piece::Verbatim { label: label.into(), text }) }
    }

    /// Pieces that are shown on demand; an empty section adds nothing.
    pub fn folded(self, summary: impl Into<String>, section: Section) -> Self {
        if section.pieces.is_empty() { self } else { self.with(Piece::Folded { summary: summary.into(), section }) }
    }

    fn with(mut self, piece: Piece) -> Self {
        self.pieces.push(piece);
        self
    }
}

/// Writes the pieces, and collects the charts for the script.
fn put<'a>(body: &mut String, section: &'a Section, charts: &mut Vec<&'a plot::Chart>) {
    if !section.heading.is_empty() {
        body.push_str(&format!("<h2>{}</h2>", escape(&section.heading)));
    }
    let mut in_grid = false;
    for piece in &section.pieces {
        let is_figure = matches!(piece, Piece::Figure(_));
        if is_figure != in_grid {
            body.push_str(if is_figure { "<div class=\"figures\">" } else { "</div>" });
            in_grid = is_figure;
        }
        match piece {
            Piece::Text(text) => body.push_str(&format!("<p>{}</p>", escape(text))),
            Piece::Table(table) => body.push_str(&table.html()),
            Piece::Figure(figure) => put_figure(body, figure, charts),
            Piece::Verbatim { label, text } => {
                let label =
                    if label.is_empty() { String::new() } else { format!("<p class=\"label\">{}</p>", escape(label)) };
                body.push_str(&format!("{label}<pre>{}</pre>", escape(text)));
            }
            Piece::Folded { summary, section } => {
                body.push_str(&format!("<details><summary>{}</summary>", escape(summary)));
                put(body, section, charts);
                body.push_str("</details>");
            }
        }
    }
    if in_grid {
        body.push_str("</div>");
    }
}

fn put_figure<'a>(body: &mut String, figure: &'a Figure, charts: &mut Vec<&'a plot::Chart>) {
    let (class, width) = if figure.is_wide() { ("wide", Width::Full) } else { ("half", Width::Half) };
    let handle = match figure {
        Figure::Chart(chart) if plot::is_over_time(chart) => {
            charts.push(chart);
            format!(" data-plot=\"{}\"", charts.len() - 1)
        }
        _ => String::new(),
    };
    let about =
        if figure.about().is_empty() { String::new() } else { format!(" <span>{}</span>", escape(figure.about())) };
    body.push_str(&format!(
        "<figure class=\"{class}\"{handle}><figcaption><b>{}</b>{about}</figcaption><div class=\"large\">{}</div>\
         <div class=\"small\">{}</div></figure>",
        escape(figure.title()),
        figure.inline(width),
        figure.inline(Width::Narrow),
    ));
}

/// The page can make no request; its inline style and script may run.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";
const STYLE: &str = include_str!("../assets/page.css");
