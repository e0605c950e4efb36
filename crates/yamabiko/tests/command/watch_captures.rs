//! `watch -r` of captures that differ from the packets on the wire: corrected, suspect and refused captures.

use std::fs;
use std::path::PathBuf;

use crate::packets::{ACK, CLIENT, PSH, SERVER, Talk};
use crate::support::document::{count, number};
use crate::support::workspace::{Workspace, str_of};
use serde_json::Value;
use units::Timestamp;
use wire::capture::write;
use wire::link::LinkType;

const CONNECTIONS: u64 = 40;
const MICRO: u64 = 1000;
const MILLI: u64 = 1_000_000;

/// A packet of a file: time in ns, and raw IP bytes.
type TimedPacket = (u64, Vec<u8>);

/// Connections of 131 ms with one request each, which begin every 50 ms; 48 ms from the SYN-ACK to the ACK, and 20 ms
/// from the request to the response. Every packet has a unique IP identification.
fn visits() -> Vec<TimedPacket> {
    let mut sent = Vec::new();
    for (port, visit) in (40_000..).zip(0..CONNECTIONS) {
        let mut talk = Talk::from_port(port);
        talk.at = 1_700_000_000_000 + 50 * visit;
        talk.open()
            .send(CLIENT, ACK | PSH, b"GET /a HTTP/1.1\r\nHost: server\r\n\r\n")
            .wait(5)
            .send(SERVER, ACK, b"")
            .wait(15);
        talk.send_data(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").wait(49).close();
        for ((at, packet), id) in talk.packets.iter().zip(1u16..) {
            let mut bytes = packet.bytes();
            bytes[4..6].copy_from_slice(&id.to_be_bytes());
            // No two packets have the same time, so that their order is unique.
            sent.push((at * MILLI + (visit * 16 + u64::from(id)) * MICRO, bytes));
        }
    }
    sent.sort_by_key(|(at, _)| *at);
    sent
}

fn pcap(sent: &[TimedPacket], link: LinkType, snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    write::pcap_header(&mut file, link, snap as u32);
    for (at, bytes) in sent {
        write::pcap_packet(&mut file, Timestamp::from_nanos(*at), &bytes[..bytes.len().min(snap)], bytes.len() as u32);
    }
    file
}

fn write_file(workspace: &Workspace, name: &str, bytes: &[u8]) -> PathBuf {
    let path = workspace.file(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The document of `watch -r` for a capture file, and the exit status.
fn watched(workspace: &Workspace, file: &[u8]) -> (Value, i32) {
    let file = write_file(workspace, "a.pcap", file);
    let output = workspace.run(&["watch", "-r", str_of(&file), "--json", "--no-save"]);
    (output.json(), output.code.unwrap())
}

fn read_document(workspace: &Workspace, sent: &[TimedPacket]) -> Value {
    watched(workspace, &pcap(sent, LinkType::RawIp, 65_535)).0
}

#[track_caller]
fn check_figures(document: &Value) {
    assert_eq!(document["validity"]["verdict"], "valid", "{document:#}");
    assert_eq!(count(document, "watch.connections.count"), CONNECTIONS);
    assert_eq!(document["watch"]["connections"]["states"], serde_json::json!({ "SF": CONNECTIONS }));
    assert_eq!(document["watch"]["status"], serde_json::json!({ "200": CONNECTIONS }));
    let faults = ["retransmitted", "out_of_order", "missing_bytes", "incomplete", "by_direction"];
    assert_eq!(faults.map(|name| count(&document["watch"], name)), [0; 5], "{document:#}");
    assert!((number(document, "watch.handshake_rtt_ns.mean") / 48e6 - 1.0).abs() < 0.001, "{document:#}");
    assert!((number(document, "watch.service_time_ns.mean") / 20e6 - 1.0).abs() < 0.001, "{document:#}");
}

/// The reason of a failed check.
#[track_caller]
fn failed(document: &Value, name: &str) -> String {
    let checks = document["validity"]["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(check["state"], "failed", "{document:#}");
    assert_ne!(document["validity"]["verdict"], "valid");
    check["why"].as_str().unwrap().to_owned()
}

#[test]
fn packets_out_of_order_in_a_capture_are_sorted() {
    let workspace = Workspace::concurrent();
    let straight = read_document(&workspace, &visits());
    check_figures(&straight);
    assert_eq!(count(&straight, "watch.capture.reordered_packets"), 0);
    for most_us in [1, 500, 10_000, 50_000, 99_000] {
        // The packets are in the order of their time plus a random delay.
        let mut order: Vec<(u64, TimedPacket)> = visits()
            .into_iter()
            .zip(1u64..)
            .map(|(sent, number)| (sent.0 + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (most_us * MICRO + 1), sent))
            .collect();
        order.sort_by_key(|(at, _)| *at);
        let sent: Vec<TimedPacket> = order.into_iter().map(|(_, sent)| sent).collect();
        let document = read_document(&workspace, &sent);
        check_figures(&document);
        let (mut latest, mut reordered) = (0, 0);
        for (at, _) in &sent {
            reordered += u64::from(*at < latest);
            latest = latest.max(*at);
        }
        assert_eq!(count(&document, "watch.capture.reordered_packets"), reordered);
        assert_eq!(number(&document, "watch.capture.reorder_window_ns"), 100e6);
    }
    // A packet that is too late for sorting is reported.
    let mut sent = visits();
    let late = sent.remove(5);
    sent.insert(60, late);
    let why = failed(&read_document(&workspace, &sent), "capture_order");
    assert!(why.contains("the first is packet 61") && why.contains("1 of"), "{why}");
}

#[test]
fn a_capture_with_unsynchronised_directions_is_invalid() {
    let workspace = Workspace::concurrent();
    let mut sent = visits();
    sent.sort_by_key(|(_, bytes)| bytes[12..16] == [198, 18, 0, 1]);
    let (document, code) = watched(&workspace, &pcap(&sent, LinkType::RawIp, 65_535));
    assert_eq!((document["validity"]["verdict"].as_str(), code), (Some("invalid"), 3));
    assert!(failed(&document, "capture_order").contains("mergecap"));
}

#[test]
fn acknowledgements_captured_before_their_data_are_reordered() {
    let workspace = Workspace::concurrent();
    for (early_us, verdict) in [(3, "valid"), (900, "valid"), (1_001, "suspect"), (50_000, "suspect")] {
        let mut sent = visits();
        let requests: Vec<(u64, [u8; 2])> = sent
            .iter()
            .filter(|(_, bytes)| bytes.len() > 50 && bytes[40] == b'G')
            .map(|(at, bytes)| (*at, [bytes[20], bytes[21]]))
            .collect();
        for (at, bytes) in &mut sent {
            // The second packet of the server in each connection is an acknowledgement without data.
            if bytes[12..16] == [198, 18, 0, 1] && bytes[5] == 5 {
                let request = requests.iter().find(|(_, port)| bytes[22..24] == *port).unwrap();
                *at = request.0 - early_us * MICRO;
            }
        }
        sent.sort_by_key(|(at, _)| *at);
        let document = read_document(&workspace, &sent);
        assert_eq!(document["validity"]["verdict"], verdict, "{early_us} us: {document:#}");
        assert_eq!(count(&document, "watch.requests"), CONNECTIONS);
        assert_eq!(document["watch"]["status"], serde_json::json!({ "200": CONNECTIONS }));
        let early = &document["watch"]["capture"]["early_acks"];
        assert_eq!((count(early, "count"), number(early, "max_ns")), (CONNECTIONS, (early_us * MICRO) as f64));
        assert_eq!((count(&document, "watch.missing_bytes"), count(&document, "watch.out_of_order")), (0, 0));
    }
}

#[test]
fn a_clock_step_in_a_capture_makes_the_run_suspect() {
    let workspace = Workspace::concurrent();
    let set = |from: usize, by_ms: i64| {
        let mut sent = visits();
        sent[from..].iter_mut().for_each(|(at, _)| *at = at.saturating_add_signed(by_ms * MILLI as i64));
        read_document(&workspace, &sent)
    };
    let half = visits().len() / 2;
    let why = failed(&set(half, -2000), "capture_order");
    assert!(why.contains(&format!("the first is packet {}", half + 1)), "{why}");
    let why = failed(&set(half, 3_600_000), "capture_clock");
    assert!(why.contains("3600 s") && why.contains("the first is packet 2"), "{why}");
}

#[test]
fn packets_captured_twice_are_excluded_and_counted() {
    let workspace = Workspace::concurrent();
    let twice = |apart: u64| {
        let mut sent: Vec<TimedPacket> = Vec::new();
        for (at, bytes) in visits() {
            let mut copy = bytes.clone();
            copy[8] -= 1;
            sent.extend([(at, bytes), (at + apart, copy)]);
        }
        sent.sort_by_key(|(at, _)| *at);
        read_document(&workspace, &sent)
    };
    for apart in [0, 20 * MICRO, 3 * MILLI] {
        let document = twice(apart);
        check_figures(&document);
        assert_eq!(count(&document, "watch.capture.duplicate_packets"), visits().len() as u64);
        assert_eq!(count(&document, "watch.packets"), visits().len() as u64);
    }
    let file = write_file(&workspace, "once.pcap", &pcap(&visits(), LinkType::RawIp, 65_535));
    let page = workspace.run(&["watch", "-r", str_of(&file), "--no-save"]).success().stdout;
    assert!(!page.contains("captured twice") && !page.contains("not analyzed"), "{page}");
}

#[test]
fn packets_without_a_time_are_refused() {
    let workspace = Workspace::concurrent();
    let mut file = Vec::new();
    write::section(&mut file, "a test");
    write::interface(&mut file, LinkType::RawIp, 0, "s0");
    for (_, bytes) in visits() {
        let padded = bytes.len().next_multiple_of(4);
        let length = (16 + padded) as u32;
        for number in [3, length, bytes.len() as u32] {
            file.extend(number.to_le_bytes());
        }
        file.extend(&bytes);
        file.resize(file.len() + padded - bytes.len(), 0);
        file.extend(length.to_le_bytes());
    }
    let file = write_file(&workspace, "simple.pcapng", &file);
    workspace.run(&["watch", "-r", str_of(&file)]).refused(1, &["simple.pcapng: packet 1", "no time"]);
    workspace
        .run(&["profile", "learn", str_of(&file), "-o", str_of(&workspace.file("x.toml"))])
        .refused(1, &["packet 1"]);
}

#[test]
fn tunnelled_packets_are_read_and_unsupported_ones_named() {
    let workspace = Workspace::concurrent();
    let gre: Vec<TimedPacket> = visits()
        .into_iter()
        .map(|(at, bytes)| {
            let mut outer = vec![0x45, 0];
            outer.extend((24 + bytes.len() as u16).to_be_bytes());
            outer.extend([0, 1, 0, 0, 64, 47, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 8, 0]);
            (at, [outer, bytes].concat())
        })
        .collect();
    let document = read_document(&workspace, &gre);
    check_figures(&document);
    assert_eq!(document["watch"]["capture"]["tunnels"], serde_json::json!({ "GRE": gre.len() }));
    let file = write_file(&workspace, "gre.pcap", &pcap(&gre, LinkType::RawIp, 65_535));
    let port = ["watch", "-r", str_of(&file), "--port", "40001", "--json", "--no-save"];
    assert_eq!(
        count(&workspace.run(&port).json(), "watch.connections.count"),
        1,
        "--port applies to the inner packets"
    );
    // An encrypted tunnel is reported as not analysed.
    let mut esp = gre;
    esp.iter_mut().for_each(|(_, bytes)| bytes[9] = 50);
    let document = read_document(&workspace, &esp);
    let why = failed(&document, "capture_analyzed");
    assert!(why.contains(&format!("{} of ESP (IP protocol 50)", esp.len())), "{why}");
    let listed = &document["watch"]["capture"]["not_analyzed"][0];
    assert_eq!((listed["kind"].as_str(), count(listed, "number")), (Some("ip_protocol"), 50));
    let file = write_file(&workspace, "esp.pcap", &pcap(&esp, LinkType::RawIp, 65_535));
    let page = workspace.run(&["watch", "-r", str_of(&file), "--no-save"]).success().stdout;
    assert!(
        page.contains("not analyzed") && page.contains("ESP (IP protocol 50)") && page.contains("SUSPECT"),
        "{page}"
    );
}

#[test]
fn a_snaplen_that_is_too_short_makes_the_run_suspect() {
    let workspace = Workspace::concurrent();
    // Complete headers without data: requests are unknown.
    let (document, _) = watched(&workspace, &pcap(&visits(), LinkType::RawIp, 40));
    assert_eq!(count(&document, "watch.capture.unread_streams"), CONNECTIONS);
    failed(&document, "capture_payload");
    let (document, _) = watched(&workspace, &pcap(&visits(), LinkType::RawIp, 30));
    assert_eq!(count(&document, "watch.capture.truncated_headers"), visits().len() as u64);
    assert!(failed(&document, "capture_analyzed").contains("cut or malformed"));
    let (document, _) = watched(&workspace, &pcap(&[], LinkType::RawIp, 65_535));
    failed(&document, "capture_analyzed");
    let (document, _) = watched(&workspace, &pcap(&visits(), LinkType::RawIp, 60));
    assert_eq!(
        (document["validity"]["verdict"].as_str(), count(&document, "watch.requests")),
        (Some("valid"), CONNECTIONS)
    );
}

/// Each direction has its own interface with its own timestamp resolution; packets of the second one are written later.
#[test]
fn interfaces_with_different_clock_resolutions_form_one_capture() {
    let workspace = Workspace::concurrent();
    let block = |kind: u32, body: &[u8]| {
        let mut bytes = kind.to_le_bytes().to_vec();
        let length = (12 + body.len()) as u32;
        bytes.extend(length.to_le_bytes());
        bytes.extend(body);
        bytes.extend(length.to_le_bytes());
        bytes
    };
    let mut file = Vec::new();
    write::section(&mut file, "a test");
    for resolution in [6u8, 9] {
        file.extend(block(1, &[&[101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, resolution][..], &[0; 7]].concat()));
    }
    for (at, bytes) in visits() {
        let interface = u32::from(bytes[12..16] == [198, 18, 0, 1]);
        let time = if interface == 0 { at / MICRO } else { at };
        let mut body = interface.to_le_bytes().to_vec();
        for number in [(time >> 32) as u32, time as u32, bytes.len() as u32, bytes.len() as u32] {
            body.extend(number.to_le_bytes());
        }
        body.extend(&bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    check_figures(&watched(&workspace, &file).0);
}
