//! `yamabiko runs`: list, search, tags, removal, disk use, and the catalogue under it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::stored_runs::{ended, experiment, id, start_run};
use crate::support::workspace::{Workspace, str_of, yamabiko};

/// Ids of the runs in the output of `runs` with these arguments.
fn ids(workspace: &Workspace, arguments: &[&str]) -> Vec<String> {
    let list = workspace.run(&[&["runs"], arguments, &["--json"]].concat()).success().json();
    let runs = list["runs"].as_array().unwrap();
    runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn runs_search_finds_the_matching_runs() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let a = id(&ended(&store, "bench", 0, "yamabiko bench http://server/one --rate 100/s", 100));
    let b = id(&ended(&store, "Release", 60, "yamabiko bench http://server/two", 300));
    let c = id(&ended(&store, "search", 86_400, "yamabiko capacity http://server/three", 200));
    let running = start_run(&store, "now", 90_000);
    let d = running.id().to_owned();
    workspace.run(&["runs", "tag", &b, "v1.2", "host=a"]).success();
    for (arguments, found) in [
        (&[][..], vec![&a, &b, &c, &d]),
        (&["search"], vec![&a, &b, &c, &d]),
        (&["list", "SERVER/O"], vec![&a]),
        (&["search", "bench", "http"], vec![&a, &b]),
        (&["search", "release"], vec![&b]),
        (&["search", "V1.2"], vec![&b]),
        (&["search", "--tag", "v1.2", "--tag", "host=a"], vec![&b]),
        (&["search", "--tag", "v1"], vec![]),
        (&["search", "--verb", "capacity"], vec![&c]),
        (&["search", "--verdict", "valid"], vec![&a, &b, &c]),
        (&["search", "--state", "running"], vec![&d]),
        (&["search", "--until", "2026-11-20"], vec![&a, &b]),
        (&["search", "--since", "2026-11-20T09:31", "--until", "2026-11-21T09:30"], vec![&b, &c]),
        (&["search", "--where", "p99 > 100ms"], vec![&b, &c]),
        (&["search", "--where", "p99 > 100ms, p99 <= 200ms"], vec![&c]),
        (&["search", "--where", "errors > 0%"], vec![]),
        (&["search", "--last", "2"], vec![&c, &d]),
        (&["search", "--no-catalogue", "--last", "1"], vec![&d]),
    ] {
        assert_eq!(ids(&workspace, arguments).iter().collect::<Vec<_>>(), found, "{arguments:?}");
    }
    let list = workspace.run(&["runs"]).success();
    assert!(list.stdout.contains("[host=a] [v1.2]"), "{list}");
    let none = workspace.run(&["runs", "search", "nothing-like-it"]).success();
    assert_eq!(none.stdout, "no run matches\n");
    workspace.run(&["runs", "search", "--where", "p99"]).refused(1, &["`p99` has neither", "p99 > 200ms"]);
    workspace
        .run(&["runs", "search", "--since", "yesterday"])
        .refused(1, &["`yesterday` is not a valid time", "2026-11-20"]);
    workspace.run(&["runs", "search", "--verdict", "good"]).refused(1, &["valid, suspect, invalid"]);
    workspace.run(&["runs", "--json", "search"]).refused(1, &["--json"]);
}

#[test]
fn tags_are_stored_with_the_run() {
    let workspace = Workspace::concurrent();
    let dir = ended(&workspace.runs(), "bench", 0, "yamabiko bench", 1);
    let run = id(&dir);
    let run_tags = |arguments: &[&str]| workspace.run(&[&["runs"], arguments].concat()).success().stdout;
    assert_eq!(run_tags(&["tag", "last"]), format!("{run}: no tags\n"));
    assert_eq!(run_tags(&["tag", "last", "b", "a"]), format!("{run}: a b\n"));
    assert_eq!(fs::read_to_string(dir.join("tags.txt")).unwrap(), "a\nb\n");
    assert_eq!(run_tags(&["untag", &run[..20], "a"]), format!("{run}: b\n"));
    assert_eq!(run_tags(&["untag", "last", "--all"]), format!("{run}: no tags\n"));
    workspace.run(&["runs", "tag", "last", "two words"]).refused(1, &["`two words`", "one word"]);
    workspace.run(&["runs", "tag", "last", "a\u{1b}[31m"]).refused(1, &["one word"]);
    workspace.run(&["runs", "untag", "last"]).refused(1, &["<TAGS>"]);
    workspace.run(&["runs", "tag", "missing", "x"]).refused(1, &["no run `missing`"]);
    // Control characters in a tag file are not printed.
    fs::write(dir.join("tags.txt"), "good\n\u{1b}]0;bad\u{7}\n").unwrap();
    let list = workspace.run(&["runs"]).success().stdout;
    assert!(list.contains("good") && !list.contains("bad") && !list.contains('\u{1b}'), "{list}");
}

#[test]
fn runs_delete_confirms_and_refuses() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let (a, b) = (ended(&store, "a", 0, "yamabiko bench", 1), ended(&store, "b", 1, "yamabiko bench", 1));
    workspace.run(&["runs", "delete", &id(&a)]).refused(1, &["--yes"]);
    assert!(a.exists());

    // On a terminal the program asks for confirmation.
    let on_terminal = |input: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", &format!("'{}' runs delete {}", str_of(&yamabiko()), id(&a)), "/dev/null"]);
        let (running, mut keyboard) = workspace.start_with_input(command);
        keyboard.write_all(input.as_bytes()).unwrap();
        let output = running.finish();
        drop(keyboard);
        output
    };
    let refused = on_terminal("n\n");
    assert!(
        refused.stdout.contains("delete 1 run permanently?") && refused.stdout.contains("nothing was deleted"),
        "{refused}"
    );
    assert!(a.exists());
    let deleted = on_terminal("y\n");
    assert!(deleted.stdout.contains("1 run deleted") && !a.exists() && b.exists(), "{deleted}");

    let running = start_run(&store, "c", 2);
    // If one run cannot be deleted, none is.
    workspace
        .run(&["runs", "delete", "--yes", &id(&b), running.id()])
        .refused(1, &[running.id(), "it is still running"]);
    assert!(running.path().exists() && b.exists());

    // A path outside of the run store, and a symbolic link inside it.
    let outside = workspace.path().join("elsewhere");
    fs::create_dir(&outside).unwrap();
    let other = ended(&outside, "d", 3, "yamabiko bench", 1);
    workspace.run(&["runs", "delete", "--yes", str_of(&other)]).refused(1, &["not a run of this run store"]);
    symlink(&other, store.join(id(&other))).unwrap();
    workspace.run(&["runs", "delete", "--yes", &id(&other)]).refused(1, &["a symbolic link"]);
    assert!(other.join("summary.json").exists());

    // Symbolic links in a run are deleted; their targets stay.
    symlink(&outside, b.join("link")).unwrap();
    workspace.run(&["runs", "delete", "--yes", &id(&b)]).success();
    assert!(!b.exists() && other.join("summary.json").exists());
    assert!(!ids(&workspace, &[]).contains(&id(&b)));
}

#[test]
fn trials_of_an_experiment_are_listed_with_its_name() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let before = id(&ended(&store, "before", 0, "yamabiko bench", 1));
    let trials: Vec<String> = (2..9).map(|second| id(&ended(&store, "trial", second, "yamabiko bench", 1))).collect();
    let named: Vec<String> = trials.iter().chain([&before]).cloned().collect();
    let experiment_id = id(&experiment(&store, "experiment", 1, &named));

    let one = workspace.run(&["runs", "delete", "--yes", &trials[0]]).success();
    assert!(one.stderr.contains(&format!("{experiment_id} refers to this run, which it made")), "{one}");
    workspace.run(&["runs", "delete", &experiment_id]).refused(1, &["--yes"]);
    let with = workspace.run(&["runs", "delete", "--yes", "--trials", &experiment_id]).success();
    assert!(with.stderr.contains("7 runs deleted"), "{with}");
    // A run that the experiment names but did not make is older, and stays.
    assert_eq!(ids(&workspace, &[]), [before.as_str()]);

    let trial = id(&ended(&store, "trial", 20, "yamabiko bench", 1));
    let experiment_id = id(&experiment(&store, "experiment", 19, std::slice::from_ref(&trial)));
    let left = workspace.run(&["runs", "delete", "--yes", &experiment_id]).success();
    assert!(
        left.stderr.contains("not deleted: 1 run that these experiments made") && left.stderr.contains(&trial),
        "{left}"
    );
    assert_eq!(ids(&workspace, &[]), [before, trial]);
}

#[test]
fn disk_usage_is_listed_by_run_and_table() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let (a, b) = (ended(&store, "a", 0, "yamabiko bench", 1), ended(&store, "b", 1, "yamabiko bench", 1));
    fs::write(a.join("requests.parquet"), vec![1; 10_000_000]).unwrap();
    fs::create_dir(b.join("series")).unwrap();
    fs::write(b.join("series/000001.parquet"), vec![1; 20_000_000]).unwrap();
    let page = workspace.run(&["runs", "du"]).success().stdout;
    assert!(page.contains("requests 10.0 MB") || page.contains("requests 10 MB"), "{page}");
    assert!(page.find(&id(&b)) < page.find(&id(&a)), "the largest run is first: {page}");
    let json = workspace.run(&["runs", "du", "--json"]).success().json();
    assert_eq!(json["total"]["parts"]["series"], 20_000_000);
    assert_eq!(json["runs"][1]["parts"]["requests"], 10_000_000);
    let sum: u64 = json["runs"].as_array().unwrap().iter().map(|run| run["bytes"].as_u64().unwrap()).sum();
    assert_eq!(json["total"]["bytes"], sum);
    let one = workspace.run(&["runs", "du", &id(&a), "--json"]).success().json();
    assert_eq!(one["runs"].as_array().unwrap().len(), 1);
}

/// Without a catalogue, or with a corrupt one, the list is the same.
#[test]
fn runs_list_works_without_the_catalogue() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    for second in 0..5 {
        ended(&store, "bench", second, "yamabiko bench", 1);
    }
    let expected = workspace.run(&["runs", "--no-catalogue"]).success().stdout;
    let catalogue = store.join("catalogue.sqlite");
    assert!(!catalogue.exists());
    let assert_same_list = || assert_eq!(workspace.run(&["runs"]).success().stdout, expected);
    assert_same_list();
    assert!(catalogue.exists());
    assert_same_list();
    fs::write(&catalogue, "broken".repeat(1000)).unwrap();
    assert_same_list();
    fs::write(&catalogue, "").unwrap();
    assert_same_list();
    fs::remove_file(&catalogue).unwrap();
    fs::create_dir(&catalogue).unwrap();
    assert_same_list();
    workspace.run(&["runs", "rebuild"]).refused(1, &["catalogue.sqlite", "without it"]);
    fs::remove_dir(&catalogue).unwrap();
    let rebuilt = workspace.run(&["runs", "rebuild"]).success();
    assert!(rebuilt.stderr.contains("5 runs read") && catalogue.exists(), "{rebuilt}");
    assert_same_list();
}

/// Runs that end during a listing: each is listed once afterwards, and no lock error is printed.
#[test]
fn a_finished_run_is_listed_immediately() {
    let workspace = Workspace::concurrent();
    ended(&workspace.runs(), "first", 0, "yamabiko bench", 1);
    let benches: Vec<_> = (0..3)
        .map(|number| workspace.start(&["bench", "http://127.0.0.1:9/", "-n", "20", "--name", &format!("n{number}")]))
        .collect();
    let lists: Vec<_> = (0..4).map(|_| workspace.start(&["runs", "--json"])).collect();
    for list in lists {
        let list = list.finish().success();
        assert!(list.stderr.is_empty(), "{list}");
    }
    for bench in benches {
        bench.finish();
    }
    assert_eq!(ids(&workspace, &[]).len(), 4);
    assert_eq!(ids(&workspace, &["search", "--no-catalogue"]), ids(&workspace, &[]));
}

#[test]
fn run_names_need_no_shell_quoting() {
    let workspace = Workspace::concurrent();
    let run = id(&ended(&workspace.runs(), "bench", 0, "yamabiko bench", 1));
    fs::create_dir(workspace.runs().join("20260101-000000-$(touch x)-abcd")).unwrap();
    assert_eq!(workspace.run(&["runs", "names"]).success().stdout, format!("{run}\n"));
    assert!(!Path::new("x").exists());
}
