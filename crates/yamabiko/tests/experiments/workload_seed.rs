//! `yamabiko run` of a workload against the program's own origin: one seed gives the same requests over every way and
//! number of shards, and every response is verified.

use std::fs;

use crate::support::serving::Serving;
use crate::support::workspace::{Workspace, str_of};
use schema::{CacheContent, CacheExchange, CacheForm};

/// The properties of every request of a run, by its number.
type Requests = Vec<(u64, u8, u64, CacheForm, bool)>;

/// Runs a workload for half a second; returns its requests.
fn requests(workspace: &Workspace, origin: &Serving, load: &str, rest: &str) -> Requests {
    let address = origin.address;
    let plan = format!(
        "seed = 7\n[load]\nurl = \"http://{address}/\"\nrate = \"200/s\"\nduration = \"500ms\"\nclients = 8\n{load}\n\
         [load.workload]\nname = \"modern\"\nset.recurrence = 0.6\nset.forms = {{ ims200 = 0.1, ims304 = 0.1, reload = 0.1 }}\n{rest}"
    );
    let file = workspace.file("workload.toml");
    fs::write(&file, plan).unwrap();
    let document = workspace.run_json(&["run", str_of(&file), "--json"]);
    assert_eq!(document["load"]["failed"].as_object().map(serde_json::Map::len), Some(0), "{document}");
    let point = &document["cache"]["points"][0];
    let wrong: Vec<&String> = point["wrong"].as_object().unwrap().keys().collect();
    assert!(
        wrong.iter().all(|kind| *kind == "false_miss"),
        "without a cache, only false misses are possible: {wrong:?}"
    );
    assert_eq!(point["hits"], 0);
    let folder = document["run"]["dir"].as_str().unwrap();
    let rows: Vec<CacheExchange> =
        store::read_cache_exchanges(folder.as_ref()).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(document["load"]["offered_requests"].as_u64(), Some(rows.len() as u64));
    for row in &rows {
        let has_body = row.status == 200 && row.method == schema::Method::Get;
        let compared = if rest.contains("heads") { CacheContent::NotLooked } else { CacheContent::Right };
        assert!(!has_body || row.content == compared, "{row:?}");
        assert_eq!(row.from_sequence.is_some(), row.status == 200, "{row:?}");
    }
    let mut requests: Requests =
        rows.iter().map(|row| (row.sequence, row.kind, row.object, row.form, row.variant_gzip)).collect();
    requests.sort_unstable_by_key(|request| request.0);
    requests
}

#[test]
fn one_seed_gives_the_same_requests_over_every_way() {
    let workspace = Workspace::concurrent();
    let command = workspace.command(&[
        "serve",
        "--workload",
        "modern",
        "--seed",
        "7",
        "--think",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]);
    let origin = Serving::start_command(&workspace, command);
    let first = requests(&workspace, &origin, "", "");
    assert_eq!(first.len(), 100);
    let forms = [CacheForm::Basic, CacheForm::Ims200, CacheForm::Ims304, CacheForm::Reload];
    assert!(forms.iter().all(|form| first.iter().any(|request| request.3 == *form)), "every form occurs");
    // The origin accepts absolute URLs: it serves as its own proxy.
    let proxy = format!("proxy = \"{}\"", origin.address);
    for (load, rest) in [
        ("", ""),
        (proxy.as_str(), ""),
        ("close = true", ""),
        ("http = \"1.0\"", ""),
        ("", "verify = \"heads\"\n"),
        ("", "[host]\nthreads = 3\n"),
        ("", "[host]\nengine = \"epoll\"\n"),
    ] {
        assert_eq!(requests(&workspace, &origin, load, rest), first, "{load} {rest}");
    }
}
