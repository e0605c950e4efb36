//! What is at the far end: as typed, and as meant.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use plan::{AddressFamily, ServerPlan, ServerTcp, TargetPlan};
use units::{Bytes, CpuShare, parse_duration};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Start this server at the far end of the path; it must listen on every address or on 198.18.0.1
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    #[command(flatten)]
    pub settings: ServerSettings,
}

/// How it is held, known and reached; beside an option `--server`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerSettings {
    /// Hold it to a share of one core, such as 50%
    #[arg(long, value_name = "SHARE", requires = "server", allow_hyphen_values = true)]
    pub server_cpu: Option<CpuShare>,
    /// Hold it to so much memory, page cache included, such as 64MiB; who needs more is killed by the kernel
    #[arg(long, value_name = "BYTES", requires = "server", allow_hyphen_values = true)]
    pub server_memory: Option<Bytes>,
    /// Its TCP, such as initcwnd=2,cc=reno; also that of a service that runs on this host already
    #[arg(long, value_name = "SETTINGS")]
    pub server_tcp: Option<ServerTcp>,
    /// A further name by which the clients know it, for Host headers and certificates; may be given more than once
    #[arg(long, value_name = "NAME", requires = "server")]
    pub server_name: Vec<String>,
    /// So many addresses of each family behind its names, 198.18.0.1 and on; connections take them in turn [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "server", allow_hyphen_values = true)]
    pub server_addresses: Option<u32>,
    /// Wait so long at most until it listens; less once it has listened on other ports for long
    #[arg(long, default_value = "10s", value_parser = parse_duration, requires = "server", allow_hyphen_values = true)]
    pub server_start_timeout: Duration,
    /// Use IPv4 only [default: IPv4 where there are both]; with -6, both
    #[arg(short = '4', long)]
    pub ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    pub ipv6: bool,
}

impl ServerOptions {
    /// The lab's server as meant.
    pub fn server_plan(&self) -> Option<ServerPlan> {
        Some(ServerPlan {
            command: self.server.clone()?,
            names: self.settings.server_name.clone(),
            addresses: self.settings.server_addresses.unwrap_or(1),
            cpu: self.settings.server_cpu,
            cpu_measured: None,
            memory: self.settings.server_memory,
            tcp: self.settings.server_tcp.clone().unwrap_or_default(),
            start_timeout: self.settings.server_start_timeout,
        })
    }

    /// Where the far end is, as meant; `addresses` instead of what the resolver says.
    pub fn target_plan(&self, addresses: &[IpAddr]) -> TargetPlan {
        TargetPlan {
            family: match (self.settings.ipv4, self.settings.ipv6) {
                (false, false) => AddressFamily::Any,
                (true, false) => AddressFamily::Ipv4,
                (false, true) => AddressFamily::Ipv6,
                (true, true) => AddressFamily::Both,
            },
            addresses: addresses.to_vec(),
            // With a server of the lab it is in the server's plan.
            tcp: if self.server.is_none() {
                self.settings.server_tcp.clone().unwrap_or_default()
            } else {
                ServerTcp::default()
            },
        }
    }
}
