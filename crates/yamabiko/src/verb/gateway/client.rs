//! `yamabiko gateway client`: measures a real gateway, with `yamabiko gateway server` behind it.

use anyhow::Result;

use super::measured::{measure, secret};
use crate::args::GatewayClient;
use crate::exit::Exit;
use crate::verb::bench::command_line;

/// Measures a real gateway with the given options.
pub fn run(arguments: &GatewayClient) -> Result<Exit> {
    let (plan, result) = (arguments.plan()?, &arguments.result);
    // A plan can be printed without the secret.
    let secret = if result.print_plan { None } else { Some(secret(&plan)?) };
    measure(&plan, secret.as_ref(), &result.execution_options(&command_line()), result.html.as_ref())
}
