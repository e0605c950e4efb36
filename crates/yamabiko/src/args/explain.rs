//! Arguments of `explain`.

use std::path::PathBuf;

use clap::Args;

use super::At;

#[derive(Args, Debug)]
pub struct Explain {
    /// Read this pcap or pcapng file
    #[arg(short, long, value_name = "FILE")]
    pub read: PathBuf,
    /// Where the packets of --read were captured
    #[arg(long, value_enum, default_value_t = At::Client)]
    pub at: At,
    /// A capture of the same connections at the server, on the same clock; --read is then of the client
    #[arg(long, value_name = "FILE")]
    pub read_server: Option<PathBuf>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}
