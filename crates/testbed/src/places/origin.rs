//! An origin of the testbed, as a client of the path that accepts connections.
//!
//! ```text
//!   client namespace                                        server namespace
//!   clients at 198.19.0.1 .. == c0 == clients' links ==== s0 == proxy under test
//!   origin at the next one   == c0 == [origin.path] ===== s0 ==   (asks it)
//! ```
//!
//! The path forwards by address, whoever opened a connection: the proxy's packets to the origin's address travel "down"
//! that address's link, and its responses up.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use http1::RequestMethod;
use http1::whole::whole;
use polymix::OriginFigures;
use sys::place::{Net, Place, SandboxSpec, Stdio, Stdio3};

use super::listening::{self, NotListening, Wanted};
use super::{Places, server_output};
use crate::error::TestbedError;
use crate::host::CorePlan;
use crate::server::{ended, last_words};
use plan::OriginPlan;

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    /// Its processes; dropping this ends them.
    _place: Place,
    at: SocketAddr,
}

/// Starts the origin with this many clients; it listens when this returns. It runs on the generator's cores, and takes
/// nothing from the proxy's. `log`: the server's log, next to which it gets its own.
///
/// # Errors
/// It cannot be started, ends before it listens, or never listens: the message has its last lines.
pub(crate) fn start(
    places: &mut Places,
    plan: &OriginPlan,
    clients: u32,
    cores: &CorePlan,
    log: Option<&Path>,
) -> Result<(), TestbedError> {
    let at = plan.at(clients);
    let command = plan.command.clone().unwrap_or_default();
    let output = server_output(log.map(|log| log.with_file_name("origin.log")).as_deref())?;
    let [out, errors] = [output.try_clone(), output.try_clone()].map(|file| file.map_err(TestbedError::system("dup")));
    let mut place = Place::start(SandboxSpec {
        stdio: Stdio3 { stdin: Stdio::Null, stdout: Stdio::File(out?.into()), stderr: Stdio::File(errors?.into()) },
        // Ctrl-C ends the measurement; the origin responds until the end.
        new_session: true,
        cpus: cores.client.as_ref().map(|cores| cores.list().to_vec()),
        net: Net::Existing(places.client_net.try_clone().map_err(TestbedError::environment)?),
        rootless: places.rootless,
        ..SandboxSpec::new(vec!["/bin/sh".into(), "-c".into(), command.clone().into()])
    })
    .map_err(TestbedError::environment)?;
    place.go().map_err(TestbedError::plan)?;
    let addresses = [at.ip()];
    // The user's programs are in the clients' namespace, too.
    let wanted =
        Wanted { pid: place.init_pid(), addresses: &addresses, port: Some(at.port()), timeout: START, alone: false };
    if let Err(why) = listening::wait(&wanted, || Ok(ended(&mut place)))? {
        let words = last_words(&output);
        let within = units::format_duration(START);
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
    places.origin = Some(Origin { _place: place, at });
    Ok(())
}

impl Places {
    /// Counters of the testbed's origin, requested without the path; `None` without one, or if it does not respond.
    pub fn origin_figures(&self) -> Option<OriginFigures> {
        let at = self.origin.as_ref()?.at;
        let answer = self.client_net.run(|| ask(at)).ok()?.ok()?;
        serde_json::from_slice(&whole(&answer, RequestMethod::Other).ok()?.body).ok()
    }
}

fn ask(at: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.write_all(b"GET /-/origin HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

/// Longest time until it listens: it generates its content in a second.
const START: Duration = Duration::from_secs(10);
/// It is idle by then.
const ANSWER: Duration = Duration::from_secs(2);
/// With 256 worlds about 30 KB.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
