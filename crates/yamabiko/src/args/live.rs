//! Arguments of `live`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::address;

#[derive(Args, Debug)]
pub struct Live {
    /// A run's name, the beginning of one, its folder, or `last`; without it the page lists the runs to choose from
    pub run: Option<String>,
    /// Where the page is served; port 0 is any that is free. Beyond loopback its URL has a secret in it
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = address)]
    pub listen: SocketAddr,
    /// A name of this host, besides its addresses, by which browsers may ask for the page; may be given more than once
    #[arg(long = "allow-host", value_name = "NAME")]
    pub allow_hosts: Vec<String>,
    /// The secret of the URL: the first line of this file [default: $YAMABIKO_TOKEN, else one made at the start, where there is need]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Want a secret on loopback as well: other users of this machine could else open the page
    #[arg(long)]
    pub token: bool,
    /// Show the run folders named on standard input, a line each, the newest; end with it
    #[arg(long, conflicts_with = "run", hide = true)]
    pub follow_stdin: bool,
}
