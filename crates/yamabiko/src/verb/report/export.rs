//! `report --export FORMAT FILE`: writes a run in a format of another tool.

#[cfg(feature = "export")]
pub mod open_telemetry;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use plan::{HttpVersion, Plan};
use report::export::{self, Archive, Figures, RequestTarget};
use schema::Document;
use schema::Record;

use crate::args;
use crate::exit::{self, Exit};
use crate::page_file;
use crate::terminal::print_message;

/// Writes the run in `format` into `file`. The exit status is that of the run.
pub fn run(dir: &Path, format: &str, file: &str, arguments: &args::Report) -> Result<Exit> {
    let of = |formats: &[&str]| formats.contains(&format);
    ensure!(FORMATS.contains(&format), "--export {format}: there are {}", FORMATS.join(", "));
    ensure!(arguments.table.is_none() || of(&["csv", "jsonl"]), "--table goes with --export csv or jsonl");
    ensure!(arguments.limit.is_none() || format == "har", "--limit goes with --export har");
    let document = store::read_summary(dir)?;
    match format {
        "csv" | "jsonl" => {
            let table = arguments.table.as_deref().unwrap_or("series");
            write_output(file, |out| rows(dir, format, table, out))?;
        }
        #[cfg(feature = "export")]
        "otlp" => write_output(file, |out| Ok(out.write_all(&open_telemetry::message(dir)?)?))?,
        #[cfg(not(feature = "export"))]
        "otlp" => bail!(crate::left_out::missing("--export otlp", "export")),
        _ => {
            let text = text(dir, format, &document, arguments.limit)?;
            write_output(file, |out| Ok(out.write_all(text.as_bytes())?))?;
        }
    }
    Ok(exit::of_document(&document, false))
}

fn text(dir: &Path, format: &str, document: &Document, limit: Option<u64>) -> Result<String> {
    let response_times = || -> Result<_> {
        ensure!(document.load.is_some(), NO_LOAD);
        Ok(store::read_histogram(dir, "response_time")?)
    };
    Ok(match format {
        "fortio" => {
            let url = plan(dir).map(|plan| plan.load.url).unwrap_or_default();
            export::fortio(document, &response_times()?, &url).context(NO_LOAD)?
        }
        "hlog" => {
            let log = dir.join("response_time.hlog");
            fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?
        }
        "hgrm" => export::hgrm(&response_times()?),
        "har" => archive(dir, document, limit.unwrap_or(HAR_ENTRIES_DEFAULT))?,
        "prometheus" => export::prometheus(&export::metrics(&Figures::read(dir)?)),
        "openmetrics" => export::openmetrics(&export::metrics(&Figures::read(dir)?)),
        other => bail!("--export {other} is not a format: expected {}", FORMATS.join(", ")),
    })
}

/// Methods and URLs of the run's requests, by index. Empty, with a message, if the plan cannot be read.
pub fn request_targets(dir: &Path) -> Vec<RequestTarget> {
    let requests = plan(dir).and_then(|plan| testbed::requests_of(&plan).map_err(anyhow::Error::from));
    match requests {
        Ok(requests) => requests.into_iter().map(|(method, url)| RequestTarget { method, url }).collect(),
        Err(error) => {
            print_message(format_args!("note: methods and URLs of the requests are unknown: {}", error.root_cause()));
            Vec::new()
        }
    }
}

fn archive(dir: &Path, document: &Document, limit: u64) -> Result<String> {
    ensure!(document.load.is_some(), NO_LOAD);
    let recorded = document.run.recorded.context("the run stored no table of requests")?;
    let version = match plan(dir).map(|plan| plan.load.http).unwrap_or_default() {
        HttpVersion::Http10 => "HTTP/1.0",
        HttpVersion::Http11 => "HTTP/1.1",
        HttpVersion::Http2 => "HTTP/2",
        HttpVersion::Http3 => "HTTP/3",
    };
    let targets = request_targets(dir);
    let archive = Archive {
        run: &document.run.id,
        zero_unix_ms: store::unix_ms(&document.run.started_at).context("the run's start cannot be read")?,
        version,
        targets: &targets,
        of: recorded.requests,
        limit,
    };
    let (text, entries) = export::har(&archive, store::read_requests(dir)?).map_err(unwrap_store_error)?;
    if (entries as u64) < recorded.requests {
        print_message(format_args!(
            "{entries} of {} requests, an even sample; --limit {} takes them all",
            recorded.requests, recorded.requests
        ));
    }
    Ok(text)
}

/// Writes one table of the run as text.
fn rows(dir: &Path, format: &str, table: &str, out: &mut dyn Write) -> Result<()> {
    fn of<R: Record>(rows: store::Result<store::Rows<R>>, format: &str, out: &mut dyn Write) -> Result<()> {
        let mut rows = rows?;
        let written = if format == "csv" { export::csv(&mut rows, out) } else { export::jsonl(&mut rows, out) };
        written.map(drop).map_err(unwrap_store_error)
    }
    match table {
        "requests" => of(store::read_requests(dir), format, out),
        "series" => of(store::read_series(dir), format, out),
        "server_series" => of(store::read_server_series(dir), format, out),
        "connections" => of(store::read_connections(dir), format, out),
        "wire_requests" => of(store::read_wire_requests(dir), format, out),
        "watch_series" => of(store::read_watch_series(dir), format, out),
        "http2_frames" => of(store::read_http2_frames(dir), format, out),
        "tcp_samples" => of(store::read_tcp_samples(dir), format, out),
        "server_waits" => of(store::read_server_waits(dir), format, out),
        "shares" => of(store::read_shares(dir), format, out),
        "taps" => of(store::read_taps(dir), format, out),
        "cache_exchanges" => of(store::read_cache_exchanges(dir), format, out),
        "distributions" => of(store::read_distributions(dir), format, out),
        other => {
            let names: Vec<&str> = store::columns().iter().map(|table| table.name).collect();
            bail!("--table {other} is not a table of this run: expected {}", names.join(", "))
        }
    }
}

fn plan(dir: &Path) -> Result<Plan> {
    // A plan of a later version may be unreadable.
    Ok(Plan::from_toml(&store::read_plan(dir)?, "plan.toml")?)
}

/// Takes an error of the run store out of the io::Error that a writer returned.
fn unwrap_store_error(error: io::Error) -> anyhow::Error {
    match error.downcast::<store::StoreError>() {
        Ok(error) => error.into(),
        Err(error) => error.into(),
    }
}

fn write_output(file: &str, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if file != "-" {
        return page_file::write_by(Path::new(file), fill);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let outcome = fill(&mut out).and_then(|()| Ok(out.flush()?));
    match outcome {
        // A closed pipe (`| head`) is not an error.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
            Ok(())
        }
        outcome => outcome,
    }
}

const FORMATS: [&str; 9] = ["fortio", "hlog", "hgrm", "csv", "jsonl", "har", "prometheus", "openmetrics", "otlp"];
/// Default number of entries of a HAR archive: the developer tools of browsers open archives of this size.
const HAR_ENTRIES_DEFAULT: u64 = 10_000;
const NO_LOAD: &str = "the run has no load, so there is nothing to export";
