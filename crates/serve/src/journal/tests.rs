use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use proptest::prelude::*;

use super::line::Lines;
use super::record::take;
use super::*;
use crate::cache::{Outcome, Reason};

const ZERO_UNIX_NS: u64 = 784_111_777_000_000_000;

fn entry(head: &[u8]) -> Entry<'_> {
    Entry {
        peer: "192.0.2.7".parse().unwrap(),
        head,
        status: 200,
        content_bytes: 2326,
        kind: Kind::Static,
        finding: Finding::NONE,
        began: Timestamp::from_nanos(1_999_999_999),
        ended: Timestamp::from_nanos(2_000_123_999),
        whole: true,
    }
}

fn format_line(entry: &Entry<'_>, format: LogFormat, anonymous: bool) -> String {
    let mut bytes = Vec::new();
    append(&mut bytes, entry);
    assert_eq!(bytes.len(), record::bytes(entry));
    let mut rest = &bytes[..];
    let record = take(&mut rest).unwrap();
    assert!(rest.is_empty() && take(&mut rest).is_none());
    let mut out = Vec::new();
    Lines::new(format, anonymous, ZERO_UNIX_NS).append(&mut out, &record);
    String::from_utf8(out).unwrap()
}

fn line(entry: &Entry<'_>) -> String {
    format_line(entry, LogFormat::Combined, false)
}

#[test]
fn lines_in_the_combined_format() {
    let head = b"GET /a.gif HTTP/1.1\r\nHost: x\r\nuser-agent:  Mozilla/4.08 \r\nReferer: http://example/\r\n\r\n";
    assert_eq!(
        line(&entry(head)),
        "192.0.2.7 - - [06/Nov/1994:08:49:38 +0000] \"GET /a.gif HTTP/1.1\" 200 2326 \"http://example/\" \"Mozilla/4.08\"\n"
    );
    let bare = Entry {
        content_bytes: 0,
        status: 304,
        peer: "2001:db8::1".parse().unwrap(),
        ..entry(b"GET / HTTP/1.0\r\n\r\n")
    };
    assert_eq!(line(&bare), "2001:db8::1 - - [06/Nov/1994:08:49:38 +0000] \"GET / HTTP/1.0\" 304 - \"-\" \"-\"\n");
    // As a dual-stack socket reports it.
    let mapped = Entry { peer: "::ffff:192.0.2.7".parse().unwrap(), ..entry(b"") };
    assert!(line(&mapped).starts_with("192.0.2.7 - - [06/Nov/1994:08:49:38 +0000] \"-\" 200 2326 \"-\" \"-\""));
}

#[test]
fn extended_lines_append_time_cache_outcome_and_completeness() {
    let hit =
        Entry { finding: Finding::new(Outcome::Hit, Reason::Fresh), whole: false, ..entry(b"GET / HTTP/1.1\r\n\r\n") };
    assert!(format_line(&hit, LogFormat::Extended, false).ends_with(" \"-\" \"-\" 124 hit fresh truncated\n"));
    assert!(format_line(&entry(b""), LogFormat::Extended, false).ends_with(" 124 - - complete\n"));
}

#[test]
fn anonymous_logs_zero_the_host_part_of_addresses() {
    let of = |peer: &str| {
        let line = format_line(&Entry { peer: peer.parse().unwrap(), ..entry(b"") }, LogFormat::Combined, true);
        line.split(' ').next().unwrap().to_owned()
    };
    assert_eq!(of("192.0.2.77"), "192.0.2.0");
    assert_eq!(of("::ffff:192.0.2.77"), "192.0.2.0");
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1::");
}

proptest! {
    /// Any client input gives one line of printable ASCII with its quotes in place.
    #[test]
    fn quotes_and_control_bytes_are_escaped(head in prop::collection::vec(any::<u8>(), 0..300), peer: [u8; 16]) {
        let line = line(&Entry { peer: std::net::IpAddr::from(peer), ..entry(&head) });
        let text = line.strip_suffix('\n').unwrap();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{:?}", text);
        let mut quotes = 0;
        let mut escaped = false;
        for byte in text.bytes() {
            quotes += usize::from(byte == b'"' && !escaped);
            escaped = byte == b'\\' && !escaped;
        }
        prop_assert_eq!(quotes, 6, "{:?}", text);
    }
}

#[test]
fn a_blocked_log_thread_drops_records_and_delays_no_worker() {
    let (sender, receiver) = channel();
    let tallies = Arc::<Tallies>::default();
    let mut journal = Journal::new(sender, Arc::clone(&tallies));
    let head = vec![b'x'; 4096];
    let each = record::bytes(&entry(&head));
    let fit = BUFFERS * (BUFFER_BYTES / each);
    for _ in 0..fit + 10 {
        journal.note(&entry(&head));
    }
    assert_eq!(tallies.dropped.load(Ordering::Relaxed), 10);
    let mut workers = Vec::new();
    let mut records = 0;
    while let Ok(Message::Records { records: more, bytes, back }) = receiver.try_recv() {
        records += more;
        workers.push((bytes, back));
    }
    assert_eq!(records, fit as u64);
    // One buffer comes back, and recording continues.
    let (mut bytes, back) = workers.pop().unwrap();
    bytes.clear();
    back.send(bytes).unwrap();
    journal.note(&entry(&head));
    assert_eq!(tallies.dropped.load(Ordering::Relaxed), 10);
    drop(journal);
    assert!(matches!(receiver.try_recv(), Ok(Message::Records { records: 1, .. })));
}

fn log_to(path: &std::path::Path) -> Log {
    let spec = LogSpec { to: LogTarget::File(path.into()), format: LogFormat::Combined, anonymous: false };
    Log::open(spec).unwrap()
}

#[test]
fn all_records_are_written_before_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, "before\n").unwrap();
    let log = log_to(&path);
    let writing = log.start(sys::clock::Clock::start()).unwrap();
    let mut journals: Vec<Journal> = (0..2).filter_map(|_| writing.journal()).collect();
    for number in 0..5000 {
        let head = format!("GET /{number} HTTP/1.1\r\n\r\n");
        journals[number % 2].note(&entry(head.as_bytes()));
    }
    drop(journals);
    drop(writing);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut numbers: Vec<usize> =
        text.lines().skip(1).map(|line| line.split(['/', ' ']).nth(9).unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5000).collect::<Vec<_>>());
    assert_eq!(log.summary(), LogSummary { written: 5000, dropped: 0, failed: 0 });
}

#[test]
fn after_a_reopen_lines_go_to_the_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
    let log = log_to(&path);
    let writing = log.start(sys::clock::Clock::start()).unwrap();
    let mut journal = writing.journal().unwrap();
    journal.note(&entry(b"GET /old HTTP/1.1\r\n\r\n"));
    journal.send_to_log_thread();
    // One queue: records sent before go to the old file.
    std::fs::rename(&path, &moved).unwrap();
    log.reopen().unwrap();
    journal.note(&entry(b"GET /new HTTP/1.1\r\n\r\n"));
    drop(journal);
    drop(writing);
    let (old, new) = (std::fs::read_to_string(&moved).unwrap(), std::fs::read_to_string(&path).unwrap());
    assert!(old.contains("/old") && !old.contains("/new") && new.contains("/new") && !new.contains("/old"));
    std::fs::remove_dir_all(directory.path()).unwrap();
    assert!(log.reopen().unwrap_err().to_string().contains("access log"), "the folder is gone");
}

#[test]
fn a_full_disk_is_counted_and_reported_once() {
    let log = log_to("/dev/full".as_ref());
    let writing = log.start(sys::clock::Clock::start()).unwrap();
    let mut journal = writing.journal().unwrap();
    for _ in 0..3 {
        journal.note(&entry(b"GET / HTTP/1.1\r\n\r\n"));
        journal.send_to_log_thread();
    }
    drop(journal);
    drop(writing);
    assert_eq!(log.summary(), LogSummary { written: 0, dropped: 0, failed: 3 });
    let nowhere = LogSpec { to: LogTarget::File("/nowhere/log".into()), format: LogFormat::Combined, anonymous: false };
    assert!(Log::open(nowhere).is_err());
}

#[test]
fn without_a_log_no_buffers_are_allocated() {
    let mut recorder = Recorder::new(crate::Figures::new().worker(), None);
    assert!(recorder.keep(&[b'x'; 100]).bytes().is_empty());
    recorder.refused(&Entry { kind: Kind::Refused, ..entry(b"junk") });
    recorder.tick(Timestamp::from_nanos(5));
}
