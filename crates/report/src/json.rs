//! JSON output (`--json`) of the list of runs and of disk usage.

use std::collections::BTreeMap;
use std::path::Path;

use schema::{Quantiles, Verdict};
use serde::Serialize;
use store::{DiskUse, RunEntry, RunState};

/// The list of runs as one JSON document: `{ "schema": "yamabiko.runs/2", "runs": [ .. ] }`, in the order given. Each
/// run has `id`, `dir` and `state` (`finished`, `running`, `unfinished`, `unreadable`), and `tags` if it has any. A
/// finished run also has `url` if it requested one, and, without a load of its own, `answer` (the result, by
/// `sentence`). Fields that do not apply to a state are absent.
///
/// # Errors
/// None for entries read from a run store, because their figures come from JSON.
pub fn runs(entries: &[RunEntry], sentence: impl Fn(&RunEntry) -> Option<String>) -> serde_json::Result<String> {
    let runs = entries.iter().map(|entry| one(entry, &sentence)).collect();
    serde_json::to_string_pretty(&List { schema: "yamabiko.runs/2", runs })
}

/// The disk usage of runs as one JSON document: `{ "schema": "yamabiko.disk_use/2", "runs": [ .. ], "total": .. }`.
/// Each has `bytes`, `bytes_on_disk`, `files` and `parts` (bytes by table, of histogram logs `hlog`, of the rest
/// `other`).
///
/// # Errors
/// None.
pub fn disk_use(runs: &[(String, DiskUse)], total: &DiskUse) -> serde_json::Result<String> {
    let used = |used: &DiskUse| {
        serde_json::json!({
            "bytes": used.bytes, "bytes_on_disk": used.bytes_on_disk, "files": used.files, "parts": used.parts,
        })
    };
    let one = |(id, taken): &(String, DiskUse)| {
        let mut one = used(taken);
        one["id"] = id.as_str().into();
        one
    };
    let runs: Vec<serde_json::Value> = runs.iter().map(one).collect();
    serde_json::to_string_pretty(
        &serde_json::json!({ "schema": "yamabiko.disk_use/2", "runs": runs, "total": used(total) }),
    )
}

#[derive(Serialize)]
struct List<'a> {
    schema: &'static str,
    runs: Vec<ListedRun<'a>>,
}

#[derive(Default, Serialize)]
struct ListedRun<'a> {
    id: &'a str,
    dir: Option<&'a Path>,
    state: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
    #[serde(flatten)]
    finished: Option<Finished<'a>>,
    #[serde(flatten)]
    load: Option<LoadFigures<'a>>,
    #[serde(flatten)]
    parts: Option<Parts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

#[derive(Serialize)]
struct Finished<'a> {
    started_at: &'a str,
    duration_s: f64,
    command: &'a str,
    verb: &'a str,
    verdict: Verdict,
    #[serde(skip_serializing_if = "str::is_empty")]
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

#[derive(Serialize)]
struct LoadFigures<'a> {
    offered_rate_per_s: f64,
    achieved_rate_per_s: f64,
    failed: &'a BTreeMap<String, u64>,
    response_time_ns: &'a Quantiles,
}

/// Closed parts of the requests, and requests in them.
#[derive(Serialize)]
struct Parts {
    parts: usize,
    rows: u64,
}

fn one(entry: &RunEntry, sentence: impl Fn(&RunEntry) -> Option<String>) -> ListedRun<'_> {
    let mut one = ListedRun { id: &entry.id, dir: Some(&entry.dir), tags: &entry.tags, ..ListedRun::default() };
    match &entry.state {
        RunState::Finished(brief) => {
            one.state = "finished";
            one.finished = Some(Finished {
                started_at: &brief.started_at,
                duration_s: brief.duration_s,
                command: &brief.command,
                verb: brief.verb(),
                verdict: brief.verdict,
                url: &brief.url,
                answer: if brief.load.is_none() { sentence(entry) } else { None },
            });
            one.load = brief.load.as_ref().map(|load| LoadFigures {
                offered_rate_per_s: load.offered_rate_per_s,
                achieved_rate_per_s: load.achieved_rate_per_s,
                failed: &load.failed,
                response_time_ns: &load.response_time_ns,
            });
        }
        RunState::Running { parts, rows } => {
            one.state = "running";
            one.parts = Some(Parts { parts: *parts, rows: *rows });
        }
        RunState::Unfinished { parts, rows } => {
            one.state = "unfinished";
            one.parts = Some(Parts { parts: *parts, rows: *rows });
        }
        RunState::Unreadable { why } => {
            one.state = "unreadable";
            one.why = Some(why);
        }
        // The enum is non-exhaustive: states of a later version of the run store.
        _ => one.state = "unknown",
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::document::{Document, Load, Run, SCHEMA, Validity};
    use store::Brief;

    #[test]
    fn json_entry_of_a_run_has_the_fields_of_its_state() {
        let document = Document {
            schema: SCHEMA.into(),
            run: Run { started_at: "2026-11-20T09:30:05.000Z".into(), ..Run::default() },
            validity: Validity::from_checks(Vec::new()),
            load: Some(Load { offered_rate_per_s: 110.0, ..Load::default() }),
            path: None,
            server: None,
            watch: None,
            tap: None,
            slo: None,
            cache: None,
        };
        let entry = |state| RunEntry { id: "a".into(), dir: "/runs/a".into(), state, tags: vec!["t".into()] };
        let search = Brief { load: None, ..Brief::of("a", &document, "", "url = \"http://a/\"") };
        let entries = [
            entry(RunState::Finished(Box::new(Brief::of("a", &document, "", "")))),
            entry(RunState::Unfinished { parts: 3, rows: 30 }),
            entry(RunState::Unreadable { why: "x\u{1b}".into() }),
            entry(RunState::Finished(Box::new(search))),
        ];
        let text = runs(&entries, |entry| Some(format!("found by {}", entry.id))).unwrap();
        let list: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(list["schema"], "yamabiko.runs/2");
        assert_eq!(list["runs"][0]["verdict"], "valid");
        assert_eq!(list["runs"][0]["tags"], serde_json::json!(["t"]));
        assert_eq!(list["runs"][0]["offered_rate_per_s"], 110.0);
        assert_eq!(list["runs"][0].get("parts"), None);
        assert_eq!((&list["runs"][1]["state"], &list["runs"][1]["rows"]), (&"unfinished".into(), &30.into()));
        assert_eq!(list["runs"][1].get("verdict"), None);
        assert_eq!(list["runs"][2]["why"], "x\u{1b}");
        assert!(!text.contains('\u{1b}'));
        assert_eq!(list["runs"][0].get("answer"), None, "a run with a load has figures instead");
        assert_eq!((&list["runs"][3]["url"], &list["runs"][3]["answer"]), (&"http://a/".into(), &"found by a".into()));
    }
}
