//! Reactions of one session to a client's input.

use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, Error, HandshakeKind};

use super::super::records::Records;
use super::super::secure::{Secure, TlsFailure, sealed_max};
use super::{Pair, TlsPair};

#[test]
fn tls_1_2_and_1_3_carry_data_both_ways_and_close_cleanly() {
    let pair = Pair::new();
    let tls = pair.load();
    for version in [&TLS12, &TLS13] {
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[version], &[b"http/1.1"]));
        tls_pair.settle(usize::MAX);
        assert!(tls_pair.server.established() && !tls_pair.server.speaks_http2());
        assert_eq!(tls_pair.client.alpn_protocol(), Some(&b"http/1.1"[..]));
        tls_pair.client_sends(b"GET / HTTP/1.1\r\n\r\n");
        tls_pair.settle(usize::MAX);
        assert_eq!(tls_pair.server_received, b"GET / HTTP/1.1\r\n\r\n");
        let answer: Vec<u8> = (0..100_000).map(|at| at as u8).collect();
        tls_pair.server_sends(&answer);
        assert!(tls_pair.under_way.len() <= sealed_max(answer.len()), "{}", tls_pair.under_way.len() - answer.len());
        let (mut server, mut close_notify) = (tls_pair.server, Records::default());
        server.close(&mut close_notify);
        tls_pair.server = server;
        tls_pair.under_way.extend_from_slice(&close_notify);
        tls_pair.deliver_to_client().unwrap();
        assert!(tls_pair.client_received == answer);
        let mut nothing = [0; 1];
        // The reader returns end-of-file after close_notify, and an error without it.
        assert_eq!(std::io::Read::read(&mut tls_pair.client.reader(), &mut nothing).unwrap(), 0);
        // Sent once; nothing follows it.
        let length = close_notify.len();
        tls_pair.server.close(&mut close_notify);
        assert_eq!(close_notify.len(), length);
        assert!(tls_pair.server.encrypt(b"x", &mut close_notify).is_err());
    }
}

#[test]
fn a_client_without_alpn_is_served_and_one_without_a_common_protocol_gets_an_alert() {
    let pair = Pair::new();
    let tls = pair.load();
    let mut silent = TlsPair::new(&tls, pair.client(&[&TLS13], &[]));
    silent.settle(usize::MAX);
    assert!(silent.server.established() && !silent.server.speaks_http2());
    for version in [&TLS12, &TLS13] {
        let mut modern = TlsPair::new(&tls, pair.client(&[version], &[b"h3"]));
        let hello = modern.client_bytes();
        assert!(matches!(modern.deliver_to_server(&hello), Err(TlsFailure::Handshake(_))));
        let error = modern.deliver_to_client().unwrap_err();
        assert_eq!(error, Error::AlertReceived(AlertDescription::NoApplicationProtocol));
        // Later input is ignored.
        assert!(modern.deliver_to_server(&hello).is_ok() && modern.server_received.is_empty());
    }
}

#[test]
fn http_2_is_chosen_before_http_1() {
    let pair = Pair::new();
    let tls = pair.load();
    for protocols in [&[&b"http/1.1"[..], b"h2"][..], &[b"h2"]] {
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[&TLS13], protocols));
        assert!(!tls_pair.server.speaks_http2());
        tls_pair.settle(usize::MAX);
        assert!(tls_pair.server.speaks_http2());
        assert_eq!(tls_pair.client.alpn_protocol(), Some(&b"h2"[..]));
    }
    assert_eq!(tls.config().alpn_protocols, [b"http/1.1"], "other servers of the program speak HTTP/1.1");
}

#[test]
fn a_certificate_is_for_its_names_only() {
    let tls = Pair::new().load();
    for (host, is_for) in [("server", true), ("SERVER", true), ("other", false), ("", false), ("[::1]", false)] {
        assert_eq!(tls.is_for(host.as_bytes()), is_for, "{host}");
    }
}

#[test]
fn tickets_resume_a_session_also_after_a_reload() {
    let pair = Pair::new();
    let tls = pair.load();
    for version in [&TLS12, &TLS13] {
        let client = pair.client(&[version], &[]);
        let kinds: Vec<_> = (0..3)
            .map(|turn| {
                let mut tls_pair = TlsPair::new(&tls, client.clone());
                tls_pair.settle(usize::MAX);
                if turn == 1 {
                    tls.reload().unwrap();
                }
                tls_pair.client.handshake_kind()
            })
            .collect();
        let expected = [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed];
        assert_eq!(kinds, expected.map(Some), "{version:?}");
    }
}

#[test]
fn close_notify_is_distinguished_from_truncation_and_responses_still_go_out() {
    let pair = Pair::new();
    let tls = pair.load();
    let mut tls_pair = TlsPair::new(&tls, pair.client(&[&TLS13], &[]));
    tls_pair.settle(usize::MAX);
    tls_pair.client_sends(b"the last request");
    assert!(!tls_pair.server.peer_closed());
    tls_pair.client.send_close_notify();
    let mut last = tls_pair.client_bytes();
    last.extend_from_slice(b"bytes after the end mean nothing");
    tls_pair.deliver_to_server(&last).unwrap();
    assert!(tls_pair.server.peer_closed() && tls_pair.server.established());
    assert_eq!(tls_pair.server_received, b"the last request");
    tls_pair.deliver_to_server(&last).unwrap();
    assert_eq!(tls_pair.server_received, b"the last request");
    tls_pair.server_sends(b"its answer");
    tls_pair.deliver_to_client().unwrap();
    assert_eq!(tls_pair.client_received, b"its answer");
}

#[test]
fn plain_http_on_the_tls_port_gets_a_plain_text_response() {
    let pair = Pair::new();
    let mut server = Secure::new(&pair.load()).unwrap();
    let (mut plaintext, mut out) = (Vec::new(), Records::default());
    assert!(server.received(b"", &mut plaintext, &mut out).is_ok());
    let outcome = server.received(b"G", &mut plaintext, &mut out);
    assert!(matches!(outcome, Err(TlsFailure::PlainHttp)));
    let answer = String::from_utf8(out.to_vec()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("\r\nConnection: close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    assert!(body.contains("https://"), "{body}");
    assert!(server.received(b"ET / HTTP/1.1\r\n\r\n", &mut plaintext, &mut out).is_ok());
    assert!(plaintext.is_empty() && out.len() == answer.len());
    server.close(&mut out);
    assert_eq!(out.len(), answer.len());
}

#[test]
fn a_corrupt_record_ends_the_session_with_an_alert() {
    let pair = Pair::new();
    let tls = pair.load();
    for version in [&TLS12, &TLS13] {
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[version], &[]));
        tls_pair.settle(usize::MAX);
        tls_pair.client_sends(b"a request");
        let mut bytes = tls_pair.client_bytes();
        *bytes.last_mut().unwrap() ^= 1;
        assert!(matches!(tls_pair.deliver_to_server(&bytes), Err(TlsFailure::Broken(_))));
        assert!(tls_pair.server_received.is_empty());
        let error = tls_pair.deliver_to_client().unwrap_err();
        assert_eq!(error, Error::AlertReceived(AlertDescription::BadRecordMac));
    }
}

#[test]
fn an_endless_handshake_is_refused() {
    let pair = Pair::new();
    let mut server = Secure::new(&pair.load()).unwrap();
    let (mut plaintext, mut out) = (Vec::new(), Records::default());
    // A ClientHello of 64 KiB in records of 1000 bytes.
    let mut record = vec![22, 3, 1, 3, 232];
    record.extend_from_slice(&[1, 0, 255, 255]);
    record.resize(5 + 1000, 0);
    let mut sent = 0;
    let outcome = loop {
        sent += record.len();
        if let Err(error) = server.received(&record, &mut plaintext, &mut out) {
            break error;
        }
        assert!(sent < 40_000);
        record[5..9].fill(0);
    };
    assert!(matches!(outcome, TlsFailure::Handshake(_)), "{outcome}");
    assert!(sent > 16 << 10 && plaintext.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_fragmentation_of_the_ciphertext_gives_the_same_plaintext(
        sent_parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 1..5),
        step in 1usize..700,
        old in any::<bool>(),
    ) {
        let pair = Pair::new();
        let tls = pair.load();
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[if old { &TLS12 } else { &TLS13 }], &[b"http/1.1"]));
        tls_pair.settle(step);
        for part in &sent_parts {
            tls_pair.client_sends(part);
        }
        let bytes = tls_pair.client_bytes();
        for part in bytes.chunks(step) {
            tls_pair.deliver_to_server(part).unwrap();
            // A response in the middle of a client's record.
            tls_pair.server_sends(b"echo");
        }
        tls_pair.deliver_to_client().unwrap();
        prop_assert_eq!(&tls_pair.server_received, &sent_parts.concat());
        prop_assert_eq!(tls_pair.client_received, b"echo".repeat(bytes.chunks(step).count()));
    }

    #[test]
    fn garbage_before_the_handshake_never_reaches_the_http_parser(bytes in prop::collection::vec(any::<u8>(), 1..2000)) {
        let pair = Pair::new();
        let mut server = Secure::new(&pair.load()).unwrap();
        let (mut plaintext, mut out) = (Vec::new(), Records::default());
        for part in bytes.chunks(100) {
            if server.received(part, &mut plaintext, &mut out).is_err() {
                break;
            }
        }
        prop_assert!(plaintext.is_empty() && !server.established());
        prop_assert!(server.encrypt(b"x", &mut out).is_err());
    }

    #[test]
    fn garbage_inside_a_session_never_reaches_the_http_parser(flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)) {
        let pair = Pair::new();
        let tls = pair.load();
        let mut tls_pair = TlsPair::new(&tls, pair.client(&[&TLS13], &[]));
        tls_pair.settle(usize::MAX);
        let message = [b'a'; 500];
        tls_pair.client_sends(&message);
        let mut bytes = tls_pair.client_bytes();
        for (place, bits) in &flips {
            bytes[place.index(message.len())] ^= bits;
        }
        let _ = tls_pair.deliver_to_server(&bytes);
        let plaintext = &tls_pair.server_received;
        prop_assert!(plaintext.is_empty() || plaintext == &message, "{} bytes", plaintext.len());
    }
}
