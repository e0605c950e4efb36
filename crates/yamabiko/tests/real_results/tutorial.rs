//! `docs/tutorial.md`: each of its commands, in order, in one directory.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::workspace::{Workspace, str_of, yamabiko};

/// The commands of `console` blocks, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut is_console, mut unfinished) = (Vec::new(), false, String::new());
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
            continue;
        }
        let command = match line.strip_prefix("$ ") {
            _ if !is_console => continue,
            _ if !unfinished.is_empty() => line,
            Some(command) => command,
            None => continue,
        };
        unfinished.push_str(command.strip_suffix('\\').unwrap_or(command));
        if !command.ends_with('\\') {
            commands.push(std::mem::take(&mut unfinished));
        }
    }
    commands
}

#[test]
fn every_command_of_the_tutorial_runs_in_order() {
    let workspace = Workspace::new();
    let folder = workspace.path().join("tutorial");
    fs::create_dir(&folder).unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorial.md")).unwrap();
    let commands = commands(&page);
    assert!(commands.len() > 12, "{commands:?}");
    let path = format!("{}:{}", str_of(yamabiko().parent().unwrap()), std::env::var("PATH").unwrap());
    for line in &commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&folder).stdin(Stdio::null());
        shell.env("PATH", &path).env("YAMABIKO_RUNS", workspace.runs());
        let output = workspace.start_command(shell).finish_within(Duration::from_secs(240));
        // A busy machine can make a run suspect or invalid, and a slow one can miss the objective: these exit statuses
        // count as success.
        assert!(matches!(output.code, Some(0 | 3 | 4)), "{line}: {output}");
    }
    assert!(folder.join("audience.html").is_file());
}
