//! `tap manager` and its tokens as typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use manager::tokens::Role;
use units::Bytes;

use super::address;
use super::export::whole_url;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Manager {
    #[command(subcommand)]
    pub what: Option<ManagerWhat>,
    /// Where agents and programs come, by TLS and with a token each; 0.0.0.0:PORT or [::]:PORT for all addresses
    #[arg(long, value_name = "ADDR:PORT", required = true, value_parser = address)]
    pub listen: Option<SocketAddr>,
    /// The folder of all that it has: index, files of days, its own certificate. On a local disk
    #[arg(long, value_name = "DIR", required = true)]
    pub data: Option<PathBuf>,
    /// Where the page is served; its URL has a secret in it. Beyond loopback by TLS
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    pub page: SocketAddr,
    /// A name or address of this host that its own certificate shall be good for, and by which browsers may ask for the page;
    /// may be given more than once
    #[arg(long = "host", value_name = "NAME|ADDR")]
    pub hosts: Vec<String>,
    /// Serve this certificate (PEM, with those that lead to its authority) instead of one of the manager's own making
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Its key (PEM). SIGHUP makes the manager read both again
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// How long what agents saw is kept, in days or hours, or `forever`: whole days (UTC), the oldest go first
    #[arg(long, value_name = "TIME", default_value = "400d", value_parser = age)]
    pub keep_for: Age,
    /// How many bytes the files of days may have, or `unlimited`: beyond, the oldest day goes
    #[arg(long, value_name = "BYTES", default_value = "50GB", value_parser = size)]
    pub keep_bytes: Size,
    /// Send all that comes to an OpenTelemetry receiver by OTLP over HTTP as well, such as http://127.0.0.1:4318; without a path, to
    /// /v1/metrics
    #[arg(long, value_name = "URL", value_parser = whole_url)]
    pub otlp: Option<String>,
    /// A file of headers for it, `Name: value` each
    #[arg(long, value_name = "FILE", requires = "otlp")]
    pub otlp_header_file: Option<PathBuf>,
    /// Tell this URL of alerts, by POST with JSON
    #[arg(long, value_name = "URL", value_parser = whole_url)]
    pub webhook: Option<String>,
    /// A file of headers for it
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub webhook_header_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file, instead of the system's, when sending to these two
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ManagerWhat {
    /// Tokens: who may come
    #[command(subcommand)]
    Token(Token),
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make one, for an agent unless another role is given; it is shown this once
    Add(TokenAdd),
    /// List all that were made
    List(TokenList),
    /// Revoke one: it is worth nothing from the next request on
    Revoke(TokenRevoke),
}

#[derive(Args, Debug)]
pub struct TokenAdd {
    /// The agent's name, or the operator's: 1 to 63 of a-z, 0-9, `-`, `.`, `_`
    pub name: String,
    /// What it is for
    #[arg(long, value_enum, default_value = "agent")]
    pub role: RoleName,
    /// The manager's folder; it may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Write the token to this new file, which only its owner may read, instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct TokenList {
    /// The manager's folder; it may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

#[derive(Args, Debug)]
pub struct TokenRevoke {
    /// Whose
    pub name: String,
    /// Only the one of this role
    #[arg(long, value_enum)]
    pub role: Option<RoleName>,
    /// The manager's folder; it may be running
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RoleName {
    /// Hands over what one agent saw
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

/// How long; `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Option<Duration>);

/// How much; `None`: without bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub Option<u64>);

fn age(typed: &str) -> Result<Age, String> {
    const WANTED: &str = "a time is written like 400d or 36h, from 1h to 36500d, or `forever`";
    if typed == "forever" {
        return Ok(Age(None));
    }
    let (number, unit_s) = match (typed.strip_suffix('d'), typed.strip_suffix('h')) {
        (Some(number), _) => (number, 86_400),
        (_, Some(number)) => (number, 3600),
        _ => return Err(WANTED.to_owned()),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_s)) {
        Some(seconds) if (3600..=36_500 * 86_400).contains(&seconds) => Ok(Age(Some(Duration::from_secs(seconds)))),
        _ => Err(WANTED.to_owned()),
    }
}

fn size(typed: &str) -> Result<Size, String> {
    match typed {
        "unlimited" => Ok(Size(None)),
        typed => typed.parse::<Bytes>().map(|bytes| Size(Some(bytes.0))).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes() {
        assert_eq!(age("400d"), Ok(Age(Some(Duration::from_secs(400 * 86_400)))));
        assert_eq!((age("36h"), age("forever")), (Ok(Age(Some(Duration::from_secs(129_600)))), Ok(Age(None))));
        for wrong in ["", "400", "0d", "d", "-1d", "36501d", "1.5d", "99999999999999999999d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        assert_eq!((size("50GB"), size("unlimited")), (Ok(Size(Some(50_000_000_000))), Ok(Size(None))));
        assert!(size("50").is_err());
    }
}
