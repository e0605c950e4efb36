//! `yamabiko gateway`: measures the emulated gateway host.

use std::path::Path;

use anyhow::Result;
use gateway::{GatewayLocation, GatewayPlan};

use super::measured::{measure, secret};
use crate::args::Forwarding;
use crate::exit::Exit;
use crate::verb::bench::{ExecutionOptions, command_line};

/// Measures the emulated gateway host with the given options.
pub fn run(arguments: &Forwarding) -> Result<Exit> {
    let result = &arguments.result;
    measure(&arguments.plan()?, None, &result.execution_options(&command_line()), result.html.as_ref())
}

/// Measures the gateway of a plan, emulated or real. `text` is the plan, and `file` where it was read.
pub fn run_plan(text: &str, file: &Path, options: &ExecutionOptions<'_>) -> Result<Exit> {
    let mut plan = GatewayPlan::from_toml(text, &file.display().to_string())?;
    let folder = file.parent().unwrap_or(Path::new(""));
    if let Some(token) = plan.token_file.as_mut().filter(|token| token.is_relative()) {
        *token = folder.join(&*token);
    }
    let secret = match plan.to {
        GatewayLocation::Server(_) if !options.print_plan => Some(secret(&plan)?),
        _ => None,
    };
    measure(&plan, secret.as_ref(), options, None)
}
