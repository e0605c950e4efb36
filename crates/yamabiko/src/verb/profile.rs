//! `yamabiko profile`: distances, built in, from a file, or learned from a capture.

mod learn;

use anyhow::{Result, bail};
use path::Profile;

use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::terminal;

/// Lists, shows or learns.
pub fn run(arguments: &args::Profile) -> Result<Exit> {
    match arguments {
        args::Profile::List => list(),
        args::Profile::Show { name, clients } => show(name, *clients),
        args::Profile::Learn(learn) => learn::run(learn),
    }
}

fn list() -> Result<Exit> {
    let mut text = String::new();
    for name in Profile::names() {
        if let Some(profile) = Profile::builtin(name) {
            text.push_str(&format!("{name:<16} {}\n", profile.about()));
        }
    }
    text.push_str("\nAny file of the same form can be used in their place: docs/concepts/path.md shows it.\n");
    print(&text)?;
    Ok(Exit::Fine)
}

fn show(name: &str, clients: u32) -> Result<Exit> {
    if clients == 0 || clients > path::AddressPlan::CLIENTS_MAX {
        bail!("--clients {clients}: from 1 to {} are possible", path::AddressPlan::CLIENTS_MAX);
    }
    let profile = lab::distances::named(name)?;
    let paths = profile.clients(clients);
    let mut rtts_ns: Vec<u64> = paths.iter().map(|path| units::time::saturating_nanos(path.rtt())).collect();
    rtts_ns.sort_unstable();
    let view = report::ProfileView {
        name: profile.name().to_owned(),
        about: profile.about().to_owned(),
        rtts_ns,
        lines: profile.describe(),
    };
    print(&report::terminal::profile(&view, terminal::style()))?;
    Ok(Exit::Fine)
}
