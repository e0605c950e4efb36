//! `yamabiko profile`: lists, shows, checks and learns profiles of clients' distances.

mod check;
mod learn;
mod list;
mod show;

use anyhow::{Result, bail};

use crate::args;
use crate::exit::Exit;

/// Runs a subcommand.
pub fn run(arguments: &args::Profile) -> Result<Exit> {
    match arguments {
        args::Profile::List { json } => list::run(*json),
        args::Profile::Show(show) => show::run(show),
        args::Profile::Check(check) => check::run(check),
        args::Profile::Learn(learn) => learn::run(learn),
    }
}

/// Refuses a number of clients that a path cannot have.
fn check_clients(clients: u32) -> Result<()> {
    if clients == 0 || clients > path::AddressPlan::CLIENTS_MAX {
        bail!("--clients {clients} is out of range: expected 1 to {}", path::AddressPlan::CLIENTS_MAX);
    }
    Ok(())
}
