//! `profile learn` from generated capture files whose figures are known.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use crate::packets::{ACK, CLIENT, PSH, Packet, SERVER, SYN, Talk, millis};
use crate::support::document::{count, number};
use crate::support::workspace::{Output, Workspace, str_of};
use serde_json::Value;
use wire::capture::write;
use wire::link::LinkType;

const CLIENTS: u64 = 60;

/// The RTT of a client in ms.
fn rtt_ms(client: u64) -> u64 {
    10 + 4 * client
}

/// A connection of `client` that begins at `at` ms: handshake, request, response and close.
fn visit(client: u64, port: u16, at: u64) -> Talk {
    let mut talk = Talk::from_port(port);
    talk.client.address.0 = [198, 19, 0, 1 + client as u8];
    talk.at = at;
    talk.send(CLIENT, SYN, b"").send(SERVER, SYN | ACK, b"").wait(rtt_ms(client)).send(CLIENT, ACK, b"");
    talk.send(CLIENT, ACK | PSH, b"GET /a HTTP/1.1\r\nHost: server\r\n\r\n").wait(1);
    talk.send(SERVER, ACK | PSH, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    talk.wait(rtt_ms(client)).send(CLIENT, ACK, b"").close();
    talk
}

/// Five connections of each client, 20 a second over 15 s.
fn visits() -> Vec<Talk> {
    (0..5 * CLIENTS).map(|number| visit(number % CLIENTS, 40_000 + number as u16, 1000 + 50 * number)).collect()
}

fn packets_of(talks: &[Talk]) -> Vec<(u64, Packet)> {
    let mut packets: Vec<(u64, Packet)> = talks.iter().flat_map(|talk| talk.packets.clone()).collect();
    packets.sort_by_key(|(at, _)| *at);
    packets
}

/// A pcap file of raw IP packets, and the offset of each record.
fn pcap_of(packets: &[(u64, Packet)], bytes_of: fn(&Packet) -> Vec<u8>) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut starts) = (Vec::new(), Vec::new());
    write::pcap_header(&mut file, LinkType::RawIp, 65_535);
    for (at, packet) in packets {
        let bytes = bytes_of(packet);
        starts.push(file.len());
        write::pcap_packet(&mut file, millis(*at), &bytes, bytes.len() as u32);
    }
    (file, starts)
}

fn pcap(talks: &[Talk]) -> Vec<u8> {
    pcap_of(&packets_of(talks), Packet::bytes).0
}

fn write_file(workspace: &Workspace, name: &str, bytes: &[u8]) -> PathBuf {
    let path = workspace.file(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The document of `watch` for a capture file.
fn watched(workspace: &Workspace, file: &std::path::Path) -> Value {
    workspace.run(&["watch", "-r", str_of(file), "--json", "--no-save"]).json()
}

/// Learns a profile from `file` with these options, into the workspace.
fn learn(workspace: &Workspace, file: &std::path::Path, options: &str) -> Output {
    let profile = workspace.file("learned.toml");
    let fixed = ["profile", "learn", str_of(file), "-o", str_of(&profile)];
    workspace.run(&fixed.into_iter().chain(options.split_whitespace()).collect::<Vec<_>>())
}

fn rtts_ms(workspace: &Workspace, clients: u32) -> Vec<f64> {
    let file = workspace.file("learned.toml");
    let profile = path::Profile::read(&file, &|file| fs::read_to_string(file)).unwrap();
    profile.clients(clients).iter().map(|client| client.rtt().as_secs_f64() * 1e3).collect()
}

fn close(measured: f64, expected: f64) {
    assert!((measured / expected - 1.0).abs() < 0.006, "{measured}, expected {expected}");
}

#[test]
fn learn_writes_a_profile_that_bench_reads_from_any_folder() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "shop.pcap", &pcap(&visits()));
    let document = learn(&workspace, &file, "--json").success().json();
    for (got, client) in rtts_ms(&workspace, CLIENTS as u32).into_iter().zip(0..) {
        close(got, rtt_ms(client) as f64);
    }
    let learned = &document["learned"];
    let counts = ["connections", "by_handshake", "requests", "clients", "half_open", "untold"];
    assert_eq!(counts.map(|name| count(learned, name)), [300, 300, 300, 60, 0, 0]);
    assert_eq!((document["schema"].as_str(), learned["by"].as_str()), (Some("yamabiko.run/2"), Some("connection")));
    assert_eq!(document["validity"]["verdict"], "valid", "{document}");
    close(number(learned, "effective_clients"), 60.0);
    assert_eq!(learned["shares"]["heavy"][0]["connections"], 5);
    assert_eq!(number(learned, "arrivals.connections.peak_per_s"), 20.0);
    assert_eq!(number(learned, "arrivals.connections.dispersion"), 0.0);
    let replay = learned["replay"]["command"].as_str().unwrap();
    assert!(
        replay.contains("--clients 100") && replay.ends_with("--close"),
        "equal gaps are not a Poisson process: {replay}"
    );

    let arrivals = fs::read_to_string(workspace.file("learned.arrivals.csv")).unwrap();
    let mut lines = arrivals.lines();
    assert_eq!(lines.next(), Some("start_s,length_s,connections,requests"));
    let rows: Vec<Vec<f64>> = lines.map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!(rows.iter().map(|row| row[2] as u64).sum::<u64>(), 300);
    assert!(rows.windows(2).all(|pair| (pair[0][0] + pair[0][1] - pair[1][0]).abs() < 1e-5));

    // The profile is one self-contained file, readable from any folder.
    let mut command = workspace.command(&["bench", "http://server/", "--server", "x", "--print-plan", "--path"]);
    command.arg(workspace.file("learned.toml")).args(["--rate", "10/s"]).current_dir("/");
    let plan = workspace.start_command(command).finish().success().stdout;
    assert!(plan.contains("learned.toml"), "{plan}");
    let description = workspace.run(&["profile", "show", str_of(&workspace.file("learned.toml"))]).success().stdout;
    let words = description.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("shop.pcap, 15.445s, captured at the server:") && words.contains("300 connections of 60"),
        "{description}"
    );
}

#[test]
fn learn_does_not_overwrite_files_without_force() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap(&visits()));
    let page = learn(&workspace, &file, "--name shop").success().stdout;
    for words in
        ["  shop\n", "loss down  none seen in 300", "at most 20.0, dispersion 0.00", "replay     yamabiko bench"]
    {
        assert!(page.contains(words), "{words} in\n{page}");
    }
    let before = fs::read(workspace.file("learned.toml")).unwrap();
    learn(&workspace, &file, "").refused(1, &["learned.toml is there already", "--force"]);
    assert_eq!(fs::read(workspace.file("learned.toml")).unwrap(), before);
    fs::remove_file(workspace.file("learned.toml")).unwrap();
    learn(&workspace, &file, "").refused(1, &["learned.arrivals.csv is there already"]);
    assert!(!workspace.file("learned.toml").exists(), "neither file is written if one of them exists");
    learn(&workspace, &file, "--force").success();
    workspace.run(&["profile", "learn", str_of(&file), "-o", "/no/such/folder/p.toml"]).refused(1, &["no folder"]);
    for name in ["none", "koshien-2001"] {
        workspace.run(&["profile", "learn", str_of(&file), "-o", name]).refused(1, &["means something else", "./"]);
    }
}

#[test]
fn learn_weights_clients_or_connections_as_configured() {
    let workspace = Workspace::concurrent();
    let mut talks = visits();
    // The nearest client opens 900 further connections.
    talks.extend((0..900).map(|number| visit(0, 50_000 + number, 1000 + 10 * u64::from(number))));
    let file = write_file(&workspace, "a.pcap", &pcap(&talks));
    let page = learn(&workspace, &file, "").success().stdout;
    close(rtts_ms(&workspace, 2)[0], 10.0);
    assert!(page.contains("clients_many") && page.contains("--except 198.19.0.1"), "{page}");
    learn(&workspace, &file, "--by client --force").success();
    close(rtts_ms(&workspace, CLIENTS as u32)[30], rtt_ms(30) as f64);
    let document = learn(&workspace, &file, "--except 198.19.0.1 --json --force").success().json();
    assert_eq!((count(&document, "learned.connections"), count(&document, "learned.clients")), (295, 59));
    learn(&workspace, &file, "--port 443 --force").refused(1, &["no matching TCP connection"]);
    learn(&workspace, &file, "--server 198.18.0.9 --force").refused(1, &["no matching TCP connection"]);
    learn(&workspace, &file, "--port 80 --server 198.18.0.1 --by request --force").success();
}

#[test]
fn learn_detects_the_capture_point_and_accepts_it_as_an_option() {
    let workspace = Workspace::concurrent();
    // In a capture at the client, SYN to SYN-ACK takes the complete RTT, SYN-ACK to ACK none.
    let talks: Vec<Talk> = (0..100)
        .map(|number| {
            let mut talk = Talk::from_port(40_000 + number as u16);
            talk.client.address.0 = [198, 19, 0, 1 + (number % 50) as u8];
            talk.at = 1000 + 20 * number;
            talk.send(CLIENT, SYN, b"").wait(30).send(SERVER, SYN | ACK, b"").send(CLIENT, ACK, b"");
            talk.close();
            talk
        })
        .collect();
    let file = write_file(&workspace, "a.pcap", &pcap(&talks));
    learn(&workspace, &file, "").refused(1, &["30.0 ms", "--at client"]);
    assert!(!workspace.file("learned.toml").exists());
    learn(&workspace, &file, "--at client").success();
    close(rtts_ms(&workspace, 1)[0], 30.0);
    let document = learn(&workspace, &file, "--at server --json --force").success().json();
    assert_eq!(
        document["validity"]["verdict"], "suspect",
        "a contradicting capture point option is accepted as suspect"
    );
    learn(&workspace, &file, "--by request --at client --force").refused(1, &["no HTTP request was readable"]);
}

#[test]
fn learn_refuses_unusable_captures_and_writes_nothing() {
    let workspace = Workspace::concurrent();
    let wrong = |name: &str, bytes: &[u8], words: &[&str]| {
        let file = write_file(&workspace, name, bytes);
        learn(&workspace, &file, "").refused(1, words);
        assert!(!workspace.file("learned.toml").exists() && !workspace.file("learned.arrivals.csv").exists());
    };
    wrong("a.gz", &[0x1F, 0x8B, 8, 0, 0, 0], &["a.gz: byte 0", "decompress or convert"]);
    wrong("none.pcap", &pcap(&[]), &["none.pcap: no matching TCP connection"]);
    wrong("few.pcap", &pcap(&visits()[..19]), &["19 connections", "20 are needed"]);
    let syns: Vec<Talk> = visits()
        .into_iter()
        .map(|mut talk| {
            talk.packets.truncate(1);
            talk
        })
        .collect();
    wrong("syns.pcap", &pcap(&syns), &["300 connections were attempted and none was established"]);
    learn(&workspace, std::path::Path::new("/no/such/file"), "")
        .refused(1, &["there is no file", "no run of that name"]);
    learn(&workspace, workspace.path(), "").refused(1, &["expected a run with a packet capture"]);
    workspace.run(&["profile", "learn"]).refused(1, &["<FILE>"]);
    workspace.run(&["profile", "learn", "x", "-i", "lo"]).refused(1, &["cannot be used with"]);
    workspace
        .run(&["profile", "learn", "-i", "no-such-device", "-o", str_of(&workspace.file("x.toml"))])
        .refused(2, &["no-such-device"]);
}

#[test]
fn learn_refuses_a_capture_with_an_invalid_verdict() {
    let workspace = Workspace::concurrent();
    let refused = |name: &str, bytes: &[u8], code: i32, words: &[&str]| {
        let file = write_file(&workspace, name, bytes);
        let output = learn(&workspace, &file, "");
        assert_eq!(output.code, Some(code), "{name}: {output}");
        for word in words {
            assert!(output.stderr.contains(word), "{name}: {word} in {output}");
        }
        assert_eq!(output.stdout, "");
        assert!(!workspace.file("learned.toml").exists() && !workspace.file("learned.arrivals.csv").exists());
        assert_ne!(watched(&workspace, &file)["validity"]["verdict"], "valid", "{name}");
    };
    let complete = packets_of(&visits());
    let (bytes, starts) = pcap_of(&complete, Packet::bytes);
    let record = starts[starts.len() / 2];
    let ending = format!("cut.pcap: byte {record}: the file ends 20 bytes");
    refused("cut.pcap", &bytes[..record + 20], 1, &[&ending]);
    // One direction after the other, like two concatenated files.
    let mut apart = complete.clone();
    apart.sort_by_key(|(_, packet)| packet.destination.1 == 80);
    let first = apart.iter().position(|(_, packet)| packet.destination.1 == 80).unwrap() + 1;
    let number = format!("the first is packet {first}");
    refused("apart.pcap", &pcap_of(&apart, Packet::bytes).0, 3, &["capture_order", &number]);
    // A clock that is set back by 2 s, and one that is set forward by an hour, in the middle.
    let half = complete.len() / 2;
    let mut back = complete.clone();
    back[half..].iter_mut().for_each(|(at, _)| *at -= 2000);
    let number = format!("the first is packet {}", half + 1);
    refused("back.pcap", &pcap_of(&back, Packet::bytes).0, 3, &["capture_order", &number]);
    let mut forth = complete.clone();
    forth[half..].iter_mut().for_each(|(at, _)| *at += 3_600_000);
    refused("forth.pcap", &pcap_of(&forth, Packet::bytes).0, 3, &["capture_clock", "3600 s"]);
    // Acknowledgements 9 ms before the acknowledged data: two clocks.
    let mut early = complete.clone();
    early.iter_mut().filter(|(_, packet)| packet.destination.1 != 80).for_each(|(at, _)| *at += 9);
    for (at, packet) in &mut early {
        let acknowledges_response =
            packet.destination.1 == 80 && packet.flags == ACK && packet.acknowledgement > 500_001;
        *at -= if acknowledges_response { rtt_ms(u64::from(packet.source.0[3]) - 1) } else { 0 };
    }
    early.sort_by_key(|(at, _)| *at);
    refused("early.pcap", &pcap_of(&early, Packet::bytes).0, 3, &["capture_clocks_agree", "9.00 ms"]);
    let mut lossy = Vec::new();
    write::section(&mut lossy, "a test");
    write::interface(&mut lossy, LinkType::RawIp, 0, "s0");
    for (at, packet) in &complete {
        let bytes = packet.bytes();
        write::packet(&mut lossy, 0, millis(*at), &bytes, bytes.len() as u32);
    }
    write::statistics(&mut lossy, 0, millis(20_000), 7);
    refused("lossy.pcapng", &lossy, 3, &["capture_drops"]);
    // A stored run with an invalid verdict is refused, too.
    let file = write_file(&workspace, "back.pcap", &pcap_of(&back, Packet::bytes).0);
    workspace.run(&["watch", "-r", str_of(&file), "--json"]);
    let output = workspace.run(&["profile", "learn", "last", "-o", str_of(&workspace.file("stored.toml"))]);
    assert!(output.code == Some(3) && output.stderr.contains("capture_order"), "{output}");
}

/// Every packet is captured twice, as with `-i any` or a mirror port for both directions.
#[test]
fn learn_does_not_count_packets_captured_twice_as_loss() {
    let workspace = Workspace::concurrent();
    let twice = |later: u64, is_twice: fn(&Packet) -> bool| {
        let mut packets: Vec<(u64, Packet)> = packets_of(&visits())
            .into_iter()
            .flat_map(|(at, packet)| {
                let copies = if is_twice(&packet) { 2 } else { 1 };
                [(at, packet.clone()), (at + later, packet)].into_iter().take(copies)
            })
            .collect();
        packets.sort_by_key(|(at, _)| *at);
        packets
    };
    let file = write_file(&workspace, "a.pcap", &pcap_of(&twice(0, |_| true), Packet::bytes).0);
    let document = learn(&workspace, &file, "--json").success().json();
    assert_eq!(document["validity"]["verdict"], "valid", "{document}");
    assert_eq!(count(&document, "learned.loss.down.lost_packets"), 0);
    assert_eq!(count(&document, "learned.packets"), packets_of(&visits()).len() as u64);
    for (got, client) in rtts_ms(&workspace, CLIENTS as u32).into_iter().zip(0..) {
        close(got, rtt_ms(client) as f64);
    }
    // Copies that arrive later than usual are indistinguishable from retransmissions.
    let file = write_file(&workspace, "late.pcap", &pcap_of(&twice(8, |_| true), Packet::bytes).0);
    learn(&workspace, &file, "--force").refused(1, &["none of 300 connections", "captured twice"]);
    // If only some packets are captured twice, the others determine the RTTs.
    let near = |packet: &Packet| packet.source.0[3].max(packet.destination.0[3]) <= 30;
    let file = write_file(&workspace, "b.pcap", &pcap_of(&twice(8, near), Packet::bytes).0);
    let document = learn(&workspace, &file, "--json --force").success().json();
    assert_eq!(document["validity"]["verdict"], "suspect");
    assert!(count(&document, "learned.loss.down.lost_packets") >= 100, "{document}");
    let text = fs::read_to_string(workspace.file("learned.toml")).unwrap();
    assert!(!text.contains("down = {") && text.contains("left out, since packets were captured twice"), "{text}");
}

/// The emulated path has no IPv6, and learning needs none: only RTTs are learned.
#[test]
fn learn_measures_rtts_of_ipv6_clients() {
    let workspace = Workspace::concurrent();
    let as_ipv6 = |packet: &Packet| {
        let tcp = &packet.bytes()[20..];
        let address = |end: [u8; 4]| [&[0x20, 0x01, 0, 2, 0, 0, 0, end[3]][..], &[0; 7], &[end[1]]].concat();
        let mut bytes = vec![0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64];
        bytes.extend(address(packet.source.0));
        bytes.extend(address(packet.destination.0));
        bytes.extend(tcp);
        bytes
    };
    let file = write_file(&workspace, "v6.pcap", &pcap_of(&packets_of(&visits()), as_ipv6).0);
    let document = learn(&workspace, &file, "--json").success().json();
    assert_eq!((count(&document, "learned.connections"), count(&document, "learned.clients")), (300, 60));
    close(rtts_ms(&workspace, CLIENTS as u32)[59], rtt_ms(59) as f64);
}

#[test]
fn learn_gives_the_same_profile_from_standard_input_and_a_stored_run() {
    let workspace = Workspace::concurrent();
    let file = write_file(&workspace, "a.pcap", &pcap(&visits()));
    let plain = |document: &Value| {
        let learned = &document["learned"];
        ["rtt_ns", "quantiles", "connections", "clients", "arrivals"].map(|part| learned[part].clone())
    };
    let expected = plain(&learn(&workspace, &file, "--json").success().json());
    let mut command = workspace.command(&["profile", "learn", "-", "--json"]);
    command.stdin(Stdio::from(File::open(&file).unwrap()));
    let piped = workspace.start_command(command).finish().success().json();
    assert_eq!(plain(&piped), expected);
    assert_eq!(piped["learned"]["profile"], "learned.toml", "the default name for standard input");
    workspace.run(&["watch", "-r", str_of(&file), "--no-save"]).success();
    workspace.run(&["watch", "-r", str_of(&file)]).success();
    let stored = workspace.run(&["profile", "learn", "last", "--json", "-o", str_of(&workspace.file("stored.toml"))]);
    assert_eq!(plain(&stored.success().json()), expected);
}
