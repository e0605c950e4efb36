//! The lab's own gateway.

use std::path::Path;

use anyhow::Result;
use gateway::{GatewayLocation, GatewayPlan};

use super::measured::{measure, secret};
use crate::args::Forwarding;
use crate::exit::Exit;
use crate::verb::bench::{Doing, command_line};

/// Measures it as typed.
pub fn run(typed: &Forwarding) -> Result<Exit> {
    let result = &typed.result;
    measure(&typed.plan()?, None, &result.doing(&command_line()), result.html.as_ref())
}

/// Measures what a plan's text says, in the lab or not; `file` is where it was read.
pub fn run_plan(text: &str, file: &Path, doing: &Doing<'_>) -> Result<Exit> {
    let mut plan = GatewayPlan::from_toml(text, &file.display().to_string())?;
    let folder = file.parent().unwrap_or(Path::new(""));
    if let Some(token) = plan.token_file.as_mut().filter(|token| token.is_relative()) {
        *token = folder.join(&*token);
    }
    let known = match plan.to {
        GatewayLocation::Server(_) if !doing.print_plan => Some(secret(&plan)?),
        _ => None,
    };
    measure(&plan, known.as_ref(), doing, None)
}
