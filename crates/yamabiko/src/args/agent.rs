//! `tap agent` as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tap::Only;
use units::Bytes;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Programs opt in: LD_PRELOAD=FOLDER/libyamabiko_tap.so YAMABIKO_TAP=FOLDER, or `yamabiko tap --agent -- COMMAND`. Ctrl-C and \
                  SIGTERM end it in order; killed, it loses nothing either: the next one goes on where it was."
)]
pub struct Agent {
    #[command(subcommand)]
    pub what: Option<AgentWhat>,
    /// Where the manager takes agents: https://HOST:PORT, as it says when it starts; http:// only on loopback
    #[arg(long, value_name = "URL", required = true)]
    pub manager: Option<String>,
    /// The file of this agent's token, which nobody else may read (chmod 600); replaced, it is read again
    #[arg(long, value_name = "FILE", required = true)]
    pub token: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's: the manager's own, ca.pem in its folder
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Folder that programs are given: library and ring, best on a tmpfs [default: yamabiko-tap in the first of /run/yamabiko,
    /// /run and /var/lib/yamabiko that is not noexec, as root; else in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Folder of what is not sent yet, on a disk [default: /var/lib/yamabiko-agent as root, else ~/.local/state/yamabiko/agent]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What waits for the manager may take so much of the disk; beyond, the oldest rows are let go, and counted
    #[arg(long, value_name = "BYTES", default_value = "256MB", value_parser = spool, allow_hyphen_values = true)]
    pub spool: Bytes,
    /// Follow only connections with this peer (192.0.2.7, 192.0.2.0/24), this port of the service (443), or both
    /// (192.0.2.7:443); may be given more than once
    #[arg(long, value_name = "PEER|PORT")]
    pub only: Vec<Only>,
    /// Send hashes in place of addresses, under a key that never leaves this machine
    #[arg(long)]
    pub hash_addresses: bool,
    /// The same under the key in this file, which nobody else may read: agents with the same key have the same hashes
    #[arg(long, value_name = "FILE")]
    pub hash_key: Option<PathBuf>,
    /// Threads of all programs that may use sockets at once: 16 KB of memory each, and up to 1 MB for the first 256. Another
    /// number than before makes the ring anew: programs that run then are not seen until they start again
    #[arg(long, value_name = "N", default_value = "1280", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    #[arg(allow_hyphen_values = true)]
    pub threads: u32,
}

#[derive(Debug, Subcommand)]
pub enum AgentWhat {
    /// How the agent of a folder stands; status 2 where none runs
    Status(AgentStatus),
}

#[derive(Args, Debug)]
pub struct AgentStatus {
    /// The agent's folder, as its --data
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print the document that the agent writes each second, and nothing else
    #[arg(long)]
    pub json: bool,
}

/// What a batch and its neighbours take is the least that makes sense.
fn spool(typed: &str) -> Result<Bytes, String> {
    match typed.parse::<Bytes>() {
        Ok(bytes) if bytes < SPOOL_MIN => Err("a spool has room for some batches: 1MB at least".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

const SPOOL_MIN: Bytes = Bytes(1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_has_room() {
        assert_eq!((spool("1MB"), spool("256MiB")), (Ok(Bytes(1_000_000)), Ok(Bytes(256 << 20))));
        for wrong in ["999KB", "0", "-1MB", "much"] {
            assert!(spool(wrong).is_err(), "{wrong}");
        }
    }
}
