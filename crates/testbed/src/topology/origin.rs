//! An origin of the testbed, as a client of the path that accepts connections.
//!
//! ```text
//!   client namespace                                        server namespace
//!   clients at 198.19.0.1 .. == c0 == clients' links ==== s0 == proxy under test
//!   origin at the next one   == c0 == [origin.path] ===== s0 ==   (asks it)
//! ```
//!
//! The path forwards by address, whichever end opened a connection: the proxy's packets to the origin's address travel
//! "down" that address's link, and its responses up.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use polymix::OriginFigures;
use sys::sandbox::{Net, Sandbox, SandboxSpec, Stdio, Stdio3};

use super::listening::{self, ListenWaitSpec, NotListening};
use super::{Topology, server_output};
use crate::error::TestbedError;
use crate::get::body_within;
use crate::host::CorePlan;
use crate::server::{ended, output_tail};
use plan::OriginPlan;

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    /// The origin's processes; dropping the sandbox ends them.
    _sandbox: Sandbox,
    at: SocketAddr,
}

/// Starts the origin with this many clients; it listens when this returns. It runs on the generator's cores,
/// not on the proxy's. `log`: the server's log; the origin's log is next to it.
///
/// # Errors
/// The origin cannot be started, ends before it listens, or never listens: the message has the last lines of its
/// output.
pub(crate) fn start(
    topology: &mut Topology,
    plan: &OriginPlan,
    clients: u32,
    cores: &CorePlan,
    log: Option<&Path>,
) -> Result<(), TestbedError> {
    let at = plan.at(clients);
    let command = plan.command.clone().unwrap_or_default();
    let output = server_output(log.map(|log| log.with_file_name("origin.log")).as_deref())?;
    let [out, errors] = [output.try_clone(), output.try_clone()].map(|file| file.map_err(TestbedError::system("dup")));
    let mut sandbox = Sandbox::start(SandboxSpec {
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(out?.into()), stderr: Stdio::File(errors?.into()) },
        // Ctrl-C ends the measurement; the origin responds until the end.
        new_session: true,
        cpus: cores.client.as_ref().map(|cores| cores.list().to_vec()),
        net: Net::Existing(topology.client_net.try_clone().map_err(TestbedError::environment)?),
        rootless: topology.rootless,
        ..SandboxSpec::new(vec!["/bin/sh".into(), "-c".into(), command.clone().into()])
    })
    .map_err(TestbedError::environment)?;
    sandbox.exec().map_err(TestbedError::plan)?;
    let addresses = [at.ip()];
    // The user's programs are in the clients' namespace, too.
    let spec = ListenWaitSpec {
        pid: sandbox.init_pid(),
        addresses: &addresses,
        port: Some(at.port()),
        or_udp: false,
        timeout: START_TIMEOUT,
        alone: false,
    };
    if let Err(why) = listening::wait(&spec, || Ok(ended(&mut sandbox)))? {
        let words = output_tail(&output);
        let within = units::format_duration(START_TIMEOUT);
        return Err(TestbedError::Plan(match why {
            NotListening::Ended(how) => {
                format!("the origin ended ({how}) before it listened on {at}: {command}{words}")
            }
            NotListening::Unreachable { on, .. } => {
                format!("the origin listens on {on} only, and not on {at}: {command}{words}")
            }
            NotListening::OtherPorts { .. } => {
                format!("the origin did not listen on {at} within {within}: {command}{words}")
            }
        }));
    }
    topology.origin = Some(Origin { _sandbox: sandbox, at });
    Ok(())
}

impl Topology {
    /// Counters of the testbed's origin, requested without the path; `None` without one, or if it does not respond.
    pub fn origin_figures(&self) -> Option<OriginFigures> {
        let at = self.origin.as_ref()?.at;
        let request = || body_within(at, "/-/origin", RESPONSE_TIMEOUT, RESPONSE_BYTES_MAX);
        serde_json::from_str(&self.client_net.run(request).ok()?.ok()?).ok()
    }
}

/// Longest time until the origin listens; generating its content takes about a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the origin's counters; the origin is idle at that time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest response with counters; with 256 worlds it has about 30 KB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
