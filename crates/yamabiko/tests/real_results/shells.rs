//! Shells and manual page readers of Debian accept the scripts and pages that the program writes. (bash, which every
//! machine has, is tested in `runs_shell.rs`.)

use std::fs;
use std::process::{Command, Stdio};

use crate::support::stored_runs::{ended, id};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

fn run(workspace: &Workspace, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    let path = format!("{}:{}", str_of(yamabiko().parent().unwrap()), std::env::var("PATH").unwrap());
    command.args(arguments).env("PATH", path).env("HOME", workspace.path()).stdin(Stdio::null());
    workspace.start_command(command).finish()
}

#[test]
fn zsh_completes_runs_with_the_generated_script() {
    let workspace = Workspace::concurrent();
    ended(&workspace.runs(), "bench", 0, "yamabiko bench", 1);
    fs::create_dir(workspace.path().join("functions")).unwrap();
    let script = workspace.run(&["completions", "zsh"]).success().stdout;
    fs::write(workspace.path().join("functions/_yamabiko"), script).unwrap();
    let loaded = run(
        &workspace,
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
    let workspace = Workspace::concurrent();
    let run_id = id(&ended(&workspace.runs(), "bench", 0, "yamabiko bench", 1));
    let completions = |line: &str| {
        let script = format!("yamabiko completions fish | source; and complete -C '{line}'");
        let output = run(&workspace, "fish", &["--no-config", "-c", &script]).success();
        assert!(output.stderr.is_empty(), "{output}");
        output.stdout
    };
    assert!(completions("yamabiko ben").contains("bench"));
    assert!(completions("yamabiko report 2026").contains(&run_id));
    assert!(completions("yamabiko runs delete 2026").contains(&run_id));
    assert!(!completions("yamabiko bench 2026").contains(&run_id));
}

#[test]
fn man_pages_have_no_formatting_errors() {
    let workspace = Workspace::concurrent();
    let folder = workspace.path().join("man");
    workspace.run(&["man", str_of(&folder)]).success();
    let mut pages: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|entry| str_of(&entry.unwrap().path()).to_owned()).collect();
    pages.sort();
    assert!(pages.len() > 20, "{pages:?}");
    for page in &pages {
        // Errors and warnings of mandoc. The missing date is only a style message, as the pages are generated for each
        // version.
        let judged = run(&workspace, "mandoc", &["-Tlint", "-Wwarning", page]);
        let faults: Vec<&str> = judged.stdout.lines().filter(|line| !line.contains("missing date")).collect();
        assert!(faults.is_empty(), "{page}: {faults:#?}");
        let shown = run(&workspace, "man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page]).success();
        assert!(shown.stderr.is_empty(), "{page}: {shown}");
    }
}
