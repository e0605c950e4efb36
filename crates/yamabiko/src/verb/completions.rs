//! `yamabiko completions`: prints a shell script that completes verbs, options and the names of runs.
//!
//! clap_complete generates the scripts without the names of runs. For bash, zsh and fish this module adds a call of
//! `yamabiko runs names`, which prints only names without special characters, so that a shell never interprets a name.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Arg, Command};
use clap_complete::Shell;

use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::help;

/// Prints the script of a shell.
pub fn run(completions: &args::Completions) -> Result<Exit> {
    print(&script(completions.shell))?;
    Ok(Exit::Success)
}

fn script(shell: Shell) -> String {
    let mut command = help::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, NAME, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let verbs = verbs_of_runs(&command);
    match shell {
        Shell::Bash => script + &bash(&verbs),
        Shell::Zsh => zsh(&script, &ids_of_runs(&command)),
        Shell::Fish => script + &fish(&verbs),
        _ => script,
    }
}

/// Verbs (`report`, `runs tag`) that take the name of a run.
fn verbs_of_runs(command: &Command) -> Vec<String> {
    let takes = |command: &Command| command.get_positionals().any(is_run);
    let mut verbs = Vec::new();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        if takes(verb) {
            verbs.push(verb.get_name().to_owned());
        }
        let below = verb.get_subcommands().filter(|below| takes(below));
        verbs.extend(below.map(|below| format!("{} {}", verb.get_name(), below.get_name())));
    }
    verbs
}

/// The clap IDs of arguments that are runs, which occur in the script of zsh.
fn ids_of_runs(command: &Command) -> BTreeSet<String> {
    let below = command.get_subcommands().flat_map(ids_of_runs);
    let own =
        command.get_positionals().filter(|argument| is_run(argument)).map(|argument| argument.get_id().to_string());
    own.chain(below).collect()
}

fn is_run(argument: &Arg) -> bool {
    let id = argument.get_id().as_str();
    RUNS.contains(&id) || argument.get_value_names().is_some_and(|names| names[0].starts_with("RUN"))
}

fn bash(verbs: &[String]) -> String {
    let cases: Vec<String> = verbs.iter().map(|verb| format!("'{verb}'")).collect();
    format!(
        r#"
_yamabiko_and_runs() {{
    _yamabiko "$@"
    local verb="${{COMP_WORDS[1]}}" word="${{COMP_WORDS[COMP_CWORD]}}" at=2
    if [[ "$verb" == runs ]]; then
        verb="runs ${{COMP_WORDS[2]}}" at=3
    fi
    if [[ "$word" == -* || "$COMP_CWORD" -lt "$at" ]]; then
        return 0
    fi
    case "$verb" in
        {})
            COMPREPLY+=( $(compgen -W "last $(yamabiko runs names 2>/dev/null)" -- "$word") )
            ;;
    esac
    return 0
}}
complete -F _yamabiko_and_runs -o bashdefault -o default yamabiko
"#,
        cases.join("|")
    )
}

fn zsh(script: &str, ids: &BTreeSet<String>) -> String {
    let mut text = String::with_capacity(script.len() + 512);
    for line in script.lines() {
        let of_run = ids.iter().any(|id| {
            ["'", "'*", "'*:", "':", "'::", "'*::"].iter().any(|front| line.starts_with(&format!("{front}{id} -- ")))
        });
        if line.starts_with("if [ \"$funcstack[1]\"") {
            text.push_str(ZSH_RUNS);
        }
        match line.strip_suffix(":_default' \\").filter(|_| of_run) {
            Some(front) => text.push_str(&format!("{front}:_yamabiko_runs' \\\n")),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

fn fish(verbs: &[String]) -> String {
    let mut text = String::new();
    for verb in verbs {
        let seen: Vec<String> = verb.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}")).collect();
        text.push_str(&format!(
            "complete -c yamabiko -n \"{}\" -a \"last (yamabiko runs names 2>/dev/null)\"\n",
            seen.join("; and ")
        ));
    }
    text
}

const NAME: &str = "yamabiko";
/// The usual clap IDs of arguments that are runs.
const RUNS: &[&str] = &["run", "runs", "runs_and_file"];
const ZSH_RUNS: &str = "\
(( $+functions[_yamabiko_runs] )) ||
_yamabiko_runs() {
    local -a names
    names=(last ${(f)\"$(yamabiko runs names 2>/dev/null)\"})
    compadd \"$@\" -a names
    _files
}

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_includes_verbs_with_a_run_argument() {
        let verbs = verbs_of_runs(&help::command());
        let compare = cfg!(feature = "experiments").then_some("compare");
        let always = ["report", "runs tag", "runs untag", "runs delete", "runs export", "runs du"];
        for verb in always.into_iter().chain(compare) {
            assert!(verbs.iter().any(|found| found == verb), "{verb}: {verbs:?}");
        }
        assert!(!verbs.iter().any(|verb| verb == "bench" || verb == "runs import"), "{verbs:?}");
    }

    #[test]
    fn completion_script_of_every_shell_lists_runs() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(script(shell).contains("yamabiko runs names"), "{shell}");
        }
        assert!(script(Shell::Zsh).matches(":_yamabiko_runs'").count() >= 6);
        for shell in [Shell::Elvish, Shell::PowerShell] {
            assert!(script(shell).contains("bench"), "{shell}");
        }
    }
}
