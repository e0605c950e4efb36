//! Shells and readers of manual pages that Debian packages: they take the scripts and pages that the program writes.
//! (bash, which is everywhere, is in `runs_shell.rs`.)

use std::fs;
use std::process::{Command, Stdio};

use crate::support::lab::{Output, Room, str_of, yamabiko};
use crate::support::shelf::{ended, id};

fn run(room: &Room, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    let path = format!("{}:{}", str_of(yamabiko().parent().unwrap()), std::env::var("PATH").unwrap());
    command.args(arguments).env("PATH", path).env("HOME", room.path()).stdin(Stdio::null());
    room.start_command(command).finish()
}

#[test]
fn zsh_completes_runs_with_the_generated_script() {
    let room = Room::shared();
    ended(&room.runs(), "bench", 0, "yamabiko bench", 1);
    fs::create_dir(room.path().join("functions")).unwrap();
    let script = room.run(&["completions", "zsh"]).success().stdout;
    fs::write(room.path().join("functions/_yamabiko"), script).unwrap();
    let loaded = run(
        &room,
        "zsh",
        &[
            "-f",
            "-c",
            "setopt warn_create_global; fpath=($PWD/functions $fpath); autoload -Uz compinit && compinit -u -d $PWD/dump; \
             print -r -- ${_comps[yamabiko]}; autoload -Uz +X _yamabiko && zsh -n $PWD/functions/_yamabiko && print whole",
        ],
    )
    .success();
    assert!(loaded.stdout == "_yamabiko\nwhole\n" && loaded.stderr.is_empty(), "{loaded}");
}

#[test]
fn fish_completes_verbs_and_runs() {
    let room = Room::shared();
    let run_id = id(&ended(&room.runs(), "bench", 0, "yamabiko bench", 1));
    let offered = |line: &str| {
        let script = format!("yamabiko completions fish | source; and complete -C '{line}'");
        let output = run(&room, "fish", &["--no-config", "-c", &script]).success();
        assert!(output.stderr.is_empty(), "{output}");
        output.stdout
    };
    assert!(offered("yamabiko ben").contains("bench"));
    assert!(offered("yamabiko report 2026").contains(&run_id));
    assert!(offered("yamabiko runs delete 2026").contains(&run_id));
    assert!(!offered("yamabiko bench 2026").contains(&run_id));
}

#[test]
fn man_pages_have_no_formatting_errors() {
    let room = Room::shared();
    let folder = room.path().join("man");
    room.run(&["man", str_of(&folder)]).success();
    let mut pages: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|entry| str_of(&entry.unwrap().path()).to_owned()).collect();
    pages.sort();
    assert!(pages.len() > 20, "{pages:?}");
    for page in &pages {
        // Errors and warnings; a page without a date, since it is made anew with each version, is a matter of style.
        let judged = run(&room, "mandoc", &["-Tlint", "-Wwarning", page]);
        let faults: Vec<&str> = judged.stdout.lines().filter(|line| !line.contains("missing date")).collect();
        assert!(faults.is_empty(), "{page}: {faults:#?}");
        let shown = run(&room, "man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page]).success();
        assert!(shown.stderr.is_empty(), "{page}: {shown}");
    }
}
