//! Reads an access log line by line in bounded memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use load::replay::{LineError, LogLine, LoggedArrival, Reader, ReplaySpec, parse_combined, parse_json};
use load::workload::{Choice, Template};
use load::{RequestSpec, Target, Workload};
use schema::{Method, document};

use crate::error::TestbedError;
use plan::{LoadPlan, LogFormat, ReplayPlan};

/// Longest line. A longer line is not a request: servers limit the request line to a fraction of it.
const LINE_MAX: u64 = 64 << 10;
/// Most requests of a log. More would take gigabytes: 48 bytes each and their texts are stored while a log is read.
const REQUESTS_MAX: usize = 20_000_000;

/// A parsed log.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) arrivals: Vec<LoggedArrival>,
    pub(super) round: Duration,
    pub(super) clients: u32,
    pub(super) workload: Workload,
    /// The document's part; its number of rounds is not known yet.
    pub(super) part: document::Replay,
}

/// Reads the log of `replay`; its requests go to the host of the load's URL, with the load's headers.
pub(super) fn read(replay: &ReplayPlan, load: &LoadPlan) -> Result<Log, TestbedError> {
    let wrong = |why: String| TestbedError::Plan(format!("--replay {}: {why}", replay.file.display()));
    let base = Target::parse(&load.url).map_err(TestbedError::plan)?;
    let template = load.every_request().map_err(TestbedError::Plan)?;
    let file = File::open(&replay.file).map_err(|error| wrong(error.to_string()))?;
    let mut lines = Lines { from: BufReader::with_capacity(1 << 16, file), line: Vec::new() };
    let mut reader = Reader::default();
    let (mut left_out, mut left_out_first) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, u64>::new());
    let (mut format, mut count) = (replay.format, 0);
    while let Some(line) = lines.next().map_err(|error| wrong(error.to_string()))? {
        count += 1;
        if count == 1 && line.is_some_and(|line| line.starts_with(&[0x1f, 0x8b])) {
            return Err(wrong("it is compressed: unpack it first (gunzip -k)".into()));
        }
        let logged = line.ok_or("longer than 64 KiB").and_then(|line| {
            let text = std::str::from_utf8(line).map_err(|_| LineError::NotOfFormat.words())?;
            if format == LogFormat::Auto && !text.trim().is_empty() {
                format = if text.trim_start().starts_with('{') { LogFormat::Json } else { LogFormat::Combined };
            }
            parse(text, format)
        });
        match logged {
            Ok(line) => reader.add(line),
            Err(why) => {
                *left_out.entry(why.to_owned()).or_default() += 1;
                left_out_first.entry(why.to_owned()).or_insert(count);
            }
        }
        if reader.len() > REQUESTS_MAX {
            return Err(wrong(format!("more than {REQUESTS_MAX} requests: replay a part of it (split -l)")));
        }
    }
    let requests_logged = reader.len() as u64;
    if reader.is_empty() {
        let reason = |(why, lines): (&String, &u64)| format!("{lines} {why}, first: line {}", left_out_first[why]);
        let reasons: Vec<String> = left_out.iter().map(reason).collect();
        let reasons = if reasons.is_empty() { "the file is empty".to_owned() } else { reasons.join("; ") };
        return Err(wrong(format!("no line is a request that can be replayed ({reasons})")));
    }
    let spec = ReplaySpec { time_scale: replay.time_scale, clients_max: ::path::AddressPlan::CLIENTS_MAX };
    let log = reader.finish(spec);
    let mut bodies_empty = 0;
    let mut requests = Vec::with_capacity(log.requests.len());
    for logged in log.requests {
        let method = method(&logged.method).expect("other methods were left out");
        if matches!(method, Method::Post | Method::Put | Method::Patch) {
            bodies_empty += logged.times;
        }
        let target = base.with_path(&logged.target);
        let name = (method != Method::Get).then(|| format!("{} {}", method.as_str(), target.url()));
        let path = Template::literal(&target.path_and_query);
        let mut request = RequestSpec { name, method, path, target, weight: logged.times as f64, ..template.clone() };
        if method == Method::Head {
            // A response to HEAD has no body to check.
            (request.expect.length, request.expect.body) = (None, None);
        }
        requests.push(request);
    }
    let part = document::Replay {
        file: replay.file.display().to_string(),
        lines: count,
        requests_logged,
        left_out,
        left_out_first,
        urls: requests.len() as u64,
        clients_logged: log.clients_logged.into(),
        clients: log.clients.into(),
        length_s: log.length.as_secs_f64(),
        time_scale: replay.time_scale,
        rounds: None,
        requests_planned: None,
        bodies_empty,
    };
    Ok(Log {
        arrivals: log.arrivals,
        round: log.length,
        clients: log.clients,
        workload: Workload { requests, choice: Choice::InTurn, cookies: load.cookies, variables: 0 },
        part,
    })
}

/// Length and number of requests of a replay. `run`: warm-up and measured phase together.
fn length(replay: &document::Replay, run: Duration) -> String {
    let round = Duration::from_secs_f64(replay.length_s);
    let times = |rounds: u64| if rounds == 1 { "once".to_owned() } else { format!("{rounds} times") };
    let [run_text, round_text] = [run, round].map(units::format_duration);
    match (replay.rounds, replay.requests_planned) {
        (Some(rounds), Some(requests)) => {
            let whole = replay.length_s * rounds as f64;
            let cut = if run.as_secs_f64() < 0.999 * whole {
                format!(", of which the first {run_text} are run")
            } else {
                String::new()
            };
            format!(
                "the log is replayed {}: {requests} requests in {}{cut}",
                times(rounds),
                units::format_duration(Duration::try_from_secs_f64(whole).unwrap_or(Duration::MAX))
            )
        }
        _ => format!(
            "the log is replayed repeatedly for {run_text}: {} requests in each round of {round_text}",
            replay.requests_logged
        ),
    }
}

/// Lines of a log that are left out or changed in the replay, and its length.
pub(super) fn notes(replay: &document::Replay, run: Duration) -> Vec<String> {
    let mut notes = vec![format!(
        "{}: {} of {} lines are requests, {} different ones by {} clients",
        replay.file, replay.requests_logged, replay.lines, replay.urls, replay.clients_logged
    )];
    notes.push(length(replay, run));
    let first =
        |why: &String| replay.left_out_first.get(why).map(|line| format!(" (first: line {line})")).unwrap_or_default();
    let reason = |(why, lines): (&String, &u64)| format!("{lines}: {why}{}", first(why));
    let reasons: Vec<String> = replay.left_out.iter().map(reason).collect();
    if !reasons.is_empty() {
        notes.push(format!("lines left out: {}", reasons.join("; ")));
    }
    if replay.bodies_empty > 0 {
        notes.push(format!(
            "{} requests with POST, PUT or PATCH are sent with an empty body: logs do not have bodies",
            replay.bodies_empty
        ));
    }
    if replay.clients < replay.clients_logged {
        notes.push(format!("{} logged clients share {} clients", replay.clients_logged, replay.clients));
    }
    notes
}

fn parse(line: &str, format: LogFormat) -> Result<LogLine, &'static str> {
    if line.trim().is_empty() {
        return Err("empty");
    }
    let parsed = if format == LogFormat::Json { parse_json(line) } else { parse_combined(line) };
    let logged = parsed.map_err(LineError::words)?;
    if method(&logged.method).is_none() {
        return Err("unsupported method");
    }
    Ok(logged)
}

fn method(name: &str) -> Option<Method> {
    Method::ALL.into_iter().find(|method| method.as_str() == name)
}

/// The lines of a file; a line that is too long takes no memory.
struct Lines<R> {
    from: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The next line without its end; `Some(None)` for a line that is too long.
    fn next(&mut self) -> std::io::Result<Option<Option<&[u8]>>> {
        self.line.clear();
        let read = self.from.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            return Ok(Some(Some(&self.line)));
        }
        if (read as u64) < LINE_MAX {
            return Ok(Some(Some(&self.line)));
        }
        self.from.skip_until(b'\n')?;
        Ok(Some(None))
    }
}

/// A complete file of at most this many bytes.
pub(super) fn read_bounded(file: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!("it is larger than {} MB", most >> 20)));
    }
    Ok(bytes)
}
