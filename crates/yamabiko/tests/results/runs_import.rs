//! `yamabiko runs export` and `import`: from one run store to another.

use std::fs;
use std::process::Command;

use crate::support::stored_runs::{begun, ended, id, naming};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

/// The program with another run store.
fn elsewhere(workspace: &Workspace, arguments: &[&str]) -> Output {
    let mut command = Command::new("/usr/bin/env");
    command.arg(format!("YAMABIKO_RUNS={}", str_of(&workspace.path().join("other"))));
    command.arg(yamabiko()).args(arguments).stdin(std::process::Stdio::null());
    workspace.start_command(command).finish()
}

#[test]
fn exported_runs_are_imported_and_reported_in_another_run_store() {
    let workspace = Workspace::shared();
    let store = workspace.runs();
    let (a, b) =
        (ended(&store, "a", 0, "yamabiko bench http://server/a", 100), ended(&store, "b", 1, "yamabiko bench", 1));
    workspace.run(&["runs", "tag", &id(&a), "kept"]).success();
    let (one, two) = (workspace.file("one.tar.gz"), workspace.file("two.tar.gz"));
    let written = workspace.run(&["runs", "export", &id(&a), &id(&b), str_of(&one)]).success();
    assert!(written.stderr.contains("5 files") && written.stdout.is_empty(), "{written}");
    workspace.run(&["runs", "export", &id(&a), &id(&b), str_of(&two)]).success();
    assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap(), "the same runs make the same bytes");

    let imported = elsewhere(&workspace, &["runs", "import", str_of(&one)]).success();
    assert_eq!(imported.stdout, format!("{}\n{}\n", id(&a), id(&b)));
    let report = elsewhere(&workspace, &["report", &id(&a), "--json"]).success().json();
    assert_eq!(report["run"]["command"], "yamabiko bench http://server/a");
    let found = elsewhere(&workspace, &["runs", "search", "--tag", "kept", "--json"]).success().json();
    assert_eq!(found["runs"][0]["id"], id(&a));

    // Again: refused, unless they may have other names.
    elsewhere(&workspace, &["runs", "import", str_of(&one)]).refused(1, &[&id(&a), "--rename", "Nothing was imported"]);
    let renamed = elsewhere(&workspace, &["runs", "import", "--rename", str_of(&one)]).success();
    assert!(renamed.stdout.contains(&format!("renamed from {}", id(&a))), "{renamed}");
    let list = elsewhere(&workspace, &["runs", "--json"]).success().json();
    assert_eq!(list["runs"].as_array().unwrap().len(), 4);
}

/// An imported experiment may name local runs: by coincidence of names, or on purpose.
#[test]
fn deleting_an_imported_experiment_keeps_local_runs() {
    let workspace = Workspace::shared();
    let store = workspace.runs();
    let trials: Vec<String> = (1..4).map(|second| id(&ended(&store, "trial", second, "yamabiko bench", 1))).collect();
    let suite = naming(&store, "suite", 0, &trials);
    // A forged mark has no effect.
    fs::write(suite.join("imported.txt"), "").unwrap();
    let archive = workspace.file("suite.tar.gz");
    let pack = |runs: &[&str]| {
        let status = Command::new("tar").arg("-czf").arg(&archive).arg("-C").arg(&store).args(runs).status().unwrap();
        assert!(status.success());
    };
    let (suite, all) = (id(&suite), trials.clone());
    pack(&[&suite, &all[0]]);

    // The other run store has made the second and the third itself.
    let other = workspace.path().join("other");
    fs::create_dir(&other).unwrap();
    for second in [2, 3] {
        ended(&other, "trial", second, "yamabiko bench", 1);
    }
    elsewhere(&workspace, &["runs", "import", str_of(&archive)]).success();
    let one = elsewhere(&workspace, &["runs", "delete", "--yes", &trials[1]]).success();
    assert!(!one.stderr.contains("refers to this run"), "{one}");
    let with = elsewhere(&workspace, &["runs", "delete", "--yes", "--trials", &suite]).success();
    assert!(with.stderr.contains("2 runs deleted"), "the suite, and the trial that came with it: {with}");
    let list = elsewhere(&workspace, &["runs", "--json"]).success().json();
    let left: Vec<&str> = list["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(left, [&trials[2]]);

    // Imported one after the other they are unrelated, and marks are not exported.
    elsewhere(&workspace, &["runs", "import", str_of(&archive)]).success();
    elsewhere(&workspace, &["runs", "delete", "--yes", &trials[0]]).success();
    pack(&[&trials[0]]);
    elsewhere(&workspace, &["runs", "import", str_of(&archive)]).success();
    let without = elsewhere(&workspace, &["runs", "delete", "--yes", "--trials", &suite]).success();
    assert!(without.stderr.contains("1 run deleted"), "{without}");
    let again = workspace.file("again.tar.gz");
    elsewhere(&workspace, &["runs", "export", &trials[0], str_of(&again)]).success();
    let names = Command::new("tar").arg("-tzf").arg(&again).output().unwrap().stdout;
    assert!(!String::from_utf8_lossy(&names).contains("imported"), "{}", String::from_utf8_lossy(&names));
}

#[test]
fn invalid_archives_are_refused_in_one_line() {
    let workspace = Workspace::shared();
    let a = ended(&workspace.runs(), "a", 0, "yamabiko bench", 1);
    let going_on = begun(&workspace.runs(), "b", 1);
    let file = workspace.file("x.tar.gz");
    workspace.run(&["runs", "export", going_on.id(), str_of(&file)]).refused(1, &["it is still running"]);
    workspace.run(&["runs", "export", &id(&a), going_on.id()]).refused(1, &["is a run", "expected the file to write"]);
    workspace.run(&["runs", "export", &id(&a)]).refused(1, &["runs export"]);
    workspace.run(&["runs", "export", &id(&a), "/no/such/folder/x.tar.gz"]).refused(2, &["/no/such/folder"]);
    assert!(!file.exists());
    workspace.run(&["runs", "import", "/no/such/file"]).refused(2, &["/no/such/file"]);

    // A file that is not an archive, a truncated one, and one with paths outside.
    let bad = workspace.file("bad.tar.gz");
    fs::write(&bad, "no archive").unwrap();
    elsewhere(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["not imported", "not a valid gzip file"]);
    workspace.run(&["runs", "export", &id(&a), str_of(&file)]).success();
    let whole = fs::read(&file).unwrap();
    fs::write(&bad, &whole[..whole.len() / 2]).unwrap();
    elsewhere(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["not imported"]);
    let pack = |arguments: &[&str]| {
        let status = Command::new("tar").current_dir(workspace.path()).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    fs::write(workspace.path().join("evil"), "x").unwrap();
    pack(&["-Pczf", str_of(&bad), "--transform", "s,evil,../evil,", "evil"]);
    elsewhere(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["leaves its folder"]);
    std::os::unix::fs::symlink("/etc/passwd", a.join("link")).unwrap();
    pack(&["-czf", str_of(&bad), "-C", str_of(&workspace.runs()), &id(&a)]);
    elsewhere(&workspace, &["runs", "import", str_of(&bad)]).refused(1, &["a link"]);
    elsewhere(&workspace, &["runs", "import", "--limit", "1KB", str_of(&file)]).refused(1, &["1000 bytes", "--limit"]);
    assert_eq!(fs::read_dir(workspace.path().join("other")).unwrap().count(), 0, "nothing is left of them");
}
