//! `yamabiko gateway`: how the machine between two networks forwards.

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

/// Does what was typed.
pub fn run(typed: &Forwarding) -> Result<Exit> {
    match &typed.what {
        Some(GatewayWhat::Server(server)) => server::run(server),
        Some(GatewayWhat::Client(client)) => client::run(client),
        None if !typed.command.is_empty() => through::run(typed),
        None => lab::run(typed),
    }
}
