//! Any program through the lab's gateway.

use std::ffi::OsString;

use sys::place::Exit;
use sys::relay::Relay;

use super::programs::Program;
use super::{At, GatewayLab, GatewayUsed, INSIDE, LabFacts, LabSpec, LinkFigures, SERVER, Starts, Waiting};
use testbed::LabError;

/// What is to be run, as meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// The lab.
    pub lab: LabSpec,
    /// A shell command at the server's end, which is started before the program. It is given a moment, and must not end in it.
    pub server: Option<String>,
    /// The program at the clients' end.
    pub command: Vec<OsString>,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct ThroughOutcome {
    /// The program's exit status; 128 and the signal's number if one ended it, as in a shell.
    pub status: u8,
    /// What the gateway used while it ran.
    pub used: GatewayUsed,
    /// What the links did meanwhile: that to the clients, that to the server.
    pub links: [LinkFigures; 2],
    /// What is to be said of the lab.
    pub facts: LabFacts,
    /// What of the lab stopped working meanwhile, or that the server's command failed, if either did.
    pub trouble: Option<String>,
}

/// Runs it. The program has the terminal, and Ctrl-C is for it alone; what another process sends to this one is handed on to it. It finds the server by the name `server` and by
/// `$SERVER`, the gateway by `gateway` and `$GATEWAY`. Must be called while this process has one thread.
/// `tell` gets what the user should know before the program starts, a line each.
///
/// # Errors
/// A lab that cannot be made, a program that cannot be started.
pub fn through(through: &Through, mut tell: impl FnMut(&str)) -> Result<ThroughOutcome, LabError> {
    let server = through.server.iter().map(|command| Waiting {
        name: "the server command".into(),
        at: At::Server,
        argv: vec!["/bin/sh".into(), "-c".into(), command.into()],
        env: Vec::new(),
        stdout: None,
        starts: Starts::AtOnce { listens: None },
    });
    let lab = GatewayLab::new(&through.lab, None, server.collect())?;
    let env =
        [("SERVER", SERVER), ("GATEWAY", INSIDE)].map(|(name, address)| (name.into(), address.to_string().into()));
    let name = through.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut program = lab.program(|around| Program::in_front(&name, &through.command, env.into(), around))?;
    for note in &lab.base.facts.notes {
        tell(note);
    }
    let mut lab = lab.start()?;
    let (used, links) = (lab.used(), lab.links());
    let mut relay = Relay::install().map_err(LabError::system("sigaction"))?;
    program.go()?;
    program.relay(&mut relay);
    let exit = program.wait()?;
    relay.stop();
    // Then it no longer uses anything of the lab.
    program.stop();
    let (now, after) = (lab.used(), lab.links());
    Ok(ThroughOutcome {
        status: match exit {
            Exit::Code(code) => code as u8,
            Exit::Signal(signal) => (128 + signal) as u8,
        },
        used: now.since(&used),
        links: [after[0].since(&links[0]), after[1].since(&links[1])],
        facts: lab.facts().clone(),
        trouble: lab.broken().or_else(|| lab.programs.iter_mut().find_map(Program::failed)),
    })
}
