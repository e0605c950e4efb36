//! `explain -r`: generated capture files whose times are known.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use crate::packets::{CLIENT, SERVER, Talk, millis};
use crate::support::workspace::{Workspace, str_of};
use schema::ShareRow;
use serde_json::Value;
use store::RunStore;
use wire::capture::write;
use wire::link::LinkType;

/// Three connections with a request each: 48 ms from the SYN-ACK to the ACK, as at the server, and 20 ms from the
/// request to the response.
fn capture(workspace: &Workspace) -> PathBuf {
    let mut file = Vec::new();
    write::pcap_header(&mut file, LinkType::RawIp, 65_535);
    for port in 40_000..40_003 {
        let mut talk = Talk::from_port(port);
        talk.at = 1_000 * (u64::from(port) - 39_999);
        talk.open().send_data(CLIENT, b"GET /a HTTP/1.1\r\nHost: server\r\n\r\n").wait(10);
        talk.send_data(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").wait(10).close();
        for (at, packet) in &talk.packets {
            let bytes = packet.bytes();
            write::pcap_packet(&mut file, millis(*at), &bytes, bytes.len() as u32);
        }
    }
    let path = workspace.file("server.pcap");
    fs::write(&path, file).unwrap();
    path
}

#[test]
fn explain_divides_the_times_of_a_capture_at_the_server() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let output = workspace.run(&["explain", "-r", str_of(&file), "--at", "server", "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    let responses = document["responses"].as_array().unwrap();
    assert_eq!(responses.len(), 3);
    for response in responses {
        // The client's times are half a round trip of 48 ms earlier and later.
        assert_eq!(response["response_time_ns"], 68_000_000, "{response}");
        let shares = response["shares"].as_array().unwrap();
        let share = |cause: &str| &shares.iter().find(|share| share["cause"] == cause).unwrap()["time_ns"];
        assert_eq!(share("propagation"), 48_000_000, "{response}");
        assert_eq!(share("server_processing"), 20_000_000, "{response}");
        assert_eq!(response["target"], "GET /a");
    }
    let output = workspace.run(&["explain", "-r", str_of(&file), "--at", "server"]);
    let text = output.stdout;
    assert!(text.contains("Share of the response time") && text.contains("server processing"), "{text}");
}

#[test]
fn explain_refuses_missing_and_invalid_captures_and_those_between_the_ends() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let stderr = |words: &[&str]| {
        let output = workspace.run(&[&["explain"], words].concat());
        assert_eq!(output.code, Some(1));
        output.stderr
    };
    assert!(stderr(&["-r", "nowhere.pcap"]).contains("cannot open the capture file nowhere.pcap"));
    assert!(stderr(&["-r", str_of(&file), "--at", "between"]).contains("capture at one of them"));
    let text = workspace.file("text");
    fs::write(&text, "not a capture").unwrap();
    assert!(stderr(&["-r", str_of(&text)]).contains("not the start of a pcap"));
    let empty = workspace.file("empty.pcap");
    fs::write(&empty, "").unwrap();
    assert!(stderr(&["-r", str_of(&empty)]).contains("the file is empty"));
    let mut header = Vec::new();
    write::pcap_header(&mut header, LinkType::RawIp, 65_535);
    let without_packets = workspace.file("header.pcap");
    fs::write(&without_packets, header).unwrap();
    assert!(stderr(&["-r", str_of(&without_packets)]).contains("no complete response of HTTP/1"));
}

#[test]
fn explain_explains_the_responses_of_a_truncated_capture_with_a_note() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let output = workspace.run(&["explain", "-r", str_of(&file), "--at", "server", "--json"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("note: "), "{}", output.stderr);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["summary"]["responses"], 3);
}

#[test]
fn explain_refuses_options_of_a_run_for_a_capture_file_and_unknown_runs() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let stderr = |words: &[&str]| {
        let output = workspace.run(&[&["explain"], words].concat());
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        output.stderr
    };
    let refused = stderr(&["-r", str_of(&file), "-c", "4", "--http", "2"]);
    assert!(refused.contains("--connections, --http: no effect on a capture file"), "{refused}");
    let refused = stderr(&["nowhere"]);
    assert!(refused.contains("there is no run") && refused.contains("http://"), "{refused}");
    assert!(stderr(&[]).contains("URL"), "neither a URL nor a file");
}

#[test]
fn explain_with_a_url_makes_a_plan_that_keeps_packets_of_both_ends() {
    let workspace = Workspace::concurrent();
    let plan = |words: &[&str]| {
        let output = workspace.run(&[&["explain", "http://server/", "--rtt", "50ms", "--print-plan"], words].concat());
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    let without_rate = plan(&["--server", "./server"]);
    assert!(without_rate.contains("keep = true") && without_rate.contains("rate = \"20/s\""), "{without_rate}");
    let closed = plan(&["--server", "./server", "-c", "3"]);
    assert!(closed.contains("connections = 3") && !closed.contains("rate ="), "{closed}");
    let open = plan(&["--server", "./server", "-r", "9/s"]);
    assert!(open.contains("rate = \"9/s\""), "{open}");
    let words = ["bench", "http://server/", "--server", "./s", "--explain", "--rtt", "1ms", "--watch", "server"];
    let output = workspace.run(&words);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("packets are kept of both ends"), "{}", output.stderr);
}

#[test]
fn explain_writes_a_page_with_the_shares_and_the_diagram_of_a_response() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let page = workspace.file("page.html");
    let output = workspace.run(&["explain", "-r", str_of(&file), "--at", "server", "--html", str_of(&page)]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let html = fs::read_to_string(&page).unwrap();
    for text in ["Response time by percentile", "server processing", "sent by the server", "arrived at the client"] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn explain_of_a_stored_comparison_is_refused_with_one_line() {
    let workspace = Workspace::concurrent();
    let folder = RunStore::at(workspace.runs()).create("compare", UNIX_EPOCH, 1).unwrap();
    let summary = "{\"schema\": \"yamabiko.compare/1\", \"run\": {\"id\": \"compare\"}, \"compare\": {}}";
    fs::write(folder.path().join("summary.json"), summary).unwrap();
    drop(folder);
    let output = workspace.run(&["explain", "last"]);
    assert_eq!(output.code, Some(1));
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("not the summary of a run of load"), "{}", output.stderr);
}

#[test]
fn explain_writes_the_shares_of_a_capture_file_to_parquet() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    // A bare name is a file of the current folder.
    let table = workspace.path().join("shares.parquet");
    let words = ["explain", "-r", str_of(&file), "--at", "server", "--parquet", "shares.parquet"];
    let output = workspace.run(&words);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let shares = store::PartFile::<ShareRow>::open(&table).unwrap();
    let mut rows = Vec::new();
    (0..shares.groups()).for_each(|group| shares.read_group(group, &mut rows).unwrap());
    for response in 0..3 {
        let own: Vec<&ShareRow> = rows.iter().filter(|row| row.sequence == response).collect();
        assert_eq!(own.iter().map(|row| row.time_ns).sum::<u64>(), 68_000_000, "{own:?}");
        assert!(own.iter().all(|row| row.response_time_ns == 68_000_000 && row.client.is_none()), "{own:?}");
    }
    let refused = workspace.run(&["explain", "-r", str_of(&file), "--at", "server", "--parquet", "-"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("standard output"), "{}", refused.stderr);
}

#[test]
fn explain_tries_no_remedy_of_a_capture_file_or_a_stored_run() {
    let workspace = Workspace::concurrent();
    let file = capture(&workspace);
    let output = workspace.run(&["explain", "--read", str_of(&file), "--try"]);
    assert!(output.code == Some(2) || output.code == Some(1), "{}", output.stderr);
    let output = workspace.run(&["explain", "last", "--try"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("--try"), "{}", output.stderr);
}
