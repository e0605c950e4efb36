//! Tests with archives of browsers, hand-written archives, and hostile ones.

use proptest::prelude::*;

use super::*;

fn target() -> Target {
    Target::parse("http://server:8080/").unwrap()
}

/// An archive as exported by Chromium's developer tools: HTTP/2, a cached object, another host's object, a form, a data
/// URL.
const CHROMIUM: &str = r##"{
  "log": {
    "version": "1.2",
    "creator": {"name": "WebInspector", "version": "537.36"},
    "pages": [{"startedDateTime": "2026-11-21T09:00:00.100Z", "id": "page_1", "title": "https://shop.example/",
               "pageTimings": {"onContentLoad": 210.5, "onLoad": 402.1}}],
    "entries": [
      {"_connectionId": "55", "_initiator": {"type": "other"}, "_priority": "VeryHigh", "_resourceType": "document",
       "cache": {}, "pageref": "page_1", "startedDateTime": "2026-11-21T09:00:00.100Z", "time": 48.2,
       "request": {"method": "GET", "url": "https://shop.example/?q=a#top", "httpVersion": "http/2.0",
         "headers": [{"name": ":authority", "value": "shop.example"}, {"name": ":method", "value": "GET"},
                     {"name": "accept", "value": "text/html"}, {"name": "cookie", "value": "id=secret"},
                     {"name": "accept-encoding", "value": "gzip, br"}],
         "queryString": [{"name": "q", "value": "a"}], "cookies": [], "headersSize": -1, "bodySize": 0},
       "response": {"status": 200, "statusText": "", "httpVersion": "http/2.0", "headers": [], "cookies": [],
         "content": {"size": 1256, "mimeType": "text/html"}, "redirectURL": "", "headersSize": -1, "bodySize": -1,
         "_transferSize": 1400, "_error": null},
       "serverIPAddress": "192.0.2.7", "timings": {"blocked": 1.2, "dns": -1, "ssl": -1, "connect": -1, "send": 0.1,
         "wait": 40.1, "receive": 6.8, "_blocked_queueing": 0.8}},
      {"startedDateTime": "2026-11-21T09:00:00.160Z", "_fromCache": "disk",
       "request": {"method": "GET", "url": "https://shop.example/logo.png", "headers": []}, "response": {"status": 200}},
      {"startedDateTime": "2026-11-21T09:00:00.155Z",
       "request": {"method": "GET", "url": "https://shop.example/a.css", "headers": []}, "response": {"status": 200}},
      {"startedDateTime": "2026-11-21T09:00:00.170Z",
       "request": {"method": "GET", "url": "https://cdn.example/x.js", "headers": []}, "response": {"status": 200}},
      {"startedDateTime": "2026-11-21T09:00:00.171Z",
       "request": {"method": "GET", "url": "data:image/png;base64,AA==", "headers": []}, "response": {"status": 200}},
      {"startedDateTime": "2026-11-21T10:00:03.1+01:00",
       "request": {"method": "POST", "url": "https://shop.example/cart", "headers": [
           {"name": "content-type", "value": "application/x-www-form-urlencoded"}, {"name": "content-length", "value": "9"}],
         "postData": {"mimeType": "application/x-www-form-urlencoded", "text": "item=1&n=2",
           "params": [{"name": "item", "value": "1"}]}},
       "response": {"status": 303}}
    ]
  }
}"##;

#[test]
fn a_chromium_har_becomes_a_session() {
    let recorded = read(CHROMIUM.as_bytes(), &target()).unwrap();
    let at: Vec<(u32, u128)> = recorded
        .session
        .steps
        .iter()
        .map(|step| match step.when {
            When::At(offset) => (step.request, offset.as_millis()),
            When::After(_) => panic!("recorded steps have fixed times"),
        })
        .collect();
    assert_eq!(at, [(0, 0), (1, 55), (2, 3000)]);
    let urls: Vec<&str> = recorded.requests.iter().map(RequestSpec::label).collect();
    assert_eq!(urls, ["http://server:8080/?q=a", "http://server:8080/a.css", "POST http://server:8080/cart"]);
    let names: Vec<&str> = recorded.requests[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["accept", "accept-encoding"]);
    assert_eq!(recorded.requests[2].body, Template::literal("item=1&n=2"));
    assert_eq!(recorded.requests[2].headers.len(), 1);
    let left_out: Vec<(&str, u64)> = recorded.left_out.iter().map(|(why, n)| (why.as_str(), *n)).collect();
    assert_eq!(left_out, [("from the browser's cache", 1), ("not http", 1), ("of another host", 1)]);
    assert_eq!((recorded.entries, recorded.host.as_str()), (6, "shop.example"));
}

fn archive(entries: &[String]) -> String {
    format!(r#"{{"log":{{"entries":[{}]}}}}"#, entries.join(","))
}

fn entry(at: &str, method: &str, url: &str, more: &str) -> String {
    format!(r#"{{"startedDateTime":"{at}","request":{{"method":"{method}","url":"{url}"{more}}}}}"#)
}

const AT: &str = "2026-11-21T09:00:00Z";

#[test]
fn har_entries_in_any_order_with_repeats_become_a_session() {
    let text = archive(&[
        entry("2026-11-21T09:00:02Z", "GET", "http://h/b", ""),
        entry(AT, "GET", "http://H/a", ""),
        entry("2026-11-21T09:00:05Z", "GET", "http://h/a", ""),
        entry("2026-11-21T09:00:06Z", "GET", "http://server:8080/c", ""),
    ]);
    let recorded = read(text.as_bytes(), &target()).unwrap();
    let requests: Vec<u32> = recorded.session.steps.iter().map(|step| step.request).collect();
    assert_eq!((requests, recorded.requests.len()), (vec![0, 1, 0, 2], 3));
    assert!(recorded.left_out.is_empty());
}

#[test]
fn har_bodies_in_every_form_are_sent() {
    let body_of = |post: &str| {
        let text = archive(&[entry(AT, "PUT", "http://h/", &format!(r#","postData":{post}"#))]);
        let mut body = Vec::new();
        let recorded = read(text.as_bytes(), &target()).unwrap();
        let values = crate::workload::Values { client: 0, sequence: 0, session: None, variables: &[], seed: 0 };
        recorded.requests[0].body.render(&values, &mut body);
        body
    };
    assert_eq!(body_of(r#"{"text":"AP8=","encoding":"base64"}"#), [0, 255]);
    assert_eq!(body_of(r#"{"params":[{"name":"a b","value":"ü&"},{"name":"c"}]}"#), b"a+b=%C3%BC%26&c=");
    assert_eq!(body_of(r#"{"text":7}"#), b"");
    assert_eq!(body_of("null"), b"");
    assert_eq!(body_of(r#"{"text":"{client}"}"#), b"{client}", "a recorded brace is not a valid placeholder");
}

#[test]
fn har_entries_without_a_response_are_left_out_and_parameters_are_sent_as_a_form() {
    let with = |status: i64, path: &str, more: &str| {
        let whole = entry(AT, "POST", &format!("http://h{path}"), more);
        format!(r#"{},"response":{{"status":{status}}}}}"#, &whole[..whole.len() - 1])
    };
    let multipart = r#","headers":[{"name":"Content-Type","value":"multipart/form-data; boundary=XX"}],"postData":{
        "mimeType":"multipart/form-data; boundary=XX","params":[{"name":"f","fileName":"a.txt","value":"hi"}]}"#;
    let text = archive(&[with(200, "/a", multipart), with(0, "/blocked", ""), with(-1, "/b", "")]);
    let recorded = read(text.as_bytes(), &target()).unwrap();
    assert_eq!((recorded.session.steps.len(), recorded.left_out["without a response (status 0)"]), (2, 1));
    let request = &recorded.requests[0];
    assert_eq!(request.headers.len(), 1);
    assert_eq!(request.headers[0].1, Template::literal("multipart/form-data; boundary=XX"));
    assert!(request.body.literal_length().unwrap() > 100);
}

#[test]
fn invalid_har_files_are_rejected_and_invalid_entries_are_left_out() {
    for (text, why) in [
        ("", "not valid JSON"),
        ("[]", "no log.entries"),
        (r#"{"log":{"entries":{}}}"#, "no log.entries"),
        (r#"{"log":{"entries":[]}}"#, "none of its 0"),
        (r#"{"log":{"entries":[1,null,{"request":7}]}}"#, "none of its 3"),
    ] {
        let error = read(text.as_bytes(), &target()).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(read("[".repeat(100_000).as_bytes(), &target()).is_err());
    let invalid = [
        entry(
            AT,
            "GET",
            "http://h/ok",
            r#","headers":[{"name":"X\r\nY","value":"1"},{"name":"A","value":"b\r\nC: d"},{}]"#,
        ),
        entry(AT, "GET", "http://h/a b", ""),
        entry(AT, "GET", "http://h/a\\r\\nX: y", ""),
        entry(AT, "GET", "http://u:p@h/", ""),
        entry(AT, "BREW", "http://h/", ""),
        entry("yesterday", "GET", "http://h/", ""),
        entry(AT, "GET", "wss://h/", ""),
    ];
    let invalid = invalid.map(|entry| entry.replace("\r\n", "\\r\\n"));
    let recorded = read(archive(&invalid).as_bytes(), &target()).unwrap();
    assert_eq!((recorded.session.steps.len(), recorded.requests[0].headers.len()), (1, 0));
    assert_eq!(recorded.left_out.values().sum::<u64>(), 6, "{:?}", recorded.left_out);
}

proptest! {
    #[test]
    fn parsing_never_panics_on_any_archive(text in "\\PC*", inner in "[\\[\\]{}\":,a-z0-9]*") {
        let _ = read(text.as_bytes(), &target());
        let _ = read(format!(r#"{{"log":{{"entries":[{inner}]}}}}"#).as_bytes(), &target());
    }
}
