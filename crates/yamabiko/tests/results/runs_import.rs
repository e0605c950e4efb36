//! `yamabiko runs export` and `import`: from one run store to another.

use std::fs;
use std::process::Command;

use crate::support::stored_runs::{ended, experiment, id, start_run};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

/// Runs the program with another run store.
fn in_other_store(workspace: &Workspace, arguments: &[&str]) -> Output {
    let mut command = Command::new("/usr/bin/env");
    command.arg(format!("YAMABIKO_RUNS={}", str_of(&workspace.path().join("other"))));
    command.arg(yamabiko()).args(arguments).stdin(std::process::Stdio::null());
    workspace.start_command(command).finish()
}

#[test]
fn exported_runs_are_imported_and_reported_in_another_run_store() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let (a, b) =
        (ended(&store, "a", 0, "yamabiko bench http://server/a", 100), ended(&store, "b", 1, "yamabiko bench", 1));
    workspace.run(&["runs", "tag", &id(&a), "release"]).success();
    let (one, two) = (workspace.file("one.tar.gz"), workspace.file("two.tar.gz"));
    let written = workspace.run(&["runs", "export", &id(&a), &id(&b), str_of(&one)]).success();
    assert!(written.stderr.contains("5 files") && written.stdout.is_empty(), "{written}");
    workspace.run(&["runs", "export", &id(&a), &id(&b), str_of(&two)]).success();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap(), "exporting the same runs twice gives the same bytes");

    let imported = in_other_store(&workspace, &["runs", "import", str_of(&one)]).success();
    assert_eq!(imported.stdout, format!("{}\n{}\n", id(&a), id(&b)));
    let report = in_other_store(&workspace, &["report", &id(&a), "--json"]).success().json();
    assert_eq!(report["run"]["command"], "yamabiko bench http://server/a");
    let found = in_other_store(&workspace, &["runs", "search", "--tag", "release", "--json"]).success().json();
    assert_eq!(found["runs"][0]["id"], id(&a));

    // A second import is refused without --rename.
    in_other_store(&workspace, &["runs", "import", str_of(&one)])
        .refused(1, &[&id(&a), "--rename", "Nothing was imported"]);
    let renamed = in_other_store(&workspace, &["runs", "import", "--rename", str_of(&one)]).success();
    assert!(renamed.stdout.contains(&format!("renamed from {}", id(&a))), "{renamed}");
    let list = in_other_store(&workspace, &["runs", "--json"]).success().json();
    assert_eq!(list["runs"].as_array().unwrap().len(), 4);
}

/// An imported experiment may name local runs, by coincidence or on purpose.
#[test]
fn deleting_an_imported_experiment_keeps_local_runs() {
    let workspace = Workspace::concurrent();
    let store = workspace.runs();
    let trials: Vec<String> = (1..4).map(|second| id(&ended(&store, "trial", second, "yamabiko bench", 1))).collect();
    let experiment_dir = experiment(&store, "suite", 0, &trials);
    // A forged import mark has no effect.
    fs::write(experiment_dir.join("imported.txt"), "").unwrap();
    let archive = workspace.file("suite.tar.gz");
    let pack = |runs: &[&str]| {
        let status = Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&store).args(runs).status().unwrap();
        assert!(status.success());
    };
    let (experiment_id, all) = (id(&experiment_dir), trials.clone());
    pack(&[&experiment_id, &all[0]]);

    // The second and third trial were made in the other run store.
    let other = workspace.path().join("other");
    fs::create_dir(&other).unwrap();
    for second in [2, 3] {
        ended(&other, "trial", second, "yamabiko bench", 1);
    }
    in_other_store(&workspace, &["runs", "import", str_of(&archive)]).success();
    let one = in_other_store(&workspace, &["runs", "delete", "--yes", &trials[1]]).success();
    assert!(!one.stderr.contains("refers to this run"), "{one}");
    let with = in_other_store(&workspace, &["runs", "delete", "--yes", "--trials", &experiment_id]).success();
    assert!(with.stderr.contains("2 runs deleted"), "the experiment and its imported trial: {with}");
    let list = in_other_store(&workspace, &["runs", "--json"]).success().json();
    let left: Vec<&str> = list["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(left, [&trials[2]]);

    // Runs from separate imports are unrelated, and import marks are not exported.
    in_other_store(&workspace, &["runs", "import", str_of(&archive)]).success();
    in_other_store(&workspace, &["runs", "delete", "--yes", &trials[0]]).success();
    pack(&[&trials[0]]);
    in_other_store(&workspace, &["runs", "import", str_of(&archive)]).success();
    let without = in_other_store(&workspace, &["runs", "delete", "--yes", "--trials", &experiment_id]).success();
    assert!(without.stderr.contains("1 run deleted"), "{without}");
    let again = workspace.file("again.tar.gz");
    in_other_store(&workspace, &["runs", "export", &trials[0], str_of(&again)]).success();
    let names = Command::new("tar").arg("-tzf").arg(&again).output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&names).contains("imported"), "{}", String::from_utf8_lossy(&names));
}

#[test]
fn invalid_archives_are_refused_in_one_line() {
    let workspace = Workspace::concurrent();
    let a = ended(&workspace.runs(), "a", 0, "yamabiko bench", 1);
    let running = start_run(&workspace.runs(), "b", 1);
    let file = workspace.file("x.tar.gz");
    workspace.run(&["runs", "export", running.id(), str_of(&file)]).refused(1, &["it is still running"]);
    workspace.run(&["runs", "export", &id(&a), running.id()]).refused(1, &["is a run", "expected the file to write"]);
    workspace.run(&["runs", "export", &id(&a)]).refused(1, &["runs export"]);
    workspace.run(&["runs", "export", &id(&a), "/no/such/folder/x.tar.gz"]).refused(2, &["/no/such/folder"]);
    assert!(!file.exists());
    workspace.run(&["runs", "import", "/no/such/file"]).refused(2, &["/no/such/file"]);

    // A file that is not an archive, a truncated one, and one with paths outside.
    let bad = workspace.file("bad.tar.gz");
    fs::write(&bad, "no archive").unwrap();
    in_other_store(&workspace, &["runs", "import", str_of(&bad)])
        .refused(1, &["not imported", "not a valid gzip file"]);
    workspace.run(&["runs", "export", &id(&a), str_of(&file)]).success();
    let complete = fs::read(&file).unwrap();
    fs::write(&bad, &complete[..complete.len() / 2]).unwrap();
    in_other_store(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["not imported"]);
    let pack = |arguments: &[&str]| {
        let status = Command::new("tar").current_dir(workspace.path()).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    fs::write(workspace.path().join("evil"), "x").unwrap();
    pack(&["-Pczf", str_of(&bad), "--transform", "s,evil,../evil,", "evil"]);
    in_other_store(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["leaves its folder"]);
    std::os::unix::fs::symlink("/etc/passwd", a.join("link")).unwrap();
    pack(&["-czf", str_of(&bad), "-C", str_of(&workspace.runs()), &id(&a)]);
    in_other_store(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["a link"]);
    in_other_store(&workspace, &["runs", "import", "--limit", "1KB", str_of(&file)])
        .refused(1, &["1000 bytes", "--limit"]);
    assert_eq!(fs::read_dir(workspace.path().join("other")).unwrap().count(), 0, "no files of a refused import remain");
}
