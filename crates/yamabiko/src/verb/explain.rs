//! `yamabiko explain`: what limits the responses of a run or of a capture file.
//!
//! ```text
//!   URL --> bench, packets kept --> stored run --\
//!   RUN ------------------------> stored run -----+--> evidence --> explanation --> summary, text, JSON, page
//!   FILE --> packets --> requests ---------------/
//! ```

mod attempt;
mod capture;
mod run;
mod text;

use std::path::Path;

use anyhow::{Result, ensure};
use explain::{Evidence, Explanation, Summary};
use report::{ExplainSources, ExplainedResponse};
use schema::{Document, ShareRow};
use testbed::explained::RunEvidence;

use self::attempt::Try;
use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::page_file;
use crate::terminal::print_message;

/// Explains a run to be made, a stored run, or capture files.
pub fn run(arguments: &args::Explain) -> Result<Exit> {
    ensure!(
        arguments.parquet.as_deref() != Some(Path::new("-")),
        "--parquet -: a Parquet file cannot be written to standard output; give the name of a file"
    );
    if arguments.read.is_none() && !arguments.is_stored() {
        return run::make(arguments);
    }
    let other = arguments.without_effect();
    let what = if arguments.read.is_some() { "a capture file" } else { "a stored run" };
    ensure!(
        other.is_empty(),
        "--{}: no effect on {what}; expected only with a URL, which begins with http:// or https://",
        other.join(", --").replace('_', "-")
    );
    if arguments.read.is_some() { capture::run(arguments) } else { run::stored(arguments) }
}

/// Explains a run in its folder.
///
/// # Errors
/// The folder cannot be read.
pub fn of_run(dir: &Path, document: &Document) -> Result<Explained> {
    run::explained(RunEvidence::read(dir, document)?, document)
}

/// The name of a response for people, and what identifies it in JSON and in Parquet.
struct Label {
    text: String,
    json: serde_json::Map<String, serde_json::Value>,
    row: ShareRow,
}

/// Explained responses with what is printed about them.
pub struct Explained {
    title: String,
    labels: Vec<Label>,
    responses: Vec<explain::Explained>,
    summary: Summary,
    /// What limits the explanation.
    notes: Vec<String>,
    /// The run; `None` of a capture file.
    document: Option<Document>,
    /// Evidence of the responses with diagrams, by place.
    examples: Vec<(usize, Evidence)>,
    /// What came of `--try`.
    tried: Option<Try>,
}

impl Explained {
    /// Sums up the responses. `evidence_of` makes the evidence of a response again.
    fn new(
        title: String,
        labels: Vec<Label>,
        responses: Vec<explain::Explained>,
        evidence_of: impl Fn(usize) -> Option<Evidence>,
    ) -> Explained {
        let summary = Summary::of(&responses);
        let median = summary.percentiles.first().map(|group| group.example);
        let mut places: Vec<usize> = median.into_iter().chain(summary.slowest.first().copied()).collect();
        places.dedup();
        let examples = places.into_iter().filter_map(|place| Some((place, evidence_of(place)?))).collect();
        Explained { title, labels, responses, summary, notes: Vec::new(), document: None, examples, tried: None }
    }

    /// Prints it as text or as one JSON document, then writes table and page.
    fn print(&self, arguments: &args::Explain) -> Result<()> {
        let (json, html) = (arguments.bench.result.json, arguments.html.as_deref());
        if json {
            print(&(serde_json::to_string_pretty(&self.json())? + "\n"))?;
        } else if html != Some(Path::new("-")) {
            print(&self.text())?;
        }
        if let Some(file) = &arguments.parquet {
            self.write_shares(file)?;
        }
        let Some(file) = html else { return Ok(()) };
        let page = self.page();
        if file == Path::new("-") {
            return print(&page);
        }
        page_file::write(file, page.as_bytes())?;
        if json { Ok(()) } else { print(&(page_file::url(file) + "\n")) }
    }

    /// Stores the result with the run: its figures as a part of the run's document, its shares as a table. A failure is
    /// reported, and the result is printed all the same.
    pub fn store(&self, dir: &Path) {
        let stored = store::write_shares(dir, &self.shares())
            .and_then(|()| store::add_part(dir, "explain", self.summary_json()));
        if let Err(error) = stored {
            print_message(format_args!("note: the explanation is not stored: {error}"));
        }
    }

    fn write_shares(&self, file: &Path) -> Result<()> {
        let mut table = store::PartWriter::begin(file)?;
        if let Err(error) = table.append(&self.shares()) {
            table.discard();
            return Err(error.into());
        }
        table.finish()?;
        Ok(())
    }

    /// A row for each share of each response.
    fn shares(&self) -> Vec<ShareRow> {
        let of = |(label, explained): (&Label, &explain::Explained)| -> Vec<ShareRow> {
            let explanation = &explained.explanation;
            let whole = ShareRow {
                distance_ns: explained.distance_ns,
                response_time_ns: explanation.response_time_ns(),
                ..label.row
            };
            let row = |share: explain::Share| ShareRow {
                cause: share.cause,
                time_ns: share.time_ns,
                confidence: share.confidence,
                rule: share.rule,
                ..whole
            };
            explanation.shares().into_iter().map(row).collect()
        };
        self.labels.iter().zip(&self.responses).flat_map(of).collect()
    }

    /// Sentence, tables, slowest responses, notes.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// The figures of all responses, without the single ones.
    pub fn summary_json(&self) -> serde_json::Value {
        let mut document =
            serde_json::json!({ "schema": "yamabiko.explain/1", "summary": self.summary, "notes": self.notes });
        if let Some(tried) = &self.tried {
            document["try"] = serde_json::json!(tried);
        }
        document
    }

    fn json(&self) -> serde_json::Value {
        let mut document = self.summary_json();
        if let Some(run) = &self.document {
            let (id, command, verdict) = (&run.run.id, &run.run.command, run.validity.verdict);
            document["run"] = serde_json::json!({ "id": id, "command": command, "verdict": verdict });
        }
        document["responses"] = self.rows().into();
        document
    }

    /// Each response with what identifies it, its facts, and shares.
    fn rows(&self) -> Vec<serde_json::Value> {
        let row = |(label, explained): (&Label, &explain::Explained)| {
            let explanation: &Explanation = &explained.explanation;
            let mut row = label.json.clone();
            if let Some(distance) = explained.distance_ns {
                row.insert("distance_ns".into(), distance.into());
            }
            row.insert("response_time_ns".into(), explanation.response_time_ns().into());
            row.insert("shares".into(), serde_json::json!(explanation.shares()));
            row.insert("facts".into(), serde_json::json!(explanation.facts));
            serde_json::Value::Object(row)
        };
        self.labels.iter().zip(&self.responses).map(row).collect()
    }

    fn page(&self) -> String {
        let example = |(place, evidence): &(usize, Evidence)| ExplainedResponse {
            label: self.labels[*place].text.clone(),
            explanation: &self.responses[*place].explanation,
            sequence: explain::time_sequence(evidence),
        };
        let sources = ExplainSources {
            title: self.title.clone(),
            command: self.document.as_ref().map(|document| document.run.command.clone()).unwrap_or_default(),
            validity: self.document.as_ref().map(|document| &document.validity),
            summary: &self.summary,
            examples: self.examples.iter().map(example).collect(),
            notes: &self.notes,
            tried: self.tried.as_ref().map(Try::text),
        };
        report::explain_page(&sources).into_html()
    }
}
