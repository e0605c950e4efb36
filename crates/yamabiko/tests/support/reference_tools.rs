//! Results of tcptrace and tshark for a capture.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// One connection as tcptrace reports it; `a` is the sender of the first packet. Columns have the names of its CSV
/// output.
#[derive(Clone, Debug)]
pub struct TcptraceConnection {
    pub a: SocketAddr,
    pub b: SocketAddr,
    /// First and last packet, in microseconds since 1970.
    pub first_us: u64,
    pub last_us: u64,
    columns: HashMap<String, String>,
}

impl TcptraceConnection {
    /// A count of one direction, such as `actual_data_bytes`.
    pub fn count(&self, name: &str, from_a: bool) -> u64 {
        let text = self.text(name, from_a);
        text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    }

    /// Number of SYN and of FIN packets of one direction.
    pub fn syns_and_fins(&self, from_a: bool) -> (u64, u64) {
        let text = self.text("SYN/FIN_pkts_sent", from_a);
        let (syns, fins) = text.split_once('/').unwrap_or_else(|| panic!("SYN/FIN is {text}"));
        (syns.parse().unwrap(), fins.parse().unwrap())
    }

    fn text(&self, name: &str, from_a: bool) -> &str {
        let name = format!("{name}_{}", if from_a { "a2b" } else { "b2a" });
        self.columns.get(&name).unwrap_or_else(|| panic!("tcptrace has no column {name}"))
    }
}

/// Every connection of a capture as tcptrace reports it, in tcptrace's order.
pub fn tcptrace(file: &Path) -> Vec<TcptraceConnection> {
    let text = run("tcptrace", &["-nl", "--csv"], file);
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let names: Vec<&str> = lines.next().expect("a line of names").split(',').map(str::trim).collect();
    lines
        .map(|line| {
            let values = line.split(',').map(|value| value.trim().to_owned());
            let columns: HashMap<String, String> = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            let end = |end: &str| {
                let text = format!("{}:{}", columns[&format!("host_{end}")], columns[&format!("port_{end}")]);
                text.parse().unwrap_or_else(|_| panic!("{text} is not a valid address"))
            };
            TcptraceConnection {
                a: end("a"),
                b: end("b"),
                first_us: time_us(&columns["first_packet"]),
                last_us: time_us(&columns["last_packet"]),
                columns,
            }
        })
        .collect()
}

/// tcptrace prints the microseconds without leading zeros: `17.11496` is 17 s and 11,496 us.
fn time_us(text: &str) -> u64 {
    let (seconds, micros) = text.split_once('.').unwrap_or_else(|| panic!("{text} is not a valid time"));
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// HTTP messages in a capture, as tshark counts them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TsharkCounts {
    /// Requests by method.
    pub methods: BTreeMap<String, u64>,
    /// Responses by status, without interim responses.
    pub statuses: BTreeMap<String, u64>,
}

/// Runs tshark. With truncated packets tshark does not reassemble streams and prints a retransmitted head twice, so
/// only the first of several segments with one sequence number counts. (The field `tcp.analysis.retransmission` is not
/// usable: tshark also sets it for a request that was lost before the capture and arrives after the FIN.)
pub fn tshark(file: &Path) -> TsharkCounts {
    let field = |field: &str| {
        let columns = ["-T", "fields", "-e", "tcp.stream", "-e", "tcp.seq_raw", "-e", field];
        let options = ["-o", "tcp.reassemble_out_of_order:TRUE", "-Y", field];
        let (mut counts, mut seen) = (BTreeMap::new(), HashSet::new());
        for line in run("tshark", &[&options[..], &columns, &["-r"]].concat(), file).lines() {
            let (segment, values) = line.rsplit_once('\t').unwrap_or_else(|| panic!("tshark: {line}"));
            if seen.insert(segment.to_owned()) {
                for value in values.split(',') {
                    *counts.entry(value.to_owned()).or_insert(0) += 1;
                }
            }
        }
        counts
    };
    let mut dissected = TsharkCounts { methods: field("http.request.method"), statuses: field("http.response.code") };
    dissected.statuses.retain(|status, _| !status.starts_with('1'));
    dissected
}

/// A retransmitted SYN or FIN without payload.
#[derive(Clone, Copy, Debug)]
pub struct BareRetransmission {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub at_us: u64,
}

/// All retransmitted SYNs and FINs without payload in a capture, identified by their position in the stream: a FIN
/// without payload after the same FIN with data is a retransmission.
pub fn bare_retransmissions(file: &Path) -> Vec<BareRetransmission> {
    let bytes = std::fs::read(file).unwrap();
    let (mut seen, mut repeats) = (HashSet::new(), Vec::new());
    for captured in wire::capture::packets(&bytes).map(Result::unwrap) {
        let packet = wire::ip::Packet::parse(captured.bytes, captured.original_length as usize).unwrap();
        let wire::ip::Addresses::V4(source, destination) = packet.addresses else { continue };
        let length = packet.total_len - packet.transport_at;
        let tcp = wire::ip::TcpHeader::parse(&captured.bytes[packet.transport_at..], length).unwrap();
        let (from, to) = (SocketAddr::from((source, tcp.source_port)), (destination, tcp.destination_port).into());
        let payload = length - tcp.header_len;
        for flag in [wire::tcp::flags::SYN, wire::tcp::flags::FIN] {
            let position = tcp.sequence.wrapping_add(payload as u32);
            if tcp.flags & flag != 0 && !seen.insert((from, to, flag, position)) && payload == 0 {
                repeats.push(BareRetransmission { from, to, at_us: captured.at.as_nanos() / 1000 });
            }
        }
    }
    repeats
}

/// What tshark's analysis of TCP says of one connection, whose server has port 8080.
#[derive(Clone, Copy, Debug)]
pub struct TsharkStream {
    pub client: SocketAddr,
    /// From the SYN to the ACK that ends the handshake, by its packets; `None` if tshark does not state it.
    pub handshake_rtt_ms: Option<f64>,
    /// Segments that filled the receiver's window (expert: "TCP window full").
    pub window_full: u64,
    /// Largest window that the client advertised after its SYN, bytes.
    pub window_max: u64,
}

/// Every TCP connection of a capture as tshark analyses it.
pub fn tshark_streams(file: &Path) -> Vec<TsharkStream> {
    const FIELDS: [&str; 8] = [
        "ip.src",
        "tcp.srcport",
        "ip.dst",
        "tcp.dstport",
        "tcp.flags.syn",
        "tcp.window_size",
        "tcp.analysis.initial_rtt",
        "tcp.analysis.window_full",
    ];
    let columns: Vec<&str> = FIELDS.iter().flat_map(|field| ["-e", *field]).collect();
    let text = run("tshark", &[&["-n", "-T", "fields"], &columns[..], &["-Y", "tcp && !icmp", "-r"]].concat(), file);
    let mut streams: Vec<TsharkStream> = Vec::new();
    for line in text.lines() {
        let values: Vec<&str> = line.split('\t').collect();
        let [source, source_port, destination, destination_port, syn, window, rtt, full] = values[..] else {
            panic!("tshark: {line}")
        };
        let up = destination_port == "8080";
        let (address, port) = if up { (source, source_port) } else { (destination, destination_port) };
        let client = SocketAddr::new(address.parse().unwrap(), port.parse().unwrap());
        let place = streams.iter().position(|stream| stream.client == client).unwrap_or_else(|| {
            streams.push(TsharkStream { client, handshake_rtt_ms: None, window_full: 0, window_max: 0 });
            streams.len() - 1
        });
        let stream = &mut streams[place];
        if up && !["1", "True"].contains(&syn) {
            stream.window_max = stream.window_max.max(window.parse().unwrap());
        }
        if let Ok(seconds) = rtt.parse::<f64>() {
            stream.handshake_rtt_ms = Some(seconds * 1e3);
        }
        stream.window_full += u64::from(!full.is_empty());
    }
    streams
}

fn run(program: &str, options: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(options).arg(file).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
