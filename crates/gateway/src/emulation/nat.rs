//! NAT and the setup command of the gateway.

use std::time::Duration;

use sys::namespace::NetNamespace;
use sys::netlink::sysctl;
use sys::nft::Masquerade;
use sys::sandbox::{Exit, Net, Sandbox, SandboxSpec, Stdio, Stdio3};

use super::{At, CLIENT, networks};
use testbed::TestbedError;
use testbed::server::output_tail;

/// Name of the nftables table.
const TABLE: &str = "yamabiko-gateway";
/// Timeout of the setup command.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Translates packets of the client to the gateway's outer address, until the returned value is dropped.
pub(super) fn masquerade(gateway: &NetNamespace) -> Result<Masquerade, TestbedError> {
    let make = || {
        let made = Masquerade::of(TABLE, CLIENT.into(), 32)?;
        // At thousands of connections a second, closed ones would fill the connection table, which all namespaces
        // share. The setting exists once a connection is tracked.
        let _ = sysctl("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "1");
        Ok::<_, sys::Error>(made)
    };
    let made = gateway.run(make).map_err(TestbedError::environment)?;
    made.map_err(|error| TestbedError::Environment(format!("NAT at the emulated gateway: {error}")))
}

/// Runs a shell command with privileges in the gateway's network and waits for its end. Background processes end with
/// the returned sandbox.
pub(super) fn set_up(gateway: &NetNamespace, command: &str) -> Result<Sandbox, TestbedError> {
    let output = sys::limits::unnamed_file(c"setup-output").map_err(TestbedError::system("memfd_create"))?;
    let stream = || output.try_clone().map(|file| Stdio::File(file.into())).map_err(TestbedError::system("dup"));
    let mut sandbox = Sandbox::start(SandboxSpec {
        net: Net::Existing(gateway.try_clone().map_err(TestbedError::environment)?),
        hosts: networks::names(At::Gateway),
        stdio: Stdio3 { stdin: Stdio::Null, stdout: stream()?, stderr: stream()? },
        new_session: true,
        // For an ordinary user it is root of the user namespace only.
        rootless: false,
        ..SandboxSpec::new(vec!["/bin/sh".into(), "-c".into(), command.into()])
    })
    .map_err(TestbedError::environment)?;
    sandbox.exec().map_err(TestbedError::plan)?;
    let deadline = sys::clock::monotonic_ns() + SETUP_TIMEOUT.as_nanos() as u64;
    let failed = |how: &str| Err(TestbedError::Plan(format!("--setup `{command}` {how}{}", output_tail(&output))));
    loop {
        match sandbox.try_exit().map_err(TestbedError::environment)? {
            Some(Exit::Code(0)) => return Ok(sandbox),
            Some(Exit::Code(code)) => return failed(&format!("ended with status {code}")),
            Some(Exit::Signal(signal)) => return failed(&format!("was killed by signal {signal}")),
            None => {}
        }
        let left = deadline.saturating_sub(sys::clock::monotonic_ns());
        if left == 0 {
            return failed("did not end within 30 s (start long-running commands in the background: `.. &`)");
        }
        sys::signal::wait_readable(sandbox.status_fd(), Duration::from_nanos(left));
    }
}
