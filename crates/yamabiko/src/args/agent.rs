//! Arguments of `tap agent`.

use std::path::PathBuf;

use broker::StreamAddress;
use clap::{Args, Subcommand};
use tap::Only;
use units::Bytes;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Programs opt in: LD_PRELOAD=FOLDER/libyamabiko_tap.so YAMABIKO_TAP=FOLDER, or `yamabiko tap --agent -- COMMAND`. Ctrl-C and \
                  SIGTERM end the agent. A killed agent loses nothing: the next one continues."
)]
pub struct Agent {
    #[command(subcommand)]
    pub what: Option<AgentWhat>,
    /// URL of the manager for agents: https://HOST:PORT, as it prints at its start; http:// only on loopback
    #[arg(long, value_name = "URL", required_unless_present = "to")]
    pub manager: Option<String>,
    /// File with this agent's token, readable by its owner only (chmod 600); a replaced file is read again
    #[arg(long, value_name = "FILE", required_unless_present = "to")]
    pub token: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's, such as ca.pem from the manager's folder
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Publish to this stream of NATS JetStream instead, from which managers read (`tap manager --from`); tls:// for TLS.
    /// Credentials: NATS_CREDS, NATS_USER and NATS_PASSWORD, NATS_CA, NATS_CERT and NATS_KEY
    #[arg(long, value_name = "nats://HOST[:PORT]/STREAM", conflicts_with_all = ["manager", "token", "ca"])]
    pub to: Option<StreamAddress>,
    /// Name of this agent, with --to [default: the host's name]
    #[arg(long, value_name = "NAME", requires = "to")]
    pub name: Option<String>,
    /// Folder with library and ring for programs, best on a tmpfs [default: yamabiko-tap in the first of /run/yamabiko,
    /// /run and /var/lib/yamabiko that is not noexec, as root; else in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Folder of data that is not sent yet, on a disk [default: /var/lib/yamabiko-agent as root, else ~/.local/state/yamabiko/agent]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Most disk space for data that is not sent yet; beyond it the oldest rows are dropped and counted
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = spool, allow_hyphen_values = true)]
    pub spool: Bytes,
    /// Follow only connections with this peer (192.0.2.7, 192.0.2.0/24), this port of the service (443), or both
    /// (192.0.2.7:443); may be given more than once
    #[arg(long, value_name = "PEER|PORT")]
    pub only: Vec<Only>,
    /// Send keyed hashes instead of addresses; the key stays on this machine
    #[arg(long)]
    pub hash_addresses: bool,
    /// The same with the key in this file, readable by its owner only: agents with one key have the same hashes
    #[arg(long, value_name = "FILE")]
    pub hash_key: Option<PathBuf>,
    /// Most threads with sockets in all programs: 16 KB of memory each, and up to 1 MB for the first 256. A changed number creates
    /// a new ring: running programs are not recorded until they are restarted
    #[arg(long, value_name = "N", default_value = "1280", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    #[arg(allow_hyphen_values = true)]
    pub threads: u32,
}

#[derive(Debug, Subcommand)]
pub enum AgentWhat {
    /// Print the state of an agent; exit with 2 if none runs
    Status(AgentStatus),
}

#[derive(Args, Debug)]
pub struct AgentStatus {
    /// The agent's --data folder
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the document that the agent writes each second, only
    #[arg(long)]
    pub json: bool,
}

/// At least the size of a few batches.
fn spool(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(bytes) if bytes < SPOOL_MIN => Err("expected a spool of at least 1MB, the size of a few batches".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

const SPOOL_MIN: Bytes = Bytes(1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spool_below_1_mb_is_refused() {
        assert_eq!((spool("1MB"), spool("256MiB")), (Ok(Bytes(1_000_000)), Ok(Bytes(256 << 20))));
        for wrong in ["999KB", "0", "-1MB", "much"] {
            assert!(spool(wrong).is_err(), "{wrong}");
        }
    }
}
