//! Tests with log lines of real servers, and the replays made of them.

use proptest::prelude::*;

use super::*;

const UNSCALED: ReplaySpec = ReplaySpec { time_scale: 1.0, clients_max: 1000 };

fn combined(line: &str) -> LogLine {
    parse_combined(line).unwrap_or_else(|error| panic!("{error:?}: {line}"))
}

#[test]
fn combined_log_lines_are_parsed() {
    let line = combined(
        r#"192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://a/" "Mozilla/4.08 [en]""#,
    );
    assert_eq!(line.at_unix_ns, 971_211_336 * SECOND_NS);
    assert_eq!(
        (line.client.as_str(), line.method.as_str(), line.target.as_str()),
        ("192.0.2.1", "GET", "/apache_pb.gif")
    );
    assert_eq!((line.status, line.bytes, line.has_fraction), (Some(200), Some(2326), false));
    let fine = combined(r#"2001:db8::7 - - [21/Nov/2026:00:00:00.250 +0000] "POST /a?b=\"c\" HTTP/1.1" 304 -"#);
    assert_eq!((fine.at_unix_ns % SECOND_NS, fine.has_fraction, fine.bytes), (250_000_000, true, None));
    assert_eq!(fine.target, "/a?b=%22c%22");
    assert_eq!(fine.client, "2001:db8::7");
    assert_eq!(combined(r#"a - x y z [21/Nov/2026:00:00:00 +0000] "GET http://h:1/p HTTP/1.1" 200 1"#).target, "/p");
    assert_eq!(combined(r#"a - - [21/Nov/2026:00:00:00 +0000] "GET /old" 200 1"#).method, "GET");
}

#[test]
fn combined_log_lines_with_virtual_host_are_parsed() {
    let rest = r#"[25/Nov/2026:10:00:01 +0000] "GET /v1 HTTP/1.1" 200 5 "-" "UA""#;
    for (who, client) in [
        ("shop.example:443 10.0.0.1 - -", "10.0.0.1"),
        ("shop.example:443 10.0.0.1 - some user", "10.0.0.1"),
        ("shop.example 10.0.0.1 - -", "10.0.0.1"),
        ("[2001:db8::1]:443 2001:db8::7 - -", "2001:db8::7"),
        ("shop.example:443 client.example - -", "client.example"),
        ("127.0.0.1:80 10.0.0.1 - -", "10.0.0.1"),
        // Lines without a virtual host.
        ("10.0.0.1 - some user", "10.0.0.1"),
        ("10.0.0.1 - -", "10.0.0.1"),
        ("10.0.0.1:5555 - -", "10.0.0.1"),
        ("10.0.0.1:5555 - some user", "10.0.0.1"),
        ("client.example ident user", "client.example"),
    ] {
        assert_eq!(combined(&format!("{who} {rest}")).client, client, "{who}");
    }
}

#[test]
fn log_lines_without_a_request_are_left_out() {
    let time = "[21/Nov/2026:00:00:00 +0000]";
    for (line, expected) in [
        (String::new(), LineError::NotOfFormat),
        ("garbage".to_owned(), LineError::NotOfFormat),
        (r#"a - - [21/Nov/2026] "GET / HTTP/1.1" 200 1"#.to_owned(), LineError::NoTime),
        (format!(r#"a - - {time} "-" 408 0"#), LineError::NoRequest),
        (format!(r#"a - - {time} "\x16\x03\x01" 400 0"#), LineError::NoRequest),
        (format!(r#"a - - {time} "GET / HTTP/1.1"#), LineError::NotOfFormat),
        (format!(r#"a - - {time} "OPTIONS * HTTP/1.1" 200 1"#), LineError::NoPath),
        (format!(r#"a - - {time} "CONNECT h:443 HTTP/1.1" 200 1"#), LineError::NoPath),
    ] {
        assert_eq!(parse_combined(&line), Err(expected), "{line}");
    }
}

#[test]
fn json_log_lines_are_parsed_by_the_key_names_of_several_servers() {
    let nginx = r#"{"msec":"1763683200.123","remote_addr":"192.0.2.1","request":"GET /a HTTP/1.1","status":"200","body_bytes_sent":"17"}"#;
    let caddy = r#"{"ts":1763683200.5,"status":404,"size":9,"request":{"remote_ip":"192.0.2.2","method":"HEAD","uri":"/b?c","host":"x"}}"#;
    let plain = r#"{"time":"2025-11-21T00:00:00Z","client":"u1","path":"/d"}"#;
    let [nginx, caddy, plain] = [nginx, caddy, plain].map(|line| parse_json(line).unwrap());
    assert_eq!((nginx.at_unix_ns, nginx.target.as_str(), nginx.bytes), (1_763_683_200_123_000_000, "/a", Some(17)));
    assert_eq!(
        (caddy.at_unix_ns, caddy.method.as_str(), caddy.target.as_str()),
        (1_763_683_200_500_000_000, "HEAD", "/b?c")
    );
    assert_eq!((caddy.client.as_str(), caddy.status), ("192.0.2.2", Some(404)));
    assert_eq!(
        (plain.at_unix_ns, plain.has_fraction, plain.method.as_str()),
        (1_763_683_200 * SECOND_NS, false, "GET")
    );
    assert_eq!(parse_json("[]"), Err(LineError::NotOfFormat));
    assert_eq!(parse_json(r#"{"client":"a","path":"/"}"#), Err(LineError::NoTime));
    assert_eq!(parse_json(r#"{"time":1,"client":"a"}"#), Err(LineError::NoRequest));
    assert_eq!(parse_json(r#"{"time":1,"path":"/"}"#), Err(LineError::NotOfFormat));
}

#[test]
fn json_log_lines_of_envoy_traefik_caddy_and_google_are_parsed() {
    let envoy = r#"{"start_time":"2026-11-25T10:00:00.125Z","method":"GET","path":"/e?x=1","protocol":"HTTP/2","response_code":200,
        "bytes_sent":34,"downstream_remote_address":"10.0.0.1:40000","authority":"shop.example","upstream_host":"10.9.9.9:80"}"#;
    let traefik = r#"{"ClientAddr":"10.0.0.2:40000","ClientHost":"10.0.0.2","DownstreamContentSize":5,"DownstreamStatus":404,
        "RequestHost":"shop.example","RequestMethod":"HEAD","RequestPath":"/t","RequestProtocol":"HTTP/1.1",
        "StartLocal":"2026-11-25T11:00:00.5+01:00","StartUTC":"2026-11-25T10:00:00.5Z","level":"info","time":"2026-11-25T10:00:01Z"}"#;
    let caddy = r#"{"level":"info","ts":1795600800.25,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":
        "10.0.0.3","remote_port":"40000","client_ip":"10.0.0.3","proto":"HTTP/2.0","method":"POST","host":"shop.example","uri":"/c"},
        "bytes_read":0,"duration":0.001,"size":7,"status":201}"#;
    let google = r#"{"httpRequest":{"requestMethod":"GET","requestUrl":"https://shop.example/g?y","requestSize":"50","status":200,
        "responseSize":"900","userAgent":"UA","remoteIp":"10.0.0.4","latency":"0.01s"},"timestamp":"2026-11-25T10:00:00.75Z"}"#;
    let second = 1_795_600_800 * SECOND_NS;
    for (line, ms, client, method, target, status, bytes) in [
        (envoy, 125, "10.0.0.1", "GET", "/e?x=1", 200, 34),
        (traefik, 500, "10.0.0.2", "HEAD", "/t", 404, 5),
        (caddy, 250, "10.0.0.3", "POST", "/c", 201, 7),
        (google, 750, "10.0.0.4", "GET", "/g?y", 200, 900),
    ] {
        let parsed = parse_json(line).unwrap();
        assert_eq!(parsed.at_unix_ns, second + ms * 1_000_000, "{line}");
        assert_eq!((&*parsed.client, &*parsed.method, &*parsed.target), (client, method, target), "{line}");
        assert_eq!((parsed.status, parsed.bytes), (Some(status), Some(bytes)), "{line}");
    }
}

fn at(ns: i128, has_fraction: bool, client: &str, target: &str) -> LogLine {
    LogLine {
        at_unix_ns: ns,
        has_fraction,
        client: client.to_owned(),
        method: "GET".to_owned(),
        target: target.to_owned(),
        status: None,
        bytes: None,
    }
}

#[test]
fn requests_of_one_logged_second_are_spread_over_it_and_clients_stay_separate() {
    let mut reader = Reader::default();
    for (second, client, target) in [(7, "b", "/2"), (5, "a", "/1"), (5, "b", "/1"), (5, "c", "/3"), (5, "a", "/2")] {
        reader.add(at(second * SECOND_NS, false, client, target));
    }
    let replay = reader.finish(ReplaySpec { time_scale: 0.5, clients_max: 2 });
    let offsets: Vec<u128> = replay.arrivals.iter().map(|arrival| u128::from(arrival.offset_ns) / 1_000_000).collect();
    assert_eq!(offsets, [0, 125, 250, 375, 1000]);
    // Clients are numbered in order of appearance in the log: b, a, c. With a maximum of two, c shares the number of b.
    assert_eq!(replay.arrivals.iter().map(|arrival| arrival.client).collect::<Vec<_>>(), [1, 0, 0, 1, 0]);
    assert_eq!((replay.clients, replay.clients_logged, replay.length.as_millis()), (2, 3, 1500));
    let targets: Vec<&str> =
        replay.arrivals.iter().map(|arrival| replay.requests[arrival.request as usize].target.as_str()).collect();
    assert_eq!(targets, ["/1", "/1", "/3", "/2", "/2"]);
    assert_eq!(replay.requests.iter().map(|request| request.times).collect::<Vec<_>>(), [2, 2, 1]);
}

#[test]
fn subsecond_log_times_are_replayed_unchanged() {
    let mut reader = Reader::default();
    for ns in [3, 1_000_000_001, 1_000_000_001, 5_000_000_000] {
        reader.add(at(ns, true, "a", "/"));
    }
    assert_eq!(reader.len(), 4);
    let replay = reader.finish(UNSCALED);
    let offsets: Vec<u128> = replay.arrivals.iter().map(|arrival| u128::from(arrival.offset_ns)).collect();
    assert_eq!(offsets, [0, 999_999_998, 999_999_998, 4_999_999_997]);
    assert_eq!(replay.length.as_nanos(), 4_999_999_997 + 1_666_666_665);
    assert_eq!(Reader::default().finish(UNSCALED), Replay::default());
}

/// Some servers omit a zero fraction in RFC 3339 times.
#[test]
fn a_whole_second_in_a_subsecond_log_is_exact() {
    let mut reader = Reader::default();
    for (ns, has_fraction) in [(0, true), (SECOND_NS, false), (SECOND_NS, false), (SECOND_NS + 1_000_000, true)] {
        reader.add(at(ns, has_fraction, "a", "/"));
    }
    let replay = reader.finish(UNSCALED);
    let offsets: Vec<u128> = replay.arrivals.iter().map(|arrival| u128::from(arrival.offset_ns) / 1_000_000).collect();
    assert_eq!((offsets, replay.length.as_millis()), (vec![0, 1000, 1000, 1001], 1334));
}

#[test]
fn a_logged_target_cannot_inject_a_second_request() {
    for target in [r"/a\r\nX: y", r"/a b", r"/a\u007f", "http://h?x=/y"] {
        let line = format!(r#"{{"time":1,"client":"a","path":"{target}"}}"#);
        assert_eq!(parse_json(&line), Err(LineError::NoPath), "{target}");
    }
}

proptest! {
    /// Both parsers accept arbitrary text without a panic.
    #[test]
    fn log_parsing_never_panics_on_any_line(line in "\\PC*") {
        let _ = (parse_combined(&line), parse_json(&line));
    }

    /// Every line is replayed once, in order of time, and within its own second if the log has whole seconds.
    #[test]
    fn every_log_line_is_replayed_within_its_second(
        lines in prop::collection::vec((0i128..50, any::<bool>(), 0u8..5, 0u8..9), 1..100),
    ) {
        let mut reader = Reader::default();
        let mut seconds: Vec<i128> = lines.iter().map(|line| line.0).collect();
        for &(second, has_fraction, client, target) in &lines {
            reader.add(at(second * SECOND_NS, has_fraction, &client.to_string(), &format!("/{target}")));
        }
        let replay = reader.finish(UNSCALED);
        seconds.sort_unstable();
        prop_assert_eq!(replay.arrivals.len(), lines.len());
        prop_assert!(replay.arrivals.is_sorted_by_key(|arrival| arrival.offset_ns));
        for (arrival, second) in replay.arrivals.iter().zip(&seconds) {
            let offset = i128::from(arrival.offset_ns) + seconds[0] * SECOND_NS;
            prop_assert!((second * SECOND_NS..(second + 1) * SECOND_NS).contains(&offset));
        }
    }
}
