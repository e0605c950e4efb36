//! Arguments for the server at the end of the path.

use std::net::IpAddr;

use clap::Args;
use plan::{AddressFamily, ServerPlan, ServerTcp, TargetPlan};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Start this server at the end of the path; it must listen on every address or on 198.18.0.1
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    #[command(flatten)]
    pub settings: ServerPlan,
    #[command(flatten)]
    pub family: FamilyOptions,
}

#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Server")]
pub struct FamilyOptions {
    /// Use IPv4 only [default: IPv4 if both exist]; with -6, both
    #[arg(short = '4', long)]
    pub ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long)]
    pub ipv6: bool,
}

impl From<FamilyOptions> for AddressFamily {
    fn from(options: FamilyOptions) -> Self {
        match (options.ipv4, options.ipv6) {
            (false, false) => AddressFamily::Any,
            (true, false) => AddressFamily::Ipv4,
            (false, true) => AddressFamily::Ipv6,
            (true, true) => AddressFamily::Both,
        }
    }
}

impl ServerOptions {
    /// The plan of the server in the testbed.
    pub fn server_plan(&self) -> Option<ServerPlan> {
        Some(ServerPlan { command: self.server.clone()?, ..self.settings.clone() })
    }

    /// The plan of the target; `addresses` replace name resolution.
    pub fn target_plan(&self, addresses: &[IpAddr]) -> TargetPlan {
        TargetPlan {
            family: self.family.into(),
            addresses: addresses.to_vec(),
            owned: Vec::new(),
            // With a server in the testbed it is in the server's plan.
            tcp: if self.server.is_none() { self.settings.tcp.clone() } else { ServerTcp::default() },
        }
    }
}
