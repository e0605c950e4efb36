//! `yamabiko gateway`: how the machine between two networks forwards.

mod client;
mod lab;
mod through;

use anyhow::{Result, bail};

use crate::args::{Forwarding, GatewayWhat};
use crate::exit::Exit;

/// Does what was typed.
pub fn run(typed: &Forwarding) -> Result<Exit> {
    match &typed.what {
        Some(GatewayWhat::Server(_)) => bail!("gateway server: not there yet"),
        Some(GatewayWhat::Client(client)) => client::run(client),
        None if !typed.command.is_empty() => through::run(typed),
        None => lab::run(typed),
    }
}
