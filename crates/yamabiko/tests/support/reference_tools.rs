//! What tcptrace and tshark make of a capture.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// One connection by tcptrace; `a` is who sent the first packet. Columns by the names of its CSV output.
#[derive(Clone, Debug)]
pub struct Traced {
    pub a: SocketAddr,
    pub b: SocketAddr,
    /// First and last packet, in microseconds since 1970.
    pub first_us: u64,
    pub last_us: u64,
    columns: HashMap<String, String>,
}

impl Traced {
    /// A figure of one direction, as `actual_data_bytes`.
    pub fn count(&self, name: &str, from_a: bool) -> u64 {
        let text = self.text(name, from_a);
        text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    }

    /// How often SYN and FIN were sent.
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

/// Every connection of a capture, as tcptrace sees it, in its order.
pub fn tcptrace(file: &Path) -> Vec<Traced> {
    let text = run("tcptrace", &["-nl", "--csv"], file);
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let names: Vec<&str> = lines.next().expect("a line of names").split(',').map(str::trim).collect();
    lines
        .map(|line| {
            let values = line.split(',').map(|value| value.trim().to_owned());
            let columns: HashMap<String, String> = names.iter().map(|name| (*name).to_owned()).zip(values).collect();
            let end = |end: &str| {
                let text = format!("{}:{}", columns[&format!("host_{end}")], columns[&format!("port_{end}")]);
                text.parse().unwrap_or_else(|_| panic!("{text} is no address"))
            };
            Traced {
                a: end("a"),
                b: end("b"),
                first_us: moment(&columns["first_packet"]),
                last_us: moment(&columns["last_packet"]),
                columns,
            }
        })
        .collect()
}

/// tcptrace prints the microseconds without leading zeros: `17.11496` is 17 s and 11,496 us.
fn moment(text: &str) -> u64 {
    let (seconds, micros) = text.split_once('.').unwrap_or_else(|| panic!("{text} is no moment"));
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// HTTP in a capture, as tshark sees it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dissected {
    /// Requests by method.
    pub methods: BTreeMap<String, u64>,
    /// Responses by status, interim ones left out.
    pub statuses: BTreeMap<String, u64>,
}

/// Runs tshark. With truncated packets it does not reassemble streams and shows a repeated head twice: the first of
/// several segments with one sequence number counts. (Its mark `tcp.analysis.retransmission` does not work: it is also
/// set for a request that was lost before the capture and arrives after the FIN.)
pub fn tshark(file: &Path) -> Dissected {
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
    let mut dissected = Dissected { methods: field("http.request.method"), statuses: field("http.response.code") };
    dissected.statuses.retain(|status, _| !status.starts_with('1'));
    dissected
}

/// A SYN or FIN without payload, sent again.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub at_us: u64,
}

/// All of them in a capture, by position: who sends a FIN with data first and alone afterwards has repeated it.
pub fn bare_repeats(file: &Path) -> Vec<Repeat> {
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
                repeats.push(Repeat { from, to, at_us: captured.at.as_nanos() / 1000 });
            }
        }
    }
    repeats
}

fn run(program: &str, options: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(options).arg(file).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
