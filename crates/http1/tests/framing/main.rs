//! Checks the framing rules of every role against the table of cases in `framing.txt`.

mod table;

use http1::chunked::{ByClient, ByObserver, ByServer, Rules};
use http1::{Body, Chunked, Fault, Fields, Reason, Role, Step, response};

fn outcome(body: Result<Body, Fault>) -> String {
    match body {
        Ok(Body::None) => "none".to_owned(),
        Ok(Body::Length(length)) => format!("length:{length}"),
        Ok(Body::Chunked) => "chunked".to_owned(),
        Ok(Body::UntilClose) => "close".to_owned(),
        Ok(Body::Tunnel) => "tunnel".to_owned(),
        Err(fault) => fault.reason.name().to_owned(),
    }
}

/// Reads the framing fields of well-formed header lines.
fn fields(lines: &[u8]) -> Fields<'_> {
    let mut fields = Fields::default();
    for line in lines.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" => fields.content_length(value),
            b"transfer-encoding" => fields.transfer_encoding(value),
            _ => {}
        }
    }
    fields
}

#[test]
fn responses_end_as_listed_in_the_framing_table() {
    for case in table::responses() {
        let head = case.head();
        let read = response::parse(&head, case.request_method());
        let client = match read {
            Ok(None) => panic!("incomplete head: {case:?}"),
            Ok(Some(head)) => {
                let once = if head.keep_alive || head.body == Body::UntilClose { "" } else { ";once" };
                outcome(Ok(head.body)) + once
            }
            Err(fault) => outcome(Err(fault)),
        };
        assert_eq!(client, case.client, "client of {case:?}");
        if case.is_plain {
            let (status, version) = (case.status.parse().unwrap(), table::version(&case.version));
            let of = |role| outcome(fields(&case.fields).response(role, status, version, case.request_method()));
            assert_eq!(of(Role::Observer), case.observer, "observer of {case:?}");
            if case.gateway != "-" {
                assert_eq!(of(Role::Gateway), case.gateway, "gateway of {case:?}");
            }
        }
    }
}

#[test]
fn requests_end_as_listed_in_the_framing_table() {
    for case in table::requests().filter(|case| case.is_plain) {
        let of = |role| outcome(fields(&case.fields).request(role, table::version(&case.version)));
        let server = case.server.split_once(':').filter(|(status, _)| status.parse::<u16>().is_ok());
        assert_eq!(of(Role::Server), server.map_or(&*case.server, |(_, name)| name), "server of {case:?}");
        assert_eq!(of(Role::Observer), case.observer, "observer of {case:?}");
    }
}

fn chunked<R: Rules>(bytes: &[u8]) -> String {
    let mut chunked = Chunked::<R>::new();
    let mut at = 0;
    loop {
        match chunked.step(&bytes[at..]) {
            Ok(Step::More) => return "more".to_owned(),
            Ok(Step::Data(range)) => at += range.end,
            Ok(Step::End(end)) => {
                assert_eq!(at + end, bytes.len(), "end of the body {bytes:?}");
                return chunked.content().to_string();
            }
            Err(fault) => return fault.reason.name().to_owned(),
        }
    }
}

#[test]
fn chunked_bodies_end_as_listed_in_the_framing_table() {
    for case in table::chunked() {
        assert_eq!(chunked::<ByClient>(&case.bytes), case.client, "client of {case:?}");
        assert_eq!(chunked::<ByObserver>(&case.bytes), case.observer, "observer of {case:?}");
        let server = case.server.split_once(':').map_or(&*case.server, |(_, name)| name);
        assert_eq!(chunked::<ByServer>(&case.bytes), server, "server of {case:?}");
    }
}

#[test]
fn the_framing_table_covers_every_fault() {
    let table = include_str!("framing.txt");
    // Limits are tested in the modules that enforce them.
    let tested_elsewhere = [
        Reason::NotHttp1,
        Reason::StrayCr,
        Reason::TooManyFields,
        Reason::HeadTooLong,
        Reason::TooManyInterim,
        Reason::ChunkOverhead,
        Reason::BodyTooLong,
    ];
    for reason in Reason::ALL.iter().filter(|reason| !tested_elsewhere.contains(reason)) {
        assert!(table.contains(reason.name()), "{}", reason.name());
    }
}
