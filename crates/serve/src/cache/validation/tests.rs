use super::super::testing::{cache_request, date, directives, get, head, received};
use super::*;

fn stored(more: &str) -> Head {
    head(200, &format!("Date: {}\r\nCache-Control: max-age=60\r\n{more}", date(0))).unwrap()
}

fn portion_of(more: &str, request: &str) -> Portion {
    portion(&cache_request(&get("/", request)), &stored(more), Some(100))
}

#[test]
fn conditional_requests_get_304_when_the_client_has_the_response() {
    let tagged = "ETag: \"a,b\"\r\n";
    for matching in ["\"a,b\"", "W/\"a,b\"", "*", "\"x\", W/\"y\" , \"a,b\"", ",, \"a,b\""] {
        assert_eq!(portion_of(tagged, &format!("If-None-Match: {matching}\r\n")), Portion::NotModified, "{matching}");
    }
    for other in ["\"a\"", "a,b", "\"x\" \"a\"", "\"a,b", ""] {
        assert_eq!(portion_of(tagged, &format!("If-None-Match: {other}\r\n")), Portion::Whole, "{other}");
    }
    assert_eq!(portion_of(tagged, "If-None-Match: \"x\"\r\nIf-None-Match: \"a,b\"\r\n"), Portion::NotModified);
    let changed = format!("Last-Modified: {}\r\n", date(-10));
    let since = |offset| format!("If-Modified-Since: {}\r\n", date(offset));
    assert_eq!(portion_of(&changed, &since(-10)), Portion::NotModified);
    assert_eq!(portion_of(&changed, &since(-11)), Portion::Whole);
    assert_eq!(portion_of(&changed, "If-Modified-Since: yesterday\r\n"), Portion::Whole);
    // A tag that does not match overrides a date that does (RFC 9110, section 13.1.3).
    assert_eq!(portion_of(&changed, &format!("If-None-Match: \"x\"\r\n{}", since(-10))), Portion::Whole);
    // Only for responses with status 200.
    let gone = head(404, &format!("Date: {}\r\nCache-Control: max-age=60\r\n{tagged}", date(0))).unwrap();
    assert_eq!(portion(&cache_request(&get("/", "If-None-Match: *\r\n")), &gone, Some(100)), Portion::Whole);
}

#[test]
fn single_ranges_of_stored_bodies_are_served() {
    let part = |range: &str| portion_of("", &format!("Range: {range}\r\n"));
    assert_eq!(part("bytes=0-0"), Portion::Part(0..1));
    assert_eq!(part("bytes=90-"), Portion::Part(90..100));
    assert_eq!(part("bytes=-10"), Portion::Part(90..100));
    assert_eq!(part("bytes=-1000"), Portion::Part(0..100));
    assert_eq!(part("BYTES= 50-99999999999999999999999"), Portion::Part(50..100));
    for unsatisfiable in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
        assert_eq!(part(unsatisfiable), Portion::Unsatisfiable, "{unsatisfiable}");
    }
    for whole in ["bytes=5-4", "bytes=0-1,3-4", "lines=0-1", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=+1-2"] {
        assert_eq!(part(whole), Portion::Whole, "{whole}");
    }
    let head_only = "HEAD / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\n\r\n";
    assert_eq!(portion(&cache_request(head_only), &stored(""), Some(100)), Portion::Whole);
}

#[test]
fn if_range_serves_a_range_of_the_same_response_or_the_complete_one() {
    let of = |more: &str, if_range: &str| portion_of(more, &format!("Range: bytes=0-9\r\nIf-Range: {if_range}\r\n"));
    assert_eq!(of("ETag: \"a\"\r\n", "\"a\""), Portion::Part(0..10));
    assert_eq!(of("ETag: \"a\"\r\n", "\"b\""), Portion::Whole);
    // Weak tags do not promise identical bytes.
    assert_eq!(of("ETag: W/\"a\"\r\n", "W/\"a\""), Portion::Whole);
    assert_eq!(of("ETag: W/\"a\"\r\n", "\"a\""), Portion::Whole);
    assert_eq!(of(&format!("Last-Modified: {}\r\n", date(-9)), &date(-9)), Portion::Part(0..10));
    assert_eq!(of(&format!("Last-Modified: {}\r\n", date(-9)), &date(-8)), Portion::Whole);
    // Changed within the second in which it was sent.
    assert_eq!(of(&format!("Last-Modified: {}\r\n", date(0)), &date(0)), Portion::Whole);
}

#[test]
fn a_304_updates_the_stored_fields() {
    let old =
        stored("ETag: \"a\"\r\nContent-Type: text/plain\r\nX-Old: 1\r\nX-Same: 1\r\nx-twice: 1\r\nX-Twice: 2\r\n");
    let spec = CacheSpec::default();
    let request = get("/", "");
    let directives = directives(&request, &spec);
    let fields_304 = format!(
        "Date: {}\r\nCache-Control: max-age=99\r\nETag: \"a\"\r\nContent-Type: x/y\r\nX-Old: 2\r\nX-TWICE: 3\r\n",
        date(5)
    );
    let Freshened::StillValid(new) = freshened(&old, &directives, fields_304.as_bytes(), received(5000), &spec) else {
        panic!()
    };
    let fields = String::from_utf8(new.fields.to_vec()).unwrap();
    let mut lines: Vec<&str> = fields.lines().collect();
    lines.sort_unstable();
    let date = format!("Date: {}", date(5));
    let mut expected = [
        "Cache-Control: max-age=99",
        "Content-Type: text/plain",
        &date,
        "ETag: \"a\"",
        "X-Old: 2",
        "X-Same: 1",
        "X-TWICE: 3",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert_eq!(new.terms.lifetime.as_secs(), 99);
    assert_eq!(new.received.at, received(5000).at);

    let forbids = freshened(&old, &directives, b"Cache-Control: no-store\r\n", received(5000), &spec);
    assert!(matches!(forbids, Freshened::Once(_)), "{forbids:?}");
    let other = freshened(&old, &directives, b"ETag: \"b\"\r\n", received(5000), &spec);
    assert!(matches!(other, Freshened::Other), "{other:?}");
    let weak = freshened(&old, &directives, b"ETag: W/\"a\"\r\n", received(5000), &spec);
    assert!(matches!(weak, Freshened::StillValid(_)), "{weak:?}");
}

#[test]
fn a_304_with_another_date_does_not_match_the_stored_response() {
    let (spec, request) = (CacheSpec::default(), get("/", ""));
    let directives = directives(&request, &spec);
    let own = format!("Last-Modified: {}\r\nCache-Control: max-age=1\r\n", date(-9));
    let freshened = |old: &str, fields_304: &str| {
        freshened(&stored(old), &directives, fields_304.as_bytes(), received(5000), &spec)
    };
    assert!(matches!(freshened(&own, &own), Freshened::StillValid(_)));
    assert!(matches!(freshened(&own, "Cache-Control: max-age=1\r\n"), Freshened::StillValid(_)));
    // An older file replaced it; it is not modified since the newer file's date either.
    let older = format!("Last-Modified: {}\r\nCache-Control: max-age=1\r\n", date(-99));
    assert!(matches!(freshened(&own, &older), Freshened::Other));
    assert!(matches!(freshened(&own, &format!("ETag: \"a\"\r\n{own}")), Freshened::Other));
    // The tag takes precedence over the date.
    let tagged = format!("ETag: \"a\"\r\n{own}");
    assert!(matches!(freshened(&tagged, &format!("ETag: \"a\"\r\n{older}")), Freshened::StillValid(_)));
}

#[test]
fn revalidation_sends_the_stored_validators() {
    let both = stored(&format!("ETag: W/\"a\"\r\nLast-Modified: {}\r\n", date(-9)));
    let expected = vec![("If-None-Match", b"W/\"a\"".to_vec()), ("If-Modified-Since", date(-9).into_bytes())];
    assert_eq!(conditions(&both), expected);
    assert_eq!(conditions(&stored("ETag: a\r\n")), []);
}
