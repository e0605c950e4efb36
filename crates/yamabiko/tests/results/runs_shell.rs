//! `yamabiko completions` and `yamabiko man`: shells accept the completions, and man the pages.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::stored_runs::{ended, id};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

fn bash(workspace: &Workspace, script: &str) -> Output {
    let mut command = Command::new("bash");
    let path = format!("{}:{}", str_of(yamabiko().parent().unwrap()), std::env::var("PATH").unwrap());
    command.args(["--norc", "-c", script]).env("PATH", path).stdin(Stdio::null());
    workspace.start_command(command).finish()
}

/// The completions that bash offers for the last of these words.
fn completions(workspace: &Workspace, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "set -u; source <(yamabiko completions bash) || exit 9; COMP_WORDS=({}); COMP_CWORD={}; \
         _yamabiko_and_runs yamabiko '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let output = bash(workspace, &script).success();
    assert!(output.stderr.is_empty(), "{output}");
    output.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_runs() {
    let workspace = Workspace::concurrent();
    let run = id(&ended(&workspace.runs(), "bench", 0, "yamabiko bench", 1));
    assert_eq!(completions(&workspace, &["yamabiko", "ben"]), ["bench"]);
    assert!(completions(&workspace, &["yamabiko", "bench", "--warm"]).contains(&"--warmup".to_owned()));
    assert!(completions(&workspace, &["yamabiko", "runs", "du"]).contains(&"du".to_owned()));
    for words in
        [&["yamabiko", "report", "2026"][..], &["yamabiko", "runs", "delete", "2026"], &["yamabiko", "compare", "2026"]]
    {
        assert!(completions(&workspace, words).contains(&run), "{words:?}");
    }
    assert!(completions(&workspace, &["yamabiko", "report", "la"]).contains(&"last".to_owned()));
    assert!(!completions(&workspace, &["yamabiko", "bench", "2026"]).contains(&run));
    // Loading the script twice in one shell, with common shell options.
    let twice =
        bash(&workspace, "set -eu; for i in 1 2; do source <(yamabiko completions bash); done; complete -p yamabiko")
            .success();
    assert!(twice.stdout.contains("_yamabiko_and_runs") && twice.stderr.is_empty(), "{twice}");
}

#[test]
fn every_supported_shell_gets_a_completion_script() {
    let workspace = Workspace::concurrent();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = workspace.run(&["completions", shell]).success();
        assert!(script.stdout.contains("yamabiko") && script.stderr.is_empty(), "{script}");
    }
    workspace.run(&["completions", "tcsh"]).refused(1, &["'tcsh'", "bash, elvish, fish, powershell, zsh"]);
    workspace.run(&["completions"]).refused(1, &["<SHELL>"]);
}

#[test]
fn every_verb_has_a_man_page() {
    let workspace = Workspace::concurrent();
    let folder = workspace.path().join("man");
    workspace.run(&["man", str_of(&folder)]).success();
    let page = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("yamabiko.1").contains("yamabiko\\-bench(1)"));
    let help = workspace.run(&["--help"]).success().stdout;
    let verbs = help.lines().skip_while(|line| *line != "Measure:").take_while(|line| *line != "Options:");
    let mut seen = 0;
    for verb in verbs.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' ')) {
        let verb = verb.split_whitespace().next().unwrap();
        if verb != "help" {
            page(&format!("yamabiko-{verb}.1"));
            seen += 1;
        }
    }
    assert!(seen > 15, "{help}");
    assert!(page("yamabiko-bench.1").contains("\\-\\-rate") && page("yamabiko-runs-import.1").contains("\\-\\-rename"));
    assert!(!folder.join("yamabiko-runs-names.1").exists());
    // Every page is complete and names its subject.
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(".TH ") && text.contains("\n.SH NAME\n"), "{}", path.display());
        assert!(!text.contains('\u{1b}'), "{}", path.display());
    }
    workspace.run(&["man", "/dev/null/x"]).refused(2, &["/dev/null/x"]);
}
