//! `explain` compared with tcptrace and tshark's expert on the same captures: what they state is the same.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::against::{capture, nginx};
use crate::support::reference_tools::{self, TcptraceConnection, TsharkStream};
use crate::support::workspace::{Workspace, str_of};

/// Round-trip time of the path.
const RTT_MS: f64 = 40.0;

/// A client with a receive buffer of 8 KB, which the kernel doubles.
const SMALL_WINDOW: &str = "import socket\n\
     for _ in range(3):\n\
     \x20   client = socket.socket()\n\
     \x20   client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)\n\
     \x20   client.connect((socket.gethostbyname('server'), 8080))\n\
     \x20   client.sendall(b'GET /100k.bin HTTP/1.1\\r\\nHost: server\\r\\nConnection: close\\r\\n\\r\\n')\n\
     \x20   while client.recv(65536): pass\n\
     \x20   client.close()\n";

/// One connection with one request, as the three programs see it.
struct Seen {
    explained: Value,
    traced: TcptraceConnection,
    tshark: TsharkStream,
}

impl Seen {
    /// Time of a cause, milliseconds.
    fn ms(&self, cause: &str) -> f64 {
        let shares = self.explained["shares"].as_array().unwrap();
        let share = shares.iter().find(|share| share["cause"] == cause);
        share.map_or(0.0, |share| share["time_ns"].as_f64().unwrap() / 1e6)
    }

    fn fact(&self, name: &str) -> u64 {
        self.explained["facts"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {}", self.explained))
    }

    fn loss_ms(&self) -> f64 {
        ["fast_retransmit", "retransmission_timeout", "tail_loss", "reduced_window"]
            .map(|cause| self.ms(cause))
            .iter()
            .sum()
    }

    /// What holds of every connection.
    fn check(&self) {
        let client = self.traced.a;
        let bytes = self.traced.count("unique_bytes_sent", false);
        let retransmitted = self.traced.count("rexmt_data_pkts", false);
        // At the server alone, arrivals after a loss are estimated: the last segments may be left out.
        let missing = bytes - self.fact("response_bytes");
        assert!(missing == 0 || retransmitted > 0 && missing < 10_000, "{client}: {missing} bytes of the response");
        assert!(
            self.loss_ms() == 0.0 || retransmitted > 0,
            "{client}: lost without a retransmission: {}",
            self.explained
        );
        if let Some(rtt_ms) = self
            .tshark
            .handshake_rtt_ms
            .filter(|_| [true, false].iter().all(|&up| self.traced.syns_and_fins(up).0 == 1))
        {
            let own = self.fact("rtt_ns") as f64 / 1e6;
            // The connection's fastest round trip is not above its first.
            assert!(own <= rtt_ms + 0.5 && own > RTT_MS - 1.0, "{client}: RTT {own} ms, tshark's first {rtt_ms} ms");
        }
        // tshark's is also of the ACKs after the response, in which the window may still grow.
        let (own, whole) = (self.fact("receive_window"), self.tshark.window_max);
        assert!(own <= whole && own * 100 >= whole * 98, "{client}: largest window {own}, of the connection {whole}");
        assert!(self.tshark.window_full == 0 || self.ms("receive_window") > 0.0, "{client}: {}", self.explained);
    }
}

/// Explains the capture at the server, and joins each response with what the other programs say of its connection.
fn seen(workspace: &Workspace, file: &Path) -> Vec<Seen> {
    let output = workspace.run(&["explain", "-r", str_of(file), "--at", "server", "--json"]);
    let document = output.success().json();
    let streams = reference_tools::tshark_streams(file);
    let mut traced = reference_tools::tcptrace(file);
    // In the order of the connections' first packets, which is that of explain's numbers.
    traced.sort_by_key(|connection| connection.first_us);
    let responses = document["responses"].as_array().unwrap();
    let mut seen: Vec<Seen> = Vec::new();
    for explained in responses {
        let number = explained["connection"].as_u64().unwrap() as usize;
        let traced = traced[number].clone();
        let stream = streams.iter().find(|stream| stream.client == traced.a).expect("tshark has the connection");
        seen.push(Seen { explained: explained.clone(), traced, tshark: *stream });
    }
    seen
}

#[test]
fn facts_of_explain_agree_with_tcptrace_and_tshark_under_loss() {
    let workspace = Workspace::new();
    let clients =
        "for i in {1..30}; do curl -s -H 'Connection: close' -o /dev/null http://server:8080/100k.bin; done\n";
    let file = capture(&workspace, &nginx(&workspace), "--rtt 40ms --loss 2%", 0, clients);
    let seen = seen(&workspace, &file);
    assert_eq!(seen.len(), 30);
    seen.iter().for_each(Seen::check);
    let lost = seen.iter().filter(|seen| seen.loss_ms() > 0.0).count();
    let retransmitted = seen.iter().filter(|seen| seen.traced.count("rexmt_data_pkts", false) > 0).count();
    // Not every retransmission delays a response.
    assert!(lost > 0 && lost <= retransmitted, "{lost} of {retransmitted} connections with retransmissions");
}

#[test]
fn full_windows_of_explain_agree_with_tshark() {
    let workspace = Workspace::new();
    let script = workspace.file("small.py");
    fs::write(&script, SMALL_WINDOW).unwrap();
    let curl = "for i in {1..3}; do curl -s -H 'Connection: close' -o /dev/null http://server:8080/100k.bin; done\n";
    let clients = format!("python3 {}\n{curl}", script.display());
    let file = capture(&workspace, &nginx(&workspace), "--rtt 40ms", 0, &clients);
    let seen = seen(&workspace, &file);
    assert_eq!(seen.len(), 6);
    seen.iter().for_each(Seen::check);
    for (place, seen) in seen.iter().enumerate() {
        let share = seen.ms("receive_window") * 1e6 / seen.explained["response_time_ns"].as_f64().unwrap();
        let is_small = place < 3;
        assert_eq!(share > 0.5, is_small, "{share}: {}", seen.explained);
        assert!(is_small || seen.tshark.window_full == 0, "{}", seen.explained);
    }
}
