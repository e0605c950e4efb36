//! Generates `docs/reference/options.md` from the definitions of verbs and options.

use std::collections::HashMap;
use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Arguments;

/// The text of the page.
fn page() -> String {
    let mut command = Arguments::command();
    command.build();
    let mut text = INTRODUCTION.to_owned();
    let mut seen = HashMap::new();
    for verb in command.get_subcommands() {
        describe(verb, &mut text, &mut seen);
    }
    text
}

const INTRODUCTION: &str = "\
# Options

Every verb of `yamabiko` with its arguments and options. This page is written by `cargo xtask reference` from the definitions that the
program itself parses with; `yamabiko VERB --help` prints the same. A group of options that an earlier verb has, too, is described there.

What a number with a unit looks like: a time `48ms`, `10s`; a size `64KiB`, `1MB`; a rate of requests `110/s`; a bit rate `10Mbit`; a
share `1%` or `0.01`.
";

/// Describes a verb, and the verbs below it.
fn describe(verb: &Command, text: &mut String, seen: &mut HashMap<String, String>) {
    let name = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
    let name = name.strip_prefix("yamabiko ").unwrap_or(name).to_owned();
    if verb.is_hide_set() || verb.get_name() == "help" {
        return;
    }
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(text, "\n## {name}\n\n{}", sentence(&about)).expect("text");
    for (heading, rows) in groups(verb) {
        let known = format!("{heading}\n{rows}");
        match seen.get(&known) {
            Some(first) => writeln!(text, "\n{heading}: as of [{first}](#{}).", first.replace(' ', "-")).expect("text"),
            None => {
                writeln!(text, "\n{heading}:\n\n| | default | |\n|---|---|---|\n{}", rows.trim_end()).expect("text");
                seen.insert(known, name.clone());
            }
        }
    }
    for below in verb.get_subcommands() {
        describe(below, text, seen);
    }
}

/// The arguments of a verb under their headings, in the order of its help.
fn groups(verb: &Command) -> Vec<(&str, String)> {
    let mut groups: Vec<(&str, String)> = Vec::new();
    let is_listed = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    for arg in verb.get_arguments().filter(is_listed) {
        let default_heading = if arg.is_positional() { "Arguments" } else { "Options" };
        let heading = arg.get_help_heading().unwrap_or(default_heading);
        let rows = match groups.iter().position(|(known, _)| *known == heading) {
            Some(place) => &mut groups[place].1,
            None => {
                groups.push((heading, String::new()));
                &mut groups.last_mut().expect("just put there").1
            }
        };
        writeln!(rows, "| {} | {} | {} |", name(arg), default(arg), cell(&meaning(arg))).expect("text");
    }
    groups
}

/// The name of an argument as in help: `-r`, `--rate RATE`; `--live[=ADDR]` if the value is optional, `--live=ADDR` if
/// not.
fn name(arg: &Arg) -> String {
    let short = arg.get_short().map(|letter| format!("`-{letter}`, "));
    let values = if arg.get_action().takes_values() || arg.is_positional() {
        let names = arg.get_value_names().unwrap_or_default();
        let values: String = names.iter().map(|name| format!(" {name}")).collect();
        let is_optional = arg.get_num_args().is_some_and(|number| number.min_values() == 0);
        match (arg.is_require_equals_set(), is_optional) {
            (true, true) => format!("[={}]", values.trim_start()),
            (true, false) => format!("={}", values.trim_start()),
            (false, _) => values,
        }
    } else {
        String::new()
    };
    let several = if matches!(arg.get_action(), ArgAction::Append) { " .." } else { "" };
    match arg.get_long() {
        Some(long) => format!("{}`--{long}{}`{several}", short.unwrap_or_default(), escaped(&values)),
        None => format!("`{}`{several}", escaped(values.trim_start())),
    }
}

/// The constant default of an argument. Defaults that depend on other options are in its text.
fn default(arg: &Arg) -> String {
    if arg.is_hide_default_value_set() || !arg.get_action().takes_values() {
        return String::new();
    }
    let values = arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy()));
    values.collect::<Vec<_>>().join(", ")
}

fn meaning(arg: &Arg) -> String {
    let mut text = sentence(&arg.get_help().map(ToString::to_string).unwrap_or_default());
    let values = arg.get_possible_values();
    let values: Vec<String> =
        values.iter().filter(|value| !value.is_hide_set()).map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() && arg.get_action().takes_values() {
        write!(text, " Values: {}.", values.join(", ")).expect("text");
    }
    text
}

/// Adds a full stop, which help texts do not have.
fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with(['.', ']']) { text.to_owned() } else { format!("{text}.") }
}

/// A text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    escaped(text).replace('<', "&lt;")
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn page_of_options_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/options.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stored == page(), "docs/reference/options.md is outdated: run cargo xtask reference");
}
