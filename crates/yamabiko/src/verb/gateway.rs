//! `yamabiko gateway`: measures how a gateway between two networks forwards, emulated or real.

mod client;
mod lab;
mod measured;
mod server;
mod through;

use anyhow::Result;

pub use lab::run_plan;
pub use measured::{exit_of, show};

use crate::args::{Forwarding, GatewayWhat};
use crate::exit::Exit;

/// Runs a subcommand, a program behind the emulated gateway, or the measurement of the emulated gateway.
pub fn run(arguments: &Forwarding) -> Result<Exit> {
    match &arguments.what {
        Some(GatewayWhat::Server(server)) => server::run(server),
        Some(GatewayWhat::Client(client)) => client::run(client),
        None if !arguments.command.is_empty() => through::run(arguments),
        None => lab::run(arguments),
    }
}
