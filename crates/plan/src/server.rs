//! `[server]`: the server that the testbed starts, its resource limits, and its TCP settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuShare};

/// The server that the testbed starts in its own sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Server"))]
pub struct ServerPlan {
    /// Shell command that starts the server; it must listen on all addresses, or on those of the testbed's server end:
    /// 198.18.0.1, and 2001:2:0:1::1 for IPv6.
    // `--server` is defined by each verb: compare takes two.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub command: String,
    /// Limit the server to this share of one core, such as 50%
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "server_cpu", long = "server-cpu", value_name = "SHARE"))]
    #[cfg_attr(feature = "cli", arg(requires = "server", allow_hyphen_values = true))]
    pub cpu: Option<CpuShare>,
    /// Limit of CPU time from shortly before the measured phase on, where it differs from `cpu`, with which the server
    /// starts and warms up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub cpu_measured: Option<CpuShare>,
    /// Limit the server's memory, page cache included, such as 64MiB; the kernel kills a process that needs more
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "server_memory", long = "server-memory", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(requires = "server", allow_hyphen_values = true))]
    pub memory: Option<Bytes>,
    /// Set the server's TCP, such as initcwnd=2,cc=reno; also of a service that already runs on this host
    #[serde(default)]
    #[cfg_attr(feature = "cli", arg(id = "server_tcp", long = "server-tcp", value_name = "SETTINGS"))]
    #[cfg_attr(feature = "cli", arg(default_value = "", hide_default_value = true))]
    pub tcp: ServerTcp,
    /// Add a host name of the server, for Host headers and certificates; may be repeated
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "cli",
        arg(id = "server_name", long = "server-name", value_name = "NAME", requires = "server")
    )]
    pub names: Vec<String>,
    /// Give the server's names this many addresses of each family, from 198.18.0.1 on; connections use them in turn
    #[serde(default = "one")]
    #[cfg_attr(feature = "cli", arg(id = "server_addresses", long = "server-addresses", value_name = "NUMBER"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = 1, requires = "server", allow_hyphen_values = true))]
    pub addresses: u32,
    /// Wait at most this long for the server to listen; less if it has been listening on other ports
    #[serde(with = "units::time::text", default = "default_start_timeout")]
    #[cfg_attr(feature = "cli", arg(id = "server_start_timeout", long = "server-start-timeout"))]
    #[cfg_attr(feature = "cli", arg(value_name = "SERVER_START_TIMEOUT", requires = "server"))]
    #[cfg_attr(feature = "cli", arg(default_value = "10s", value_parser = units::parse_duration, allow_hyphen_values = true))]
    pub start_timeout: Duration,
}

impl Default for ServerPlan {
    /// A server without a command, all other fields at their defaults.
    fn default() -> Self {
        ServerPlan {
            command: String::new(),
            cpu: None,
            cpu_measured: None,
            memory: None,
            tcp: ServerTcp::default(),
            names: Vec::new(),
            addresses: one(),
            start_timeout: default_start_timeout(),
        }
    }
}

fn one() -> u32 {
    1
}

fn default_start_timeout() -> Duration {
    Duration::from_secs(10)
}

impl ServerPlan {
    /// A server with this command, all other fields at their defaults.
    pub fn of(command: impl Into<String>) -> Self {
        ServerPlan { command: command.into(), ..ServerPlan::default() }
    }

    /// Most addresses of each family.
    pub const ADDRESSES_MAX: u32 = 250;
    /// No server starts with less memory.
    pub const MEMORY_MIN: Bytes = Bytes(1 << 20);

    /// The CPU limit of the measured phase, if there is one.
    pub fn share(&self) -> Option<CpuShare> {
        self.cpu_measured.or(self.cpu)
    }

    /// Refuses contradictions.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.addresses == 0 || self.addresses > Self::ADDRESSES_MAX {
            return Err(format!(
                "addresses = {} (--server-addresses): expected 1 to {}",
                self.addresses,
                Self::ADDRESSES_MAX
            ));
        }
        if let Some(memory) = self.memory.filter(|memory| *memory < Self::MEMORY_MIN) {
            return Err(format!("memory = \"{memory}\" (--server-memory): expected at least {}", Self::MEMORY_MIN));
        }
        let usual = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match self.names.iter().find(|name| name.is_empty() || !name.chars().all(usual)) {
            Some(name) => {
                Err(format!("`{name}` (--server-name) is not a valid host name: expected letters, digits, dots and -"))
            }
            None => Ok(()),
        }
    }
}

/// TCP settings of the server, set on its route to the clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTcp {
    /// Initial congestion window in segments; absent: the kernel's default (10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initcwnd: Option<u32>,
    /// Congestion control; absent: the host's default, which the result names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
}

impl ServerTcp {
    /// Whether no setting is given.
    pub fn is_unset(&self) -> bool {
        *self == ServerTcp::default()
    }
}

impl std::str::FromStr for ServerTcp {
    type Err = String;

    /// Parses `initcwnd=2,cc=reno`, either or both.
    fn from_str(typed: &str) -> Result<Self, String> {
        let mut tcp = ServerTcp::default();
        for part in typed.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("initcwnd", value)) => match value.parse() {
                    Ok(segments @ 1..=1000) => tcp.initcwnd = Some(segments),
                    _ => return Err(format!("initcwnd={value}: expected a number of segments from 1 to 1000")),
                },
                Some(("cc", value)) if !value.is_empty() => tcp.cc = Some(value.to_owned()),
                _ => return Err(format!("`{part}` is not a valid setting: expected initcwnd=2,cc=reno")),
            }
        }
        Ok(tcp)
    }
}
