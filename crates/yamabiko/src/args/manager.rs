//! Arguments of `tap manager` and its tokens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use broker::StreamAddress;
use clap::{Args, Subcommand, ValueEnum};
use manager::tokens::Role;
use units::Bytes;

use super::address;
use super::export::complete_url;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Manager {
    #[command(subcommand)]
    pub what: Option<ManagerWhat>,
    /// Listen for agents and API clients, with TLS and tokens, on this address; 0.0.0.0:PORT or [::]:PORT for all addresses
    #[arg(long, value_name = "ADDR:PORT", required = true, value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// Folder of its data, on a local disk: index, files by day, certificate
    #[arg(long, value_name = "DIR", required = true)]
    pub data: Option<PathBuf>,
    /// Read batches also from this stream of NATS JetStream, to which agents publish (`tap agent --to`); tls:// for TLS.
    /// Credentials: NATS_CREDS, NATS_USER and NATS_PASSWORD, NATS_CA, NATS_CERT and NATS_KEY
    #[arg(long, value_name = "nats://HOST[:PORT]/STREAM")]
    pub from: Option<StreamAddress>,
    /// Most bytes of the stream, if it does not exist yet: beyond them its oldest batches are discarded
    #[arg(long, value_name = "BYTES", default_value = "10GB", requires = "from")]
    pub stream_bytes: Bytes,
    /// Age at which the stream discards batches, if it does not exist yet, in days or hours
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = age, requires = "from")]
    pub stream_age: Age,
    /// Servers of a NATS cluster that store the stream, if it does not exist yet
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=5), requires = "from")]
    pub stream_replicas: u8,
    /// Serve the web page on this address; its URL contains a secret. Beyond loopback with TLS
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    pub page: SocketAddr,
    /// Name or address of this host for its certificate, and for the web page in browsers; may be repeated
    #[arg(long = "host", value_name = "NAME|ADDR")]
    pub hosts: Vec<String>,
    /// Use this certificate chain (PEM) instead of a generated one
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Key of the certificate (PEM). SIGHUP reloads both
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Keep data for this time, in days or hours, or `forever`: complete days (UTC), the oldest are deleted first
    #[arg(long, value_name = "TIME", default_value = "400d", value_parser = age)]
    pub keep_for: Age,
    /// Most bytes of data, or `unlimited`: beyond it the oldest day is deleted
    #[arg(long, value_name = "BYTES", default_value = "50GB", value_parser = size)]
    pub keep_bytes: Size,
    /// Forward all data to an OpenTelemetry receiver by OTLP over HTTP, such as http://127.0.0.1:4318; without a path, to
    /// /v1/metrics
    #[arg(long, value_name = "URL", value_parser = complete_url)]
    pub otlp: Option<String>,
    /// File with headers for the OpenTelemetry receiver, `Name: value` each
    #[arg(long, value_name = "FILE", requires = "otlp")]
    pub otlp_header_file: Option<PathBuf>,
    /// Send alerts to this URL, by POST with JSON
    #[arg(long, value_name = "URL", value_parser = complete_url)]
    pub webhook: Option<String>,
    /// File with headers for the webhook
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub webhook_header_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's, for --otlp and --webhook
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ManagerWhat {
    /// Manage tokens of agents and API clients
    #[command(subcommand)]
    Token(Token),
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token, for an agent by default; it is shown only once
    Add(TokenAdd),
    /// List all tokens
    List(TokenList),
    /// Revoke a token, from its next request on
    Revoke(TokenRevoke),
}

#[derive(Args, Debug)]
pub struct TokenAdd {
    /// Name of the agent or operator: 1 to 63 of a-z, 0-9, `-`, `.`, `_`
    pub name: String,
    /// Role of the token
    #[arg(long, value_enum, default_value = "agent")]
    pub role: RoleName,
    /// The manager's --data folder; the manager may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Write the token to this new file, readable by its owner only, instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct TokenList {
    /// The manager's --data folder; the manager may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

#[derive(Args, Debug)]
pub struct TokenRevoke {
    /// Name of the agent or operator
    pub name: String,
    /// Only the token with this role
    #[arg(long, value_enum)]
    pub role: Option<RoleName>,
    /// The manager's --data folder; the manager may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Sends the data of one agent
    Agent,
    /// Reads everything, changes settings, groups and rules
    Operator,
    /// Reads everything
    Reader,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Agent => Role::Agent,
            RoleName::Operator => Role::Operator,
            RoleName::Reader => Role::Reader,
        }
    }
}

/// A retention time; `None`: forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Option<Duration>);

/// A size limit; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub Option<u64>);

fn age(text: &str) -> Result<Age, String> {
    const EXPECTED: &str = "expected a time such as 400d or 36h, from 1h to 36500d, or `forever`";
    if text == "forever" {
        return Ok(Age(None));
    }
    let (number, unit_s) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(number), _) => (number, 86_400),
        (_, Some(number)) => (number, 3600),
        _ => return Err(EXPECTED.to_owned()),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s)) {
        Some(seconds) if (3600..=36_500 * 86_400).contains(&seconds) => Ok(Age(Some(Duration::from_secs(seconds)))),
        _ => Err(EXPECTED.to_owned()),
    }
}

fn size(text: &str) -> Result<Size, String> {
    match text {
        "unlimited" => Ok(Size(None)),
        text => text.parse::<Bytes>().map(|bytes| Size(Some(bytes.0))).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_times_and_sizes_are_parsed() {
        assert_eq!(age("400d"), Ok(Age(Some(Duration::from_secs(400 * 86_400)))));
        assert_eq!((age("36h"), age("forever")), (Ok(Age(Some(Duration::from_secs(129_600)))), Ok(Age(None))));
        for wrong in ["", "400", "0d", "d", "-1d", "36501d", "1.5d", "99999999999999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        assert_eq!((size("50GB"), size("unlimited")), (Ok(Size(Some(50_000_000_000))), Ok(Size(None))));
        assert!(size("50").is_err());
    }
}
