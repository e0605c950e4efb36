//! Tests of cookie jars: the rules of RFC 6265, and hostile Set-Cookie lines.

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_nanos(5_000_000_000);

fn at(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

fn target(url: &str) -> Target {
    Target::parse(url).unwrap()
}

fn set(jar: &mut Jar, url: &str, lines: &[&str]) {
    let head: String = lines.iter().map(|line| format!("Set-Cookie: {line}\r\n")).collect();
    let target = target(url);
    let head = format!("HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n{head}\r\n");
    jar.take_in(head.as_bytes(), &target, target.path_and_query.as_bytes(), NOW);
}

fn sent_at(jar: &Jar, url: &str, now: Timestamp) -> String {
    let target = target(url);
    let header = jar.header(&target, target.path_and_query.as_bytes(), now).unwrap_or_default();
    String::from_utf8(header).unwrap()
}

fn sent(jar: &Jar, url: &str) -> String {
    sent_at(jar, url, NOW)
}

/// The Cookie header of a request for `requested`, after a response of `url` with one Set-Cookie line.
fn after(url: &str, line: &str, requested: &str) -> String {
    let mut jar = Jar::default();
    set(&mut jar, url, &[line]);
    sent(&jar, requested)
}

#[test]
fn cookies_are_returned_to_their_host() {
    assert_eq!(after("http://a.example/", "id = 7 ; HttpOnly; SameSite=Lax", "http://A.example/x?y"), "id=7");
    assert_eq!(after("http://a.example/", "id=7", "http://b.a.example/"), "", "host-only");
    assert_eq!(after("http://a.example/", "id=7", "http://a.example:81/"), "id=7", "cookies do not depend on the port");
    assert_eq!(after("http://a.example/", "id=", "http://a.example/"), "id=");
    assert_eq!(after("http://a.example/", "id=a=b\"c\"", "http://a.example/"), "id=a=b\"c\"");
    for nothing in ["", "id", "=7", ";id=7", "id=a\u{1}b"] {
        assert_eq!(after("http://a.example/", nothing, "http://a.example/"), "", "{nothing}");
    }
}

#[test]
fn cookie_domains_match_as_in_rfc_6265() {
    let under = |line: &str, requested: &str| after("http://www.a.example/", line, requested);
    for domain in ["a.example", ".a.example", ".A.Example"] {
        for requested in ["http://a.example/", "http://www.a.example/", "http://x.y.a.example/"] {
            assert_eq!(under(&format!("i=1; Domain={domain}"), requested), "i=1", "{domain} {requested}");
        }
        assert_eq!(under(&format!("i=1; domain={domain}"), "http://ba.example/"), "", "only whole labels match");
    }
    for refused in ["b.example", "x.www.a.example", "example", "ww.a.example", "\u{5c71}"] {
        assert_eq!(under(&format!("i=1; Domain={refused}"), "http://www.a.example/"), "", "{refused}");
    }
    assert_eq!(under("i=1; Domain=", "http://www.a.example/"), "i=1");
    assert_eq!(after("http://server/", "i=1; Domain=server", "http://server/"), "i=1");
    assert_eq!(after("http://192.0.2.1/", "i=1; Domain=192.0.2.1", "http://192.0.2.1/"), "i=1");
    assert_eq!(
        after("http://192.0.2.1/", "i=1; Domain=2.1", "http://192.0.2.1/"),
        "",
        "IP addresses have no parent domains"
    );
    assert_eq!(after("http://[2001:2::1]/", "i=1", "http://[2001:2::1]/"), "i=1");
}

#[test]
fn cookie_paths_match_as_in_rfc_6265() {
    let under = |line: &str, requested: &str| after("http://a/shop/cart/add?x=/y/", line, requested);
    assert_eq!(under("i=1", "http://a/shop/cart"), "i=1", "the directory of the request's path");
    assert_eq!(under("i=1", "http://a/shop/cart/x/y?z"), "i=1");
    assert_eq!(under("i=1", "http://a/shop/cartoon"), "");
    assert_eq!(under("i=1; Path=/", "http://a/"), "i=1");
    assert_eq!(under("i=1; Path=/other", "http://a/other/x"), "i=1");
    assert_eq!(under("i=1; Path=other", "http://a/shop/cart/x"), "i=1", "an invalid path is ignored");
    assert_eq!(after("http://a/x", "i=1", "http://a/"), "i=1");
    let mut jar = Jar::default();
    set(&mut jar, "http://a/", &["a=1; Path=/", "b=2; Path=/x", "c=3; Path=/x/y", "d=4; Path=/x"]);
    assert_eq!(sent(&jar, "http://a/x/y"), "c=3; b=2; d=4; a=1", "longer paths first, then first set");
}

#[test]
fn secure_cookies_are_sent_only_over_tls() {
    let line = "i=1; secure";
    assert_eq!(after("https://a/", line, "https://a/"), "i=1");
    assert_eq!(after("https://a/", line, "http://a/"), "");
}

#[test]
fn cookies_expire_by_max_age_and_date() {
    // The server's Date is 1994-11-06 08:49:37.
    for (attributes, lasts) in [
        ("Max-Age=60", 60),
        ("Expires=Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Expires=Sun, 06 Nov 1994 08:50:37 GMT; Max-Age=30", 30),
        ("Max-Age=30; Expires=Sun, 06 Nov 1994 08:50:37 GMT", 30),
        ("Max-Age=99999999999999999999", 400 * 86_400),
        ("Expires=Fri, 31 Dec 9999 23:59:59 GMT", 400 * 86_400),
    ] {
        let mut jar = Jar::default();
        set(&mut jar, "http://a/", &[&format!("i=1; {attributes}")]);
        let just_before = Timestamp::from_nanos(at(lasts).as_nanos() - 1);
        assert_eq!(sent_at(&jar, "http://a/", just_before), "i=1", "{attributes}");
        assert_eq!(sent_at(&jar, "http://a/", at(lasts)), "", "{attributes}");
    }
    for over in
        ["Max-Age=0", "Max-Age=-1", "Expires=Sun, 06 Nov 1994 08:49:37 GMT", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"]
    {
        let mut jar = Jar::default();
        set(&mut jar, "http://a/", &["i=1", "j=2"]);
        set(&mut jar, "http://a/", &[&format!("i=; {over}")]);
        assert_eq!((sent(&jar, "http://a/").as_str(), jar.len()), ("j=2", 1), "{over}");
    }
    for unreadable in ["Max-Age=soon", "Max-Age=", "Expires=tomorrow", "Expires"] {
        let mut jar = Jar::default();
        set(&mut jar, "http://a/", &[&format!("i=1; {unreadable}")]);
        assert_eq!(sent_at(&jar, "http://a/", at(1 << 30)), "i=1", "{unreadable}");
    }
}

#[test]
fn without_a_wall_clock_only_long_past_dates_expire_cookies() {
    let mut jar = Jar::default();
    let (a, head) = (target("http://a/"), |line: &str| format!("HTTP/1.1 200 OK\r\nSet-Cookie: {line}\r\n\r\n"));
    jar.take_in(head("i=1; Expires=Wed, 01 Jan 2020 00:00:00 GMT").as_bytes(), &a, b"/", NOW);
    jar.take_in(head("j=1; Expires=Tue, 31 Dec 2019 23:59:59 GMT").as_bytes(), &a, b"/", NOW);
    assert_eq!(sent_at(&jar, "http://a/", at(1 << 30)), "i=1");
}

#[test]
fn a_cookie_with_the_same_name_domain_and_path_is_replaced() {
    let mut jar = Jar::default();
    set(&mut jar, "http://b.a/", &["i=1", "j=1", "i=2", "i=3; Path=/x", "i=4; Domain=b.a"]);
    assert_eq!(sent(&jar, "http://b.a/"), "i=4; j=1", "a replaced cookie keeps its position");
    assert_eq!((sent(&jar, "http://b.a/x"), jar.len()), ("i=3; i=4; j=1".into(), 3));
}

#[test]
fn cookie_jars_are_bounded() {
    let mut jar = Jar::default();
    for number in 0..COOKIES_MAX + 10 {
        set(&mut jar, "http://a/", &[&format!("c{number}=1")]);
    }
    assert_eq!(jar.len(), COOKIES_MAX);
    assert!(sent(&jar, "http://a/").starts_with("c10=1; "), "the oldest cookies are removed");
    let mut jar = Jar::default();
    set(&mut jar, "http://a/", &["gone=1; Max-Age=1"]);
    let long = "v".repeat(COOKIE_BYTES_MAX - 1);
    let (first, second) = (format!("a={long}"), format!("b={long}v"));
    set(&mut jar, "http://a/", &[&first, &second]);
    assert_eq!(
        (jar.len(), sent(&jar, "http://a/").contains("b=")),
        (2, false),
        "a cookie that is one byte too long is ignored"
    );
    for name in ["c", "d", "e", "f"] {
        set(&mut jar, "http://a/", &[&format!("{name}={}", &long[1..])]);
    }
    assert!(sent(&jar, "http://a/").len() <= JAR_BYTES_MAX + 2 * jar.len());
    assert_eq!(jar.len(), 4, "the oldest cookies are removed");
}

#[test]
fn every_client_has_its_own_cookie_jar() {
    let mut jars = Jars::default();
    let a = target("http://a/");
    let take = |jars: &mut Jars, client, line: &str| {
        jars.take_in(client, format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n").as_bytes(), &a, b"/", NOW);
    };
    take(&mut jars, 1, "Content-Length: 0");
    take(&mut jars, 2, "Set-Cookie: broken");
    assert!(jars.is_empty(), "no jar before the first cookie");
    take(&mut jars, 3, "set-cookie: i=3");
    take(&mut jars, 4, "SET-COOKIE: i=4");
    assert_eq!(jars.len(), 2);
    assert_eq!(jars.header(3, &a, b"/", NOW), Some(b"i=3".to_vec()));
    assert_eq!((jars.header(4, &a, b"/", NOW), jars.header(1, &a, b"/", NOW)), (Some(b"i=4".to_vec()), None));
    take(&mut jars, 3, "Set-Cookie: i=; Max-Age=0");
    assert_eq!(jars.len(), 1, "an empty jar is removed");
}

proptest! {
    /// For any Set-Cookie lines, the limits hold and the Cookie header is one line.
    #[test]
    fn cookie_parsing_never_panics_on_any_header(
        lines in prop::collection::vec(
            "(a|b|=|;| |Path=/|Domain=|a\\.example|Max-Age=|[0-9]|Expires=|.){0,20}",
            0..20,
        ),
    ) {
        let mut jar = Jar::default();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        set(&mut jar, "http://www.a.example/x/y", &lines);
        prop_assert!(jar.len() <= lines.len());
        let back = sent(&jar, "http://www.a.example/x/y");
        prop_assert!(!back.contains(['\r', '\n', '\0']));
        prop_assert_eq!(back.is_empty(), jar.header(&target("http://www.a.example/x/y"), b"/x/y", NOW).is_none());
    }
}
