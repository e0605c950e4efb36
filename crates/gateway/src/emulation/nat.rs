//! Translation at the gateway, and what its user has set up there.

use std::time::Duration;

use sys::namespace::NetNamespace;
use sys::netlink::sysctl;
use sys::nft::Masquerade;
use sys::place::{Exit, Net, Place, PlaceSpec, Stdio, Stdio3};

use super::{At, CLIENT, networks};
use testbed::LabError;
use testbed::server::last_words;

/// The name of the table, for whoever lists the rules of the gateway's network.
const TABLE: &str = "yamabiko-gateway";
/// A set-up that takes longer has hung.
const SETUP_MAX: Duration = Duration::from_secs(30);

/// What the client sends leaves under the gateway's outer address for as long as the answer lives.
pub(super) fn masquerade(gateway: &NetNamespace) -> Result<Masquerade, LabError> {
    let make = || {
        let made = Masquerade::of(TABLE, CLIENT.into(), 32)?;
        // Thousands of connections a second would fill the table, whose size all networks of this machine share, with those
        // that are over. It is there once something is tracked.
        let _ = sysctl("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "1");
        Ok::<_, sys::Error>(made)
    };
    let made = gateway.run(make).map_err(LabError::environment)?;
    made.map_err(|error| LabError::Environment(format!("NAT at the lab's gateway: {error}")))
}

/// Runs a shell command in the gateway's network, as who may change it, and waits for it to end. What it leaves running ends
/// with the place.
pub(super) fn set_up(gateway: &NetNamespace, command: &str) -> Result<Place, LabError> {
    let output = sys::limits::unnamed_file(c"setup-output").map_err(LabError::system("memfd_create"))?;
    let stream = || output.try_clone().map(|file| Stdio::File(file.into())).map_err(LabError::system("dup"));
    let mut place = Place::start(PlaceSpec {
        net: Net::Existing(gateway.try_clone().map_err(LabError::environment)?),
        hosts: networks::names(At::Gateway),
        stdio: Stdio3 { stdin: Stdio::Null, stdout: stream()?, stderr: stream()? },
        new_session: true,
        // Of an ordinary user it is root in the lab's user namespace, and may change nothing outside.
        rootless: false,
        ..PlaceSpec::new(vec!["/bin/sh".into(), "-c".into(), command.into()])
    })
    .map_err(LabError::environment)?;
    place.go().map_err(LabError::plan)?;
    let deadline = sys::clock::monotonic_ns() + SETUP_MAX.as_nanos() as u64;
    let failed = |how: &str| Err(LabError::Plan(format!("--setup `{command}` {how}{}", last_words(&output))));
    loop {
        match place.try_exit().map_err(LabError::environment)? {
            Some(Exit::Code(0)) => return Ok(place),
            Some(Exit::Code(code)) => return failed(&format!("ended with status {code}")),
            Some(Exit::Signal(signal)) => return failed(&format!("was killed by signal {signal}")),
            None => {}
        }
        let left = deadline.saturating_sub(sys::clock::monotonic_ns());
        if left == 0 {
            return failed("did not end within 30 s (what is to go on may run in the background: `.. &`)");
        }
        sys::signal::wait_readable(place.status_fd(), Duration::from_nanos(left));
    }
}
