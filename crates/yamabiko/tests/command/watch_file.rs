//! `watch -r`: generated capture files whose figures are known.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use crate::packets::{CLIENT, SERVER, Talk, millis};
use crate::support::document::{count, number};
use crate::support::workspace::{Workspace, str_of};
use serde_json::Value;
use wire::capture::write;
use wire::link::LinkType;

/// Three sequential connections with one request each: 2 ms from SYN to SYN-ACK, 48 ms from SYN-ACK to ACK, and 20 ms
/// from a request to its response.
fn talks() -> Vec<Talk> {
    let mut at = 1000;
    ["200 OK", "200 OK", "404 Not Found"]
        .into_iter()
        .zip(40_000..)
        .map(|(status, port)| {
            let mut talk = Talk::from_port(port);
            talk.at = at;
            talk.open().send_data(CLIENT, b"GET /a%20\"b\" HTTP/1.1\r\nHost: server\r\n\r\n").wait(10);
            talk.send_data(SERVER, format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nhello").as_bytes());
            talk.wait(10).close();
            at = talk.at + 100;
            talk
        })
        .collect()
}

/// The three connections as a pcap file, and the offset of each record.
fn pcap() -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut starts) = (Vec::new(), Vec::new());
    write::pcap_header(&mut file, LinkType::RawIp, 65_535);
    for (at, packet) in talks().iter().flat_map(|talk| &talk.packets) {
        let bytes = packet.bytes();
        starts.push(file.len());
        write::pcap_packet(&mut file, millis(*at), &bytes, bytes.len() as u32);
    }
    (file, starts)
}

fn pcapng(drops: u64) -> Vec<u8> {
    let mut file = Vec::new();
    write::section(&mut file, "a test");
    write::interface(&mut file, LinkType::RawIp, 0, "s0");
    for (at, packet) in talks().iter().flat_map(|talk| &talk.packets) {
        let bytes = packet.bytes();
        write::packet(&mut file, 0, millis(*at), &bytes, bytes.len() as u32);
    }
    write::statistics(&mut file, 0, millis(9000), drops);
    file
}

fn write_file(workspace: &Workspace, name: &str, bytes: &[u8]) -> PathBuf {
    let path = workspace.file(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn check_figures(document: &Value) {
    assert_eq!(document["schema"], "yamabiko.run/2");
    assert_eq!(count(document, "watch.connections.count"), 3);
    assert_eq!(document["watch"]["connections"]["states"], serde_json::json!({ "SF": 3 }));
    assert_eq!(document["watch"]["status"], serde_json::json!({ "200": 2, "404": 1 }));
    assert_eq!((count(document, "watch.requests"), count(document, "watch.responses")), (3, 3));
    assert_eq!((count(document, "watch.connections.max"), count(document, "watch.retransmitted")), (1, 0));
    assert_eq!(count(document, "watch.handshake_rtt_ns.count"), 3);
    assert!((number(document, "watch.service_time_ns.mean") - 20e6).abs() < 1.0);
    // Each connection is open from its SYN to the server's FIN.
    let length_s: u64 = talks().iter().map(|talk| talk.packets[talk.packets.len() - 2].0 - talk.packets[0].0).sum();
    let (first, last) = (talks()[0].packets[0].0, talks()[2].packets.last().unwrap().0);
    let mean = length_s as f64 / (last - first) as f64;
    assert!((number(document, "watch.connections.mean") - mean).abs() < 1e-6, "{document}");
}

#[test]
fn watch_summarises_and_stores_a_capture_file() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    let output = workspace.run(&["watch", "-r", str_of(&file), "--json"]).success();
    assert_eq!(output.stderr, "");
    let document = output.json();
    check_figures(&document);
    assert!((number(&document, "watch.handshake_rtt_ns.mean") - 48e6).abs() < 1.0);
    assert_eq!(document["validity"]["verdict"], "valid");
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert!(dir.file_name().unwrap().to_str().unwrap().contains("-watch-"));
    assert_eq!(store::read_connections(&dir).unwrap().map(Result::unwrap).count(), 3);
    let requests: Vec<_> = store::read_wire_requests(&dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(requests.iter().filter_map(|request| request.status).collect::<Vec<_>>(), [200, 200, 404]);
    assert_eq!(requests[1].path.as_deref(), Some(&b"/a%20\"b\""[..]));
    assert!(store::read_watch_series(&dir).unwrap().map(Result::unwrap).count() > 0);
    assert_eq!(workspace.run(&["report", "--json"]).success().json(), document);
    let page = workspace.run(&["report"]).success().stdout;
    for words in ["3 connections in all", "SF x 3", "200 x 2, 404 x 1", "48.0 ms", "at the server: RTT"] {
        assert!(page.contains(words), "{words} in\n{page}");
    }
}

#[test]
fn watch_reads_standard_input_and_pcapng_alike() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcapng", &pcapng(0));
    let mut command = workspace.command(&["watch", "-r", "-", "--json", "--no-save"]);
    command.stdin(Stdio::from(File::open(file).unwrap()));
    check_figures(&workspace.start_command(command).finish().success().json());
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn packets_dropped_by_the_capturing_program_make_the_run_suspect() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcapng", &pcapng(7));
    let document = workspace.run(&["watch", "-r", str_of(&file), "--json", "--no-save"]).success().json();
    assert_eq!(count(&document, "watch.capture_drops"), 7);
    assert_eq!(document["validity"]["verdict"], "suspect");
}

#[test]
fn the_capture_point_determines_the_measured_rtt() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    for (at, rtt_ns) in [("server", 48e6), ("client", 2e6), ("between", 50e6)] {
        let arguments = ["watch", "-r", str_of(&file), "--at", at, "--json", "--no-save"];
        let document = workspace.run(&arguments).success().json();
        assert!((number(&document, "watch.handshake_rtt_ns.mean") - rtt_ns).abs() < 1.0, "{at}");
        assert_eq!(document["watch"]["capture_point"], at);
    }
}

/// A record header has 16 bytes: the file ends within a header, within a packet, or between two records.
#[test]
fn a_truncated_capture_file_is_reported_up_to_its_end() {
    let workspace = Workspace::concurrent();
    let (file, starts) = pcap();
    let record = starts[starts.len() - 1];
    for (length, is_complete) in [(record, true), (record + 9, false), (record + 20, false)] {
        let cut = write_file(&workspace, "cut.pcap", &file[..length]);
        let output = workspace.run(&["watch", "-r", str_of(&cut), "--json"]);
        let document = output.json();
        assert_eq!(count(&document, "watch.packets"), starts.len() as u64 - 1, "{output}");
        assert_eq!(output.code, Some(i32::from(!is_complete)), "{output}");
        let is_reported =
            output.stderr.contains(&format!("cut.pcap: byte {record}: the file ends {} bytes", length - record));
        assert_eq!(is_reported, !is_complete, "{output}");
        assert_eq!(document["validity"]["verdict"] == "valid", is_complete);
    }
}

#[test]
fn a_file_that_is_not_a_capture_is_refused() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.gz", &[0x1F, 0x8B, 8, 0, 0, 0]);
    workspace
        .run(&["watch", "-r", str_of(&file)])
        .refused(1, &["a.gz: byte 0", "is not the start of a pcap or pcapng file", "decompress or convert"]);
    workspace.run(&["watch", "-r", "/no/such/file"]).refused(1, &["opening /no/such/file: No such file"]);
    let empty = write_file(&workspace, "empty", &[]);
    workspace.run(&["watch", "-r", str_of(&empty)]).refused(1, &["empty: the file is empty"]);
    workspace.run(&["watch", "-r", str_of(&workspace.runs())]).refused(1, &["is a folder"]);
    workspace.run(&["watch"]).refused(1, &["--interface", "--read", "--from"]);
    workspace.run(&["watch", "-i", "lo", "-r", "x"]).refused(1, &["cannot be used with"]);
    workspace.run(&["watch", "-i", "lo", "-s", "10"]).refused(1, &["64..=262144"]);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "the run store is empty");
}

#[test]
fn watch_prints_one_log_line_per_request() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    let [clf, csv, jsonl] = ["clf", "csv", "jsonl"].map(|name| workspace.file(name));
    let logs = ["--clf", str_of(&clf), "--csv", str_of(&csv), "--jsonl", str_of(&jsonl)];
    workspace.run(&[&["watch", "-r", str_of(&file), "--no-save"], &logs[..]].concat()).success();
    let clf = fs::read_to_string(clf).unwrap();
    let line = "198.19.0.1 - - [01/Jan/1970:00:00:01 +0000] \"GET /a%20\\\"b\\\" HTTP/1.1\" 200 43 \"-\" \"-\" 20000";
    assert_eq!(clf.lines().next(), Some(line));
    assert_eq!((clf.lines().count(), fs::read_to_string(csv).unwrap().lines().count()), (3, 4));
    let last = fs::read_to_string(jsonl).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&last["status"], &last["path"]), (&404.into(), &"/a%20\"b\"".into()));
}

#[test]
fn watch_filters_by_port_and_host() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    for (filter, connections) in [
        (&["--port", "80"][..], 3),
        (&["--port", "40001", "--port", "40002"], 2),
        (&["--port", "443"], 0),
        (&["--host", "198.18.0.1"], 3),
        (&["--host", "198.18.0.2"], 0),
        (&["--host", "198.19.0.1", "--port", "40000"], 1),
    ] {
        let arguments = [&["watch", "-r", str_of(&file), "--json", "--no-save"], filter].concat();
        let document = workspace.run(&arguments).success().json();
        assert_eq!(count(&document, "watch.connections.count"), connections, "{filter:?}");
    }
}

#[test]
fn watch_converts_and_filters_a_capture() {
    let workspace = Workspace::concurrent();
    let (old, new, again) =
        (write_file(&workspace, "a.pcap", &pcap().0), workspace.file("b.pcapng"), workspace.file("c.pcapng"));
    workspace.run(&["watch", "-r", str_of(&old), "--pcapng", str_of(&new), "--no-save"]).success();
    check_figures(&workspace.run(&["watch", "-r", str_of(&new), "--json", "--no-save"]).success().json());
    let packets = |path: &PathBuf| -> Vec<(u64, Vec<u8>)> {
        let bytes = fs::read(path).unwrap();
        let packets = wire::capture::packets(&bytes).map(Result::unwrap);
        packets.map(|packet| (packet.at.as_nanos(), packet.bytes.to_vec())).collect()
    };
    assert_eq!(packets(&old), packets(&new));
    let one = ["watch", "-r", str_of(&new), "--port", "40001", "--pcapng", str_of(&again), "--json", "--no-save"];
    let document = workspace.run(&one).success().json();
    assert_eq!(count(&document, "watch.packets") as usize, packets(&again).len());
    assert_eq!(packets(&again).len(), talks()[1].packets.len());
    // The converted file contains the number of dropped packets and the interface.
    let lossy = write_file(&workspace, "lossy.pcapng", &pcapng(7));
    workspace.run(&["watch", "-r", str_of(&lossy), "--pcapng", str_of(&again), "--no-save"]).success();
    let document = workspace.run(&["watch", "-r", str_of(&again), "--json", "--no-save"]).success().json();
    assert_eq!(count(&document, "watch.capture_drops"), 7);
    assert!(fs::read(&again).unwrap().windows(2).any(|name| name == b"s0"), "the file contains the interface's name");
}

#[test]
fn an_unwritable_output_is_reported_and_the_figures_are_complete() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    let output = workspace.run(&["watch", "-r", str_of(&file), "--pcapng", "/dev/full", "--json", "--no-save"]);
    check_figures(&output.json());
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("writing /dev/full: No space left on device"), "{output}");
    let missing = workspace.file("no/such/folder.pcapng");
    workspace
        .run(&["watch", "-r", str_of(&file), "--pcapng", str_of(&missing)])
        .refused(2, &["creating", "No such file"]);
    let before = fs::read(&file).unwrap();
    workspace.run(&["watch", "-r", str_of(&file), "--pcapng", str_of(&file)]).refused(1, &["is the input file"]);
    workspace.run(&["watch", "-r", str_of(&file), "--csv", str_of(&file)]).refused(1, &["is the input file"]);
    assert_eq!(fs::read(&file).unwrap(), before);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn a_closed_pipe_stops_writing_and_not_the_measurement() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap().0);
    let pipe = workspace.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let arguments = ["watch", "-r", str_of(&file), "--pcapng", str_of(&pipe), "--json", "--no-save"];
    workspace.run(&arguments).refused(1, &["no process reads this pipe"]);
    // The reader closes the pipe immediately.
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "'{}' watch -r - --pcapng /dev/fd/5 --json --no-save 5>&1 >'{}' | true",
        str_of(&crate::support::workspace::yamabiko()),
        str_of(&workspace.file("document"))
    );
    let mut talk = Talk::new();
    talk.open();
    for _ in 0..3000 {
        talk.send_data(SERVER, &[7; 1400]);
    }
    let mut long = Vec::new();
    write::pcap_header(&mut long, LinkType::RawIp, 65_535);
    for (at, packet) in &talk.packets {
        let bytes = packet.bytes();
        write::pcap_packet(&mut long, millis(*at), &bytes, bytes.len() as u32);
    }
    let long = write_file(&workspace, "long.pcap", &long);
    command.args(["-c", &script]).stdin(Stdio::from(File::open(long).unwrap()));
    let output = workspace.start_command(command).finish();
    assert!(output.stderr.contains("writing /dev/fd/5: Broken pipe"), "{output}");
    let document: Value = serde_json::from_slice(&fs::read(workspace.file("document")).unwrap()).unwrap();
    assert_eq!(count(&document, "watch.packets"), 6003);
}
