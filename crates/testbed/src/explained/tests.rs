use std::time::{Duration, UNIX_EPOCH};

use explain::Cause;
use schema::share::{Confidence, Rule};
use schema::{ServerWaitRow, TcpSampleRow};
use store::{RunFolder, RunStore};

use super::*;
use crate::packets::KeptPackets;
use crate::watching::between::End;

/// One way of the run's path.
const DELAY_MS: u64 = 30;
const PORT: u16 = 40_000;
const RESPONSE_BYTES: u32 = 1_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// A TCP packet of client 0, or to it.
fn packet(up: bool, flags: u8, sequence: u32, acknowledgement: u32, payload: u32) -> Vec<u8> {
    let (client, server) = ([198, 19, 0, 1], [198, 18, 0, 1]);
    let mut bytes = vec![0x45, 0];
    bytes.extend((40 + payload as u16).to_be_bytes());
    bytes.extend([0, sequence as u8, 0x40, 0, 64, 6, 0, 0]);
    bytes.extend(if up { [client, server] } else { [server, client] }.concat());
    let ports = if up { [PORT, 80] } else { [80, PORT] };
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(acknowledgement.to_be_bytes());
    bytes.extend([0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
    bytes.resize(40 + payload as usize, b'x');
    bytes
}

/// A stored run.
struct Stored {
    _root: tempfile::TempDir,
    folder: RunFolder,
    document: Document,
}

/// The packets of a connection with one request: SYN at 1000 ms, request at 1060 ms, response after 100 ms of
/// processing.
fn kept() -> KeptPackets {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let talk = [
        (true, SYN, 100, 0, 0, 1_000),
        (false, SYN | ACK, 500, 101, 0, 1_030),
        (true, ACK, 101, 501, 0, 1_060),
        (true, ACK | 8, 101, 501, 80, 1_060),
        (false, ACK | 8, 501, 181, RESPONSE_BYTES, 1_190),
        (true, ACK, 181, 501 + RESPONSE_BYTES, 0, 1_220),
    ];
    let mut kept = KeptPackets::default();
    for (up, flags, sequence, acknowledgement, payload, sent) in talk {
        let bytes = packet(up, flags, sequence, acknowledgement, payload);
        let ends = if up { [End::Client, End::Server] } else { [End::Server, End::Client] };
        for (end, time) in ends.into_iter().zip([sent, sent + DELAY_MS]) {
            kept.packet(end, at(time), &bytes, bytes.len() as u32);
        }
    }
    kept
}

/// A run with the request of [`kept`].
fn stored(lost: u64) -> Stored {
    let root = tempfile::tempdir().unwrap();
    let folder = RunStore::at(root.path()).create("bench", UNIX_EPOCH, 1).unwrap();
    let plan = "[load]\nurl = \"http://server/\"\nrate = \"20/s\"\nduration = \"2s\"\nclients = 1\n\
                [path]\nrtt = \"60ms\"\n[server]\ncommand = \"server\"\n";
    folder.write_plan(plan).unwrap();
    let request = RequestRecord {
        connection: Some(1),
        scheduled_at: at(1_000),
        started_at: Some(at(1_000)),
        connected_at: Some(at(1_060)),
        sent_at: Some(at(1_060)),
        first_byte_at: Some(at(1_220)),
        done_at: at(1_220),
        bytes_received: RESPONSE_BYTES.into(),
        attempts: 1,
        ..RequestRecord::BLANK
    };
    folder.requests().finish_with_rows(&[request]).unwrap();
    kept().write(&folder, lost, None, UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    let mut document = Document::of_load(schema::document::Load::default(), 2.0);
    document.run.recorded = Some(schema::document::Recorded { requests: 1, of: 1, one_in: 1, measured_from_ns: 0 });
    Stored { _root: root, folder, document }
}

impl Stored {
    fn read(&self) -> Result<RunEvidence, TestbedError> {
        RunEvidence::read(self.folder.path(), &self.document)
    }

    /// Changes the facts of the packets.
    fn change(&self, change: impl FnOnce(&mut KeptFacts)) {
        let path = self.folder.path().join(FACTS_FILE);
        let mut facts: KeptFacts = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut facts);
        std::fs::write(path, serde_json::to_vec(&facts).unwrap()).unwrap();
    }
}

#[test]
fn kept_packets_divide_the_response_and_have_both_ends() {
    let run = stored(0).read().unwrap();
    let explained = run.explained();
    let explanation = &explained[0].explanation;
    assert_eq!(explanation.response_time_ns(), 220_000_000);
    let ms = |cause| explanation.time_of(cause) / 1_000_000;
    assert_eq!((ms(Cause::TcpHandshake), ms(Cause::Propagation), ms(Cause::ServerProcessing)), (60, 60, 100));
    assert!(run.notes.is_empty(), "{:?}", run.notes);
    let processing = explanation.shares().into_iter().find(|share| share.cause == Cause::ServerProcessing).unwrap();
    assert_eq!(processing.confidence, Confidence::Certain);
}

#[test]
fn responses_that_end_when_the_memory_was_full_have_the_loads_times_alone() {
    let run = stored(0);
    // Packets may not have been read that are a second older.
    for (until_ms, has_packets) in [(2_221, true), (2_220, false)] {
        run.change(|facts| facts.until_ns = Some(until_ms * 1_000_000));
        let evidence = run.read().unwrap();
        let of = evidence.evidence(&evidence.requests[0]);
        assert_eq!(of.client_packets.is_some(), has_packets, "kept until {until_ms} ms");
        assert_eq!(of.server_packets.is_some(), has_packets, "kept until {until_ms} ms");
        assert!(evidence.notes[0].starts_with("packets were kept until 2.22"), "{:?}", evidence.notes);
    }
}

#[test]
fn a_truncated_file_of_packets_is_refused_with_what_to_do() {
    let run = stored(0);
    let path = run.folder.path().join(FILES[1]);
    let bytes = std::fs::read(&path).unwrap();
    for cut in [1, 30, bytes.len() - 30] {
        std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
        let Err(error) = run.read() else { panic!("{cut} bytes of the file are missing, and it was read") };
        let text = error.to_string();
        assert!(text.contains(FILES[1]) && text.contains("of 6 packets; without packets.json"), "{text}");
    }
    std::fs::write(&path, &bytes[..10]).unwrap();
    assert!(run.read().is_err());
    std::fs::remove_file(run.folder.path().join(FACTS_FILE)).unwrap();
    let without = run.read().unwrap();
    assert!(without.notes[0].contains("kept no packets"), "{:?}", without.notes);
}

#[test]
fn packets_that_the_capture_lost_lower_the_confidence() {
    let run = stored(7).read().unwrap();
    assert!(run.notes[0].contains("lost 7 packets") && run.notes[0].contains("less sure"), "{:?}", run.notes);
    let explained = run.explained();
    let shares = explained[0].explanation.shares();
    let sure: Vec<Rule> =
        shares.iter().filter(|share| share.confidence == Confidence::Certain).map(|share| share.rule).collect();
    assert_eq!(sure, [Rule::LoadRecord], "{shares:?}");
}

#[test]
fn samples_of_the_server_are_evidence_of_their_connection_and_time() {
    let run = stored(0);
    let sample = |ms, client_port, congestion_window| TcpSampleRow {
        at: at(ms),
        client_port,
        congestion_window,
        unsent_bytes: 9,
        ..TcpSampleRow::BLANK
    };
    let rows = [sample(1_100, PORT, 10), sample(1_100, PORT + 1, 11), sample(500, PORT, 12), sample(1_300, PORT, 13)];
    run.folder.tcp_samples().finish_with_rows(&rows).unwrap();
    let wait = |from, to, cause| ServerWaitRow { from: at(from), to: at(to), cause };
    let waits = [
        wait(10, 20, WaitCause::RunQueue),
        wait(1_090, 1_150, WaitCause::CpuLimit),
        wait(1_160, 1_170, WaitCause::RunQueue),
        wait(1_300, 1_400, WaitCause::CpuLimit),
    ];
    run.folder.server_waits().finish_with_rows(&waits).unwrap();
    let run = run.read().unwrap();
    let evidence = run.evidence(&run.requests[0]);
    let windows: Vec<u32> = evidence.server_tcp.unwrap().iter().map(|sample| sample.congestion_window).collect();
    assert_eq!(windows, [12, 10, 13], "in order of time, of this port, with one before and one after");
    assert_eq!(evidence.server_cpu.unwrap().len(), 2);
    let explained = run.explained();
    let explanation = &explained[0].explanation;
    let ms = |cause| explanation.time_of(cause) / 1_000_000;
    let divided = (ms(Cause::CpuThrottling), ms(Cause::RunQueue), ms(Cause::ServerProcessing));
    assert_eq!(divided, (60, 10, 30), "{:?}", explanation.shares());
}

#[test]
fn a_run_without_samples_has_no_evidence_of_them() {
    let run = stored(0).read().unwrap();
    let evidence = run.evidence(&run.requests[0]);
    assert_eq!((evidence.server_tcp, evidence.server_cpu), (None, None));
}

#[test]
fn names_of_causes_and_rules_in_parquet_are_those_in_json() {
    fn in_json(value: impl serde::Serialize) -> String {
        serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
    }
    assert!(Cause::ALL.iter().all(|cause| in_json(cause) == cause.as_str()));
    assert!(Confidence::ALL.iter().all(|confidence| in_json(confidence) == confidence.as_str()));
    assert!(Rule::ALL.iter().all(|rule| in_json(rule) == rule.as_str()));
}
