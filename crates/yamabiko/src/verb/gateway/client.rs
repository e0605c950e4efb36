//! A real gateway.

use anyhow::Result;

use super::measured::{measure, secret};
use crate::args::GatewayClient;
use crate::exit::Exit;
use crate::verb::bench::command_line;

/// Measures it as typed.
pub fn run(typed: &GatewayClient) -> Result<Exit> {
    let (plan, result) = (typed.plan()?, &typed.result);
    // A plan can be printed by someone who has no secret.
    let known = if result.print_plan { None } else { Some(secret(&plan)?) };
    measure(&plan, known.as_ref(), &result.doing(&command_line()), result.html.as_ref())
}
