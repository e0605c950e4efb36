//! Arguments of `profile learn`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use units::parse_duration;

use super::At;

#[derive(Args, Debug)]
pub struct Learn {
    /// A pcap or pcapng file, `-` for standard input, or a run with a capture (its folder, its name, or `last`)
    #[arg(required_unless_present = "interface", conflicts_with = "interface")]
    pub file: Option<PathBuf>,
    /// Capture on this device
    #[arg(short, long, value_name = "DEVICE")]
    pub interface: Option<String>,
    /// Length of the capture [default: until Ctrl-C]
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true, requires = "interface")]
    pub duration: Option<Duration>,
    /// Only servers with this port; may be repeated
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,
    /// Only servers with this address; may be repeated
    #[arg(long = "server", value_name = "ADDRESS")]
    pub servers: Vec<IpAddr>,
    /// Leave this client out: a monitor, a health check; may be repeated
    #[arg(long = "except", value_name = "ADDRESS")]
    pub except: Vec<IpAddr>,
    /// Where the packets are captured [default: server, unless the run says otherwise]
    #[arg(long, value_enum)]
    pub at: Option<At>,
    /// What each value of the distribution stands for
    #[arg(long, value_enum, default_value_t = By::Connection)]
    pub by: By,
    /// Also learn how much each packet's delay varies
    #[arg(long)]
    pub jitter: bool,
    /// Leave the loss out of the profile
    #[arg(long)]
    pub no_loss: bool,
    /// Also packets that are not for this machine, as at a mirror port
    #[arg(long, requires = "interface")]
    pub promiscuous: bool,
    /// The profile's file; the arrivals are written beside it [default: NAME.toml]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The profile's name [default: from its file, else from the source]
    #[arg(long)]
    pub name: Option<String>,
    /// Write over files that are there
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum By {
    /// Each connection: reproduces the load where each request has its own connection
    Connection,
    /// Each request: reproduces the load where connections are kept open
    Request,
    /// Each client address once, however much it asks for
    Client,
}
