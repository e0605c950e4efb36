//! Arguments of `explain`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use units::parse_duration;

use super::At;

#[derive(Args, Debug)]
pub struct Explain {
    /// Read this pcap or pcapng file
    #[arg(short, long, value_name = "FILE")]
    pub read: PathBuf,
    /// Where the packets of --read were captured, which decides what they show
    #[arg(long, value_enum, default_value_t = At::Client)]
    pub at: At,
    /// Also read a capture of the same connections at the server, on the same clock; --read is then of the client
    #[arg(long, value_name = "FILE")]
    pub read_server: Option<PathBuf>,
    /// Set the path's round-trip time without queues, if known: a queue that never empties is then not taken for
    /// distance
    #[arg(long, value_parser = parse_duration)]
    pub rtt: Option<Duration>,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
}
