//! Runs any program through the emulated gateway.

use std::ffi::OsString;

use sys::relay::Relay;
use sys::sandbox::Exit;

use super::programs::Program;
use super::{
    At, EmulatedGateway, EmulationFacts, EmulationSpec, GatewayUsed, INSIDE, LinkFigures, PreparedProgram, SERVER,
    Starts,
};
use testbed::TestbedError;

/// A run of a program through the emulated gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// The emulation.
    pub lab: EmulationSpec,
    /// A shell command at the server end, started shortly before the program.
    pub server: Option<String>,
    /// The program at the client end.
    pub command: Vec<OsString>,
}

/// Outcome of the program.
#[derive(Clone, Debug)]
pub struct ThroughOutcome {
    /// Exit status of the program; 128 plus the number of the signal that ended it, as in a shell.
    pub status: u8,
    /// Resource usage of the gateway meanwhile.
    pub used: GatewayUsed,
    /// Counts of the client-side and the server-side link.
    pub links: [LinkFigures; 2],
    /// Facts about the emulation.
    pub facts: EmulationFacts,
    /// Failure of the emulation or of the server command, if any.
    pub failure: Option<String>,
}

/// Runs the program. It owns the terminal and receives Ctrl-C and the signals sent to this process. The server is known
/// to it as `server` and `$SERVER`, the gateway as `gateway` and `$GATEWAY`. Must be called while this process has one
/// thread. `tell` receives notes for the user before the start, a line each.
///
/// # Errors
/// The emulation or the program cannot be started.
pub fn through(through: &Through, mut tell: impl FnMut(&str)) -> Result<ThroughOutcome, TestbedError> {
    let server = through.server.iter().map(|command| PreparedProgram {
        name: "the server command".into(),
        at: At::Server,
        argv: vec!["/bin/sh".into(), "-c".into(), command.into()],
        env: Vec::new(),
        stdout: None,
        starts: Starts::Immediately { listens: None },
    });
    let lab = EmulatedGateway::new(&through.lab, None, server.collect())?;
    let env =
        [("SERVER", SERVER), ("GATEWAY", INSIDE)].map(|(name, address)| (name.into(), address.to_string().into()));
    let name = through.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut program = lab.program(|around| Program::in_foreground(&name, &through.command, env.into(), around))?;
    for note in &lab.base.facts.notes {
        tell(note);
    }
    let mut lab = lab.start()?;
    let (used, links) = (lab.used(), lab.links());
    let mut relay = Relay::install().map_err(TestbedError::system("sigaction"))?;
    program.start()?;
    program.relay(&mut relay);
    let exit = program.wait()?;
    relay.stop();
    // Stop before reading the final counters.
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
        failure: lab.broken().or_else(|| lab.programs.iter_mut().find_map(Program::failed)),
    })
}
