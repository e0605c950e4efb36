//! The cases of `rfc.txt`, with raw bytes.

use super::table::{Case, cases, create_files};
use super::*;

fn run(case: &Case, server: &Running) {
    let mut client = server.connect();
    client.send(&case.request);
    if case.expected == ["smuggled nothing"] {
        // Whatever the first response is: no further response follows, and the connection closes.
        let _ = client.stream.write_all(b"GET /note HTTP/1.1\r\nHost: server\r\n\r\n");
        let mut all = Vec::new();
        let _ = client.stream.read_to_end(&mut all);
        assert!(!all.windows(6).any(|window| window == b"a note"), "{case}");
        return;
    }
    let status = case.status();
    let has_content = !(case.request.starts_with(b"HEAD ") || matches!(status, 204 | 304));
    let response = client.response(has_content);
    assert!(response.status().starts_with(&format!("{status} ")), "{case}\n{}", response.head);
    for expected in &case.expected[1..] {
        case.check(expected, |name| response.field(name), &response.body);
    }
    let names: Vec<&str> = response.head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    for name in &names {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{case}\n{name} twice");
    }
    assert!(names.contains(&"Date") && names.contains(&"Server"), "{case}");
    match case.expected.last().unwrap().as_str() {
        // If the response was longer than announced, the next one begins with the rest of it.
        "kept" => {
            assert_ne!(response.field("Connection"), Some("close"), "{case}");
            assert_eq!(client.get("/note").body, b"a note\n", "{case}");
        }
        "closed" => {
            assert_eq!(response.field("Connection"), Some("close"), "{case}");
            assert!(client.rest().is_empty(), "{case}");
        }
        _ => {}
    }
}

#[test]
fn every_case_of_the_rfc_table_holds() {
    let server = Running::start();
    create_files(server.root());
    let etag = server.connect().get("/digits.txt").field("ETag").unwrap().to_owned();
    let cases = cases(&etag);
    assert!(cases.len() > 100);
    for case in &cases {
        run(case, &server);
    }
}
