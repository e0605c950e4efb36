//! Arguments of `watch`.

use std::net::IpAddr;
#[cfg(feature = "web")]
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "web")]
use broker::StreamAddress;
use clap::{Args, ValueEnum};
#[cfg(feature = "web")]
use http::Uri;
use units::parse_duration;

#[derive(Args, Debug)]
#[command(
    after_help = "--to http:// sends token and figures unencrypted: use it inside of a trusted network or through a tunnel. \
                  Credentials of NATS: NATS_CREDS, NATS_USER and NATS_PASSWORD, NATS_CA, NATS_CERT and NATS_KEY."
)]
#[command(group = clap::ArgGroup::new("source").args(SOURCES).required(true))]
pub struct Watch {
    /// Capture on this device until Ctrl-C or q
    #[arg(short, long, value_name = "DEVICE")]
    pub interface: Option<String>,
    /// Read this pcap or pcapng file; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Receive what other hosts send with --to, on this address or, for a port alone, on loopback; or from a stream of NATS
    /// JetStream, nats://HOST[:PORT]/STREAM, tls:// for TLS
    #[cfg(feature = "web")]
    #[arg(long, value_name = "ADDRESS:PORT|nats://..", value_parser = receive_from, conflicts_with_all = PACKET_OPTIONS)]
    pub from: Option<ReceiveFrom>,
    /// Only TCP and UDP with this port at either end; without a captured SYN, the end with this port is the server. May be repeated
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,
    /// Only TCP and UDP with this address at either end; may be repeated
    #[arg(long = "host", value_name = "ADDRESS")]
    pub hosts: Vec<IpAddr>,
    /// Address of a server, for connections without a captured SYN; may be repeated
    #[arg(long = "server", value_name = "ADDRESS")]
    pub servers: Vec<IpAddr>,
    /// Where the packets are captured, which decides the meaning of the handshake RTT
    #[arg(long, value_enum, default_value_t = At::Server)]
    pub at: At,
    /// End after this time
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true, conflicts_with = "read")]
    pub duration: Option<Duration>,
    /// Bytes captured of each packet, link header included [default: 1024, or complete packets with a log file or
    /// --pcapng]
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(64..=262_144))]
    #[arg(conflicts_with = "read")]
    pub snaplen: Option<u32>,
    /// Capture packets for other machines, too, as at a mirror port
    #[arg(long, conflicts_with = "read")]
    pub promiscuous: bool,
    /// Decrypt TLS and QUIC with the secrets in this file, which clients and servers write for SSLKEYLOGFILE
    #[arg(long, value_name = "FILE", requires = "read")]
    pub keylog: Option<PathBuf>,
    /// Write requests to this file in Combined Log Format, and their service time in microseconds
    #[arg(long, value_name = "FILE")]
    pub clf: Option<PathBuf>,
    /// Write requests to this file as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write requests to this file as JSON, one object per line
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Write the packets selected by --port and --host to this pcapng file
    #[arg(long, value_name = "FILE")]
    pub pcapng: Option<PathBuf>,
    /// Send the figures of each second to a `watch --from` at this URL, or to a stream of NATS JetStream that it reads:
    /// nats://HOST[:PORT]/STREAM, tls:// for TLS
    #[cfg(feature = "web")]
    #[arg(long, value_name = "http://HOST:PORT|nats://..", value_parser = send_to, conflicts_with_all = ["read", "from"])]
    pub to: Option<SendTo>,
    /// File with the secret of --to and --from [default: $YAMABIKO_TOKEN, if set]
    #[cfg(feature = "web")]
    #[arg(long, value_name = "FILE", conflicts_with = "read")]
    pub token_file: Option<PathBuf>,
    /// Print one line per second instead of the screen
    #[arg(long)]
    pub plain: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Set the run's name, a part of its folder's name
    #[arg(long, default_value = "watch")]
    pub name: String,
    /// Do not store the run
    #[arg(long)]
    pub no_save: bool,
    // For a file, which is read quickly, use `report`.
    #[command(flatten)]
    pub show: super::ShowOptions,
}

/// Options of the source of packets, of which one is given.
#[cfg(feature = "web")]
const SOURCES: [&str; 3] = ["interface", "read", "from"];
#[cfg(not(feature = "web"))]
const SOURCES: [&str; 2] = ["interface", "read"];

/// Options of packets, which contradict figures from other hosts.
#[cfg(feature = "web")]
const PACKET_OPTIONS: [&str; 11] =
    ["ports", "hosts", "servers", "at", "snaplen", "promiscuous", "clf", "csv", "jsonl", "pcapng", "to"];

/// Where figures of other hosts come from.
#[cfg(feature = "web")]
#[derive(Clone, Debug)]
pub enum ReceiveFrom {
    /// Senders connect to this address.
    Listen(SocketAddr),
    /// Senders publish to this stream.
    Stream(StreamAddress),
}

/// Where figures are sent.
#[cfg(feature = "web")]
#[derive(Clone, Debug)]
pub enum SendTo {
    /// A receiver's URL.
    Receiver(String),
    /// A stream.
    Stream(StreamAddress),
}

#[cfg(feature = "web")]
fn receive_from(text: &str) -> Result<ReceiveFrom, String> {
    if StreamAddress::is_meant(text) {
        return text.parse().map(ReceiveFrom::Stream);
    }
    listen_address(text).map(ReceiveFrom::Listen)
}

#[cfg(feature = "web")]
fn send_to(text: &str) -> Result<SendTo, String> {
    if StreamAddress::is_meant(text) {
        return text.parse().map(SendTo::Stream);
    }
    base_url(text).map(SendTo::Receiver)
}

/// An address with a port, or a port of loopback.
#[cfg(feature = "web")]
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = |port: &str| port.parse::<u16>().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    text.parse().ok().or_else(|| port(text)).ok_or_else(|| {
        "expected an address and a port, such as 192.0.2.1:7020 or [::]:7020, or a port of loopback, such as 7020"
            .to_owned()
    })
}

/// `http://host[:port]`, without the slash that may end it.
#[cfg(feature = "web")]
fn base_url(text: &str) -> Result<String, String> {
    let base = text.strip_suffix('/').unwrap_or(text);
    let Some(host) = base.strip_prefix("http://") else {
        return Err("expected an address such as http://192.0.2.1:7020; there is no TLS (https)".to_owned());
    };
    // An invalid port is not reported by `Uri`.
    let is_complete = |uri: &Uri| uri.port_u16().is_some() || uri.host() == Some(host);
    if host.contains(['@', '/', '?', '#']) || !base.parse::<Uri>().is_ok_and(|uri| is_complete(&uri)) {
        return Err("expected only a host and a port, such as http://192.0.2.1:7020".to_owned());
    }
    Ok(base.to_owned())
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum At {
    Server,
    Client,
    Between,
}

#[cfg(all(test, feature = "web"))]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_addresses() {
        assert!(matches!(receive_from("nats://h/S"), Ok(ReceiveFrom::Stream(_))));
        assert!(matches!(receive_from("7020"), Ok(ReceiveFrom::Listen(_))));
        assert!(matches!(send_to("tls://h:4222/S"), Ok(SendTo::Stream(_))));
        assert!(matches!(send_to("http://h:80"), Ok(SendTo::Receiver(_))));
        assert!(receive_from("nats://h").unwrap_err().contains("/STREAM"));
        assert!(send_to("nats://h/").unwrap_err().contains("/STREAM"));
    }

    #[test]
    fn port_alone_listens_on_loopback() {
        assert_eq!(listen_address("7020").unwrap().to_string(), "127.0.0.1:7020");
        assert_eq!(listen_address("[::1]:0").unwrap().to_string(), "[::1]:0");
        for wrong in ["", "host:80", "70000", "192.0.2.1", "-1"] {
            assert!(listen_address(wrong).unwrap_err().contains("192.0.2.1:7020"), "{wrong}");
        }
    }

    #[test]
    fn receiver_must_be_an_http_url_of_host_and_port() {
        assert_eq!(base_url("http://h:7020/").unwrap(), "http://h:7020");
        assert_eq!(base_url("http://[::1]:7020").unwrap(), "http://[::1]:7020");
        assert!(base_url("https://h").unwrap_err().contains("no TLS"));
        for wrong in ["http://", "http://u:p@h:1", "http://h:1/path", "http://h\n", "http://[::1", "http://h:99999"] {
            assert!(base_url(wrong).is_err(), "{wrong}");
        }
    }
}
