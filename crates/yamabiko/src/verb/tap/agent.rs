//! `yamabiko tap agent`: runs the tap daemon of this machine, for a manager. `yamabiko tap --agent`: starts a program
//! that the daemon measures.

mod status;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::{self, Addresses, AgentError, Destination, ManagerAddress, Plan};
use anyhow::{Context, Result, anyhow};
use sys::signal::Interrupts;
use tap::folder::{DaemonFolder, LIBRARY_NAME};

use crate::args::{self, AgentWhat};
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::print;

/// Runs the tap daemon until SIGINT or SIGTERM, or prints an agent's status.
pub fn run(arguments: &args::Agent) -> Result<Exit> {
    if let Some(AgentWhat::Status(arguments)) = &arguments.what {
        return status::run(arguments);
    }
    restart_untapped()?;
    let plan = Plan {
        to: destination(arguments),
        folder: arguments.folder.clone().unwrap_or_else(DaemonFolder::default_path),
        data: data(arguments.data.as_deref())?,
        spool_bytes: arguments.spool.0,
        only: arguments.only.clone(),
        addresses: match &arguments.hash_key {
            Some(file) => Addresses::HashedBy(file.clone()),
            None if arguments.hash_addresses => Addresses::Hashed,
            None => Addresses::Plain,
        },
        threads: arguments.threads,
    };
    // Signals are handled before anything is created that a signal could leave incomplete.
    let interrupts = Interrupts::install()?;
    let (folder, data, to) = (plan.folder.clone(), plan.data.clone(), plan.to.text());
    let agent = agent::Agent::start(plan, |line| print_message(format_args!("yamabiko: {line}")))?;
    let [(_, preload), (_, tap)] = DaemonFolder::environment_of(&folder, None).map_err(AgentError::from)?;
    let (preload, tap) = (preload.display(), tap.display());
    print(&format!(
        "agent     {}, for {to}\nprograms  LD_PRELOAD={preload} YAMABIKO_TAP={tap}\nspool     {}\n",
        agent.name(),
        data.display(),
    ))?;
    notify_systemd();
    agent.run(|pause| {
        interrupts.wait(pause);
        interrupts.count() == 0
    })?;
    Ok(Exit::Success)
}

/// Where the rows go, as the options say.
fn destination(arguments: &args::Agent) -> Destination {
    match &arguments.to {
        Some(address) => Destination::Stream {
            address: address.clone(),
            name: arguments.name.clone().unwrap_or_else(|| {
                let host = nix::unistd::gethostname().unwrap_or_default();
                host.to_string_lossy().to_ascii_lowercase()
            }),
        },
        None => Destination::Manager(ManagerAddress {
            url: arguments.manager.clone().unwrap_or_default(),
            token: arguments.token.clone().unwrap_or_default(),
            ca: arguments.ca.clone(),
        }),
    }
}

/// Restarts this program without the tap's library, if it was started with it. Otherwise an agent would record and send
/// its own messages, endlessly.
fn restart_untapped() -> Result<()> {
    if std::env::var_os("YAMABIKO_TAP").is_none() {
        return Ok(());
    }
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    let others: Vec<&str> = preload.split([' ', ':']).filter(|entry| !entry.ends_with(LIBRARY_NAME)).collect();
    let error = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env_remove("YAMABIKO_TAP")
        .env("LD_PRELOAD", others.join(":"))
        .exec();
    Err(anyhow::Error::from(error).context("restarting without the tap's library"))
}

/// Notifies systemd that library and ring exist: services that depend on the agent may start.
fn notify_systemd() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    // Without a listener at the socket no service waits.
    let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(b"READY=1", &address?));
}

/// Replaces this process by the program, with the agent's library and ring in its environment.
pub fn enter(folder: Option<&Path>, command: &[OsString]) -> Result<Exit> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => DaemonFolder::find().map_err(AgentError::from)?,
    };
    let preload = std::env::var_os("LD_PRELOAD");
    let environment = DaemonFolder::environment_of(&folder, preload.as_deref()).map_err(AgentError::from)?;
    let (program, arguments) = command.split_first().context("a command is missing")?;
    let error = Command::new(program).args(arguments).envs(environment).exec();
    Err(anyhow::Error::from(error).context(format!("starting {}", program.to_string_lossy())))
}

/// The folder of the agent's data: the given one, or the default of this user.
fn data(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = given {
        return Ok(std::path::absolute(folder)?);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/yamabiko-agent"));
    }
    let named = |key: &str| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")));
    let state =
        state.ok_or_else(|| anyhow!("neither HOME nor XDG_STATE_HOME is set: give the agent's folder with --data"))?;
    Ok(state.join("yamabiko/agent"))
}
