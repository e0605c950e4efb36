use super::*;
use crate::testing::{NOW_NS, SECOND_NS, ZERO_NS, batch as batch_of, stream as stream_of};
use schema::TapPeer;
use tap_protocol::SpoolUsage;

const DAYS_NS: u64 = 2 * 86_400 * SECOND_NS;

fn good() -> Batch {
    batch_of(&stream_of('a'), 1, &[DAYS_NS - 10 * SECOND_NS, DAYS_NS - 5 * SECOND_NS])
}

fn json(batch: &Batch) -> Bytes {
    serde_json::to_vec(batch).unwrap().into()
}

fn check(batch: &Batch) -> Result<Checked, Refused> {
    // A batch with the maximum number of rows is too long to be sent uncompressed.
    super::batch(&pack(&json(batch)).unwrap().into(), true, Some((ZERO_NS, 1)), NOW_NS)
}

fn why(outcome: Result<Checked, Refused>) -> RefusalReason {
    outcome.map(|_| ()).unwrap_err().why
}

#[test]
fn a_valid_batch_uses_the_measured_clock_zero() {
    let checked = check(&good()).unwrap();
    assert_eq!((checked.zero_ns, checked.zero_error_ns), (ZERO_NS, Some(1)));
    assert_eq!(checked.clock_offset_ns, Some(5 * SECOND_NS as i64));
    assert_eq!(checked.ends_ns, (NOW_NS - 10 * SECOND_NS, NOW_NS - 5 * SECOND_NS));
    assert_eq!(checked.sealed_ns(), NOW_NS - 4 * SECOND_NS);
    assert_eq!(unpacked(&checked.packed).unwrap().unwrap(), json(&good()).to_vec());
    // The same batch in gzip is stored as received.
    let packed: Bytes = pack(&json(&good())).unwrap().into();
    let again = super::batch(&packed, true, Some((ZERO_NS, 1)), NOW_NS).unwrap();
    assert_eq!((again.digest, &again.packed[..]), (checked.digest, &packed[..]));
}

#[test]
fn an_agent_clock_in_the_future_is_rejected() {
    let batch_with_clock_error = |off_ns: i64| {
        let mut batch = good();
        batch.zero_own_unix_ns = ZERO_NS.checked_add_signed(off_ns).unwrap();
        super::batch(&json(&batch), false, None, NOW_NS).unwrap()
    };
    let behind = batch_with_clock_error(-300 * SECOND_NS as i64);
    assert_eq!((behind.zero_ns, behind.clock_offset_ns), (ZERO_NS - 300 * SECOND_NS, None));
    let ahead = batch_with_clock_error(300 * SECOND_NS as i64);
    assert_eq!((ahead.sealed_ns(), ahead.clock_offset_ns), (NOW_NS, None));
    assert_eq!(ahead.zero_error_ns, None);
    // A clock that started in 1970.
    let reset = batch_with_clock_error(-(ZERO_NS as i64));
    assert_eq!((reset.sealed_ns(), reset.clock_offset_ns), (NOW_NS, None));
    assert_eq!(why(super::batch(&json(&good()), false, Some((0, 1)), NOW_NS)), RefusalReason::InvalidValue);
    // A measured zero may be ahead by some minutes only.
    let at = |ahead_ns| super::batch(&json(&good()), false, Some((ZERO_NS + ahead_ns, 1)), NOW_NS);
    assert!(at(604 * SECOND_NS).is_ok());
    assert_eq!(why(at(605 * SECOND_NS)), RefusalReason::InvalidValue);
    assert_eq!(why(super::batch(&json(&good()), false, Some((u64::MAX, 1)), NOW_NS)), RefusalReason::InvalidValue);
}

#[test]
fn a_body_that_is_not_a_batch_is_malformed() {
    let plain = |text: &str| super::batch(&Bytes::copy_from_slice(text.as_bytes()), false, None, NOW_NS);
    let deep = format!("{{\"stream\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let text = String::from_utf8(json(&good()).to_vec()).unwrap();
    let twice = text.replacen("\"sequence\":1", "\"sequence\":1,\"sequence\":1", 1);
    let strange = text.replacen('{', "{\"payload\":\"GET /secret\",", 1);
    let negative = text.replacen("\"sequence\":1", "\"sequence\":-1", 1);
    let address = text.replacen("192.0.2.7", "example.com", 1);
    for wrong in
        ["", "{", "null", "[]", "{}", "\u{0}", &deep, &twice, &strange, &negative, &address, &text[..text.len() - 1]]
    {
        let refused = plain(wrong).map(|_| ()).unwrap_err();
        assert_eq!(refused.why, RefusalReason::Malformed, "{}", &wrong[..wrong.len().min(80)]);
        assert!(!refused.message.contains("secret") && !refused.message.contains("example"), "{}", refused.message);
    }
    let followed: Vec<u8> = [pack(&json(&good())).unwrap(), b"x".to_vec()].concat();
    let half = pack(&json(&good())).unwrap();
    for wrong in [&b"no gzip"[..], &half[..half.len() / 2], &followed, b""] {
        let outcome = super::batch(&Bytes::copy_from_slice(wrong), true, None, NOW_NS);
        assert_eq!(why(outcome), RefusalReason::Malformed);
    }
}

#[test]
fn decompressed_bodies_are_limited() {
    let fits = pack(&vec![b' '; UNPACKED_MAX]).unwrap();
    assert_eq!(unpacked(&fits).unwrap().map(|text| text.len()), Some(UNPACKED_MAX));
    let bomb = pack(&vec![b' '; UNPACKED_MAX + 1]).unwrap();
    assert!(bomb.len() < BODY_MAX);
    assert_eq!(unpacked(&bomb).unwrap(), None);
    assert_eq!(why(super::batch(&bomb.into(), true, None, NOW_NS)), RefusalReason::TooLarge);
}

#[test]
fn rows_and_programs_of_a_batch_are_limited() {
    let mut batch = good();
    batch.rows = vec![batch.rows[0].clone(); ROWS_MAX];
    assert!(check(&batch).is_ok());
    batch.rows.push(batch.rows[0].clone());
    assert_eq!(why(check(&batch)), RefusalReason::TooLarge);
    let mut batch = good();
    batch.programs = vec![Program { name: "curl".into(), ..Program::default() }; PROGRAMS_MAX + 1];
    assert_eq!(why(check(&batch)), RefusalReason::TooLarge);
}

#[test]
fn contradictory_rows_are_rejected() {
    type Change = fn(&mut Batch);
    let changes: &[(&str, Change)] = &[
        ("a stream of other letters", |batch| batch.stream = "G".repeat(32)),
        ("a short stream", |batch| batch.stream = "a".repeat(31)),
        ("number 0", |batch| batch.sequence = 0),
        ("a boot with a line", |batch| batch.boot = "a\nb".into()),
        ("a share of nothing", |batch| batch.share = 0.0),
        ("a share beyond summing", |batch| batch.share = 1e-310),
        ("more than all", |batch| batch.share = 1.000_001),
        ("less than nothing", |batch| batch.share = -0.5),
        ("a zero after all times", |batch| batch.zero_own_unix_ns = u64::MAX),
        ("a seal after all times", |batch| batch.sealed_at_ns = u64::MAX),
        ("a loss beyond counting", |batch| batch.losses.records = u64::MAX),
        ("a level beyond counting", |batch| batch.gauges.open = u64::MAX),
        ("a side of its own", |batch| batch.rows[0].side = "both".into()),
        ("an outcome of its own", |batch| batch.rows[0].outcome = "fine".into()),
        ("an error of one that succeeded", |batch| batch.rows[0].error = Some("EPIPE".into())),
        ("an error with a line", |batch| {
            batch.rows[0].outcome = "failed".into();
            batch.rows[0].error = Some("E\nX".into());
        }),
        ("a program that steers terminals", |batch| batch.rows[0].program = Some("\u{1b}[31m".into())),
        ("a program without end", |batch| batch.rows[0].program = Some("x".repeat(65))),
        ("an end before the begin", |batch| {
            let row = &mut batch.rows[0];
            (row.sent_first_at_ns, row.sent_last_at_ns) = (row.sent_last_at_ns, row.sent_first_at_ns);
        }),
        ("a begin without an end", |batch| batch.rows[0].received_last_at_ns = None),
        ("a close before the open", |batch| batch.rows[0].closed_at_ns = Some(1)),
        ("an open after the end", |batch| batch.rows[0].opened_at_ns = batch.sealed_at_ns),
        ("a moment after the sealing", |batch| {
            batch.rows[0].closed_at_ns = Some(batch.sealed_at_ns + AFTER_SEALING_NS + 1);
        }),
        ("bytes beyond summing", |batch| batch.rows[0].sent_bytes = u64::MAX),
        ("bytes beyond summing, received", |batch| batch.rows[0].received_bytes = AMOUNT_MAX + 1),
        ("a wait of ages", |batch| batch.rows[0].blocked_ns = u64::MAX),
        ("a lookup of ages", |batch| batch.rows[0].lookup_ns = Some(u64::MAX)),
        ("a connection beyond numbering", |batch| batch.rows[0].connection = Some(u64::MAX)),
        ("a program without a name", |batch| batch.programs.push(Program::default())),
        ("a why with a bell", |batch| {
            batch.programs.push(Program { name: "a".into(), why: "\u{7}".into(), ..Program::default() });
        }),
        ("a count of programs", |batch| {
            batch.programs.push(Program { name: "a".into(), seen: u64::MAX, ..Program::default() });
        }),
    ];
    assert!(check(&good()).is_ok());
    for (what, change) in changes {
        let mut batch = good();
        change(&mut batch);
        assert_eq!(why(check(&batch)), RefusalReason::InvalidValue, "{what}");
    }
}

#[test]
fn unusual_but_possible_rows_are_accepted() {
    type Change = fn(&mut TapRow);
    let changes: &[Change] = &[
        // A failed name lookup.
        |row| {
            *row = TapRow {
                connection: None,
                exchange: None,
                peer: None,
                local: None,
                outcome: "failed".into(),
                error: Some("EAI_NONAME".into()),
                lookup_ns: Some(3),
                sent_first_at_ns: None,
                sent_last_at_ns: None,
                received_first_at_ns: None,
                received_last_at_ns: None,
                closed_at_ns: None,
                ..row.clone()
            };
        },
        // A response that overtook the request; a program name in another alphabet; a hashed peer; a weekend in recv.
        |row| row.received_first_at_ns = row.sent_first_at_ns,
        |row| row.program = Some("山彦".into()),
        |row| row.peer = Some(TapPeer { address: "h:00000000000000ff".parse().unwrap(), port: 0 }),
        |row| row.blocked_ns = 200_000 * SECOND_NS,
        |row| row.sent_bytes = AMOUNT_MAX,
    ];
    for change in changes {
        let mut batch = good();
        change(&mut batch.rows[0]);
        check(&batch).unwrap();
    }
}

#[test]
fn the_number_of_days_in_a_batch_is_limited() {
    let sealed_ns = 200 * 86_400 * SECOND_NS;
    let of = |days: u64| {
        let ends: Vec<u64> = (1..=days).map(|day| sealed_ns - day * 86_400 * SECOND_NS).collect();
        let batch = batch_of(&stream_of('a'), 1, &ends);
        super::batch(&json(&batch), false, Some((NOW_NS - sealed_ns, 1)), NOW_NS)
    };
    assert!(of(DAYS_MAX as u64).is_ok());
    assert_eq!(why(of(DAYS_MAX as u64 + 1)), RefusalReason::InvalidValue);
}

#[test]
fn a_hello_message_is_validated() {
    let good = Hello {
        stream: stream_of('a'),
        boot: "b".into(),
        host: "shop".into(),
        version: "1".into(),
        kernel: "6".into(),
        spool: SpoolUsage::default(),
        now_ns: 1,
        zero_own_unix_ns: 1,
        settings: 0,
    };
    let check = |hello: &Hello| super::hello(&serde_json::to_vec(hello).unwrap().into(), false);
    assert_eq!(check(&good).unwrap(), good);
    for wrong in [
        Hello { stream: String::new(), ..good.clone() },
        Hello { host: "x".repeat(256), ..good.clone() },
        Hello { kernel: "\u{1b}".into(), ..good.clone() },
        Hello { now_ns: u64::MAX, ..good.clone() },
        Hello { spool: SpoolUsage { rows: u64::MAX, ..SpoolUsage::default() }, ..good },
    ] {
        assert_eq!(check(&wrong).unwrap_err().why, RefusalReason::InvalidValue);
    }
}
