use super::super::testing::{at_ms, date, directives, get, head, head_for, received};
use super::*;

/// A plain response at time zero with these additional fields.
fn response(more: &str) -> String {
    format!("Date: {}\r\n{more}", date(0))
}

fn lifetime_s(fields: &str) -> Result<u64, Reason> {
    head(200, &response(fields)).map(|head| head.terms.lifetime.as_secs())
}

fn use_of(fields: &str, request_fields: &str, ms: u64) -> Usable {
    let head = head(200, &response(fields)).unwrap();
    usable(&head, &directives(&get("/", request_fields), &CacheSpec::default()), at_ms(ms))
}

#[test]
fn s_maxage_max_age_and_expires_apply_in_this_order() {
    assert_eq!(lifetime_s("Cache-Control: max-age=60\r\n"), Ok(60));
    assert_eq!(lifetime_s("Cache-Control: max-age=60, s-maxage=5\r\n"), Ok(5));
    assert_eq!(lifetime_s(&format!("Expires: {}\r\n", date(30))), Ok(30));
    assert_eq!(lifetime_s(&format!("Cache-Control: max-age=7\r\nExpires: {}\r\n", date(30))), Ok(7));
    assert_eq!(lifetime_s(&format!("Expires: {}\r\nExpires: {}\r\n", date(30), date(20))), Ok(20));
    // Expired on arrival, and without a validator.
    for expired in
        [format!("Expires: {}\r\n", date(0)), "Expires: 0\r\n".to_owned(), format!("Expires: {}\r\n", date(-9))]
    {
        assert_eq!(lifetime_s(&expired), Err(Reason::NoLifetime), "{expired}");
        assert_eq!(lifetime_s(&format!("{expired}ETag: \"a\"\r\n")), Ok(0), "{expired}");
    }
    assert_eq!(lifetime_s(&format!("Expires: {}\r\nExpires: soon\r\nETag: \"a\"\r\n", date(30))), Ok(0));
    // Without a lifetime nothing is stored, whatever the validators.
    assert_eq!(lifetime_s("ETag: \"a\"\r\n"), Err(Reason::NoLifetime));
    assert_eq!(lifetime_s("Cache-Control: public, max-age=junk\r\nETag: \"a\"\r\n"), Ok(0));
}

#[test]
fn heuristic_lifetimes_need_the_option() {
    let fields = response(&format!("Last-Modified: {}\r\n", date(-1000)));
    assert_eq!(head(200, &fields).map(|_| ()), Err(Reason::NoLifetime));
    let spec = |longest_s| CacheSpec { heuristic_max: Some(Duration::from_secs(longest_s)), ..CacheSpec::default() };
    let lifetime = |status, longest_s| {
        let head = head_for(&get("/", ""), status, &fields, received(0), &spec(longest_s));
        head.map(|head| head.terms.lifetime.as_secs())
    };
    assert_eq!((lifetime(200, 3600), lifetime(200, 60), lifetime(404, 3600)), (Ok(100), Ok(60), Ok(100)));
    // A status that is not cacheable by default.
    assert_eq!(lifetime(302, 3600), Err(Reason::NoLifetime));
}

#[test]
fn uncacheable_responses_have_a_reason() {
    let why = |status, fields: &str| head(status, &response(fields)).map(|_| ());
    let lasting = "Cache-Control: max-age=60\r\n";
    assert_eq!(why(200, lasting), Ok(()));
    assert_eq!(why(503, lasting), Ok(()));
    assert_eq!(why(206, lasting), Err(Reason::Status));
    assert_eq!(why(304, lasting), Err(Reason::Status));
    assert_eq!(why(200, "Cache-Control: max-age=60, no-store\r\n"), Err(Reason::OriginForbids));
    assert_eq!(why(200, "Cache-Control: max-age=60, no-store, must-understand\r\n"), Ok(()));
    assert_eq!(why(418, "Cache-Control: max-age=60, must-understand\r\n"), Err(Reason::Status));
    assert_eq!(why(200, "Cache-Control: max-age=60\r\nCache-Control: private\r\n"), Err(Reason::Private));
    assert_eq!(why(200, "Cache-Control: max-age=60, private=\"x-a\"\r\n"), Err(Reason::Private));
    assert_eq!(why(200, &format!("{lasting}Set-Cookie: a=b\r\n")), Err(Reason::SetsCookie));
    assert_eq!(why(200, "Cache-Control: max-age=60, public\r\nSet-Cookie: a=b\r\n"), Ok(()));
    assert_eq!(why(200, &format!("{lasting}Vary: Accept, *\r\n")), Err(Reason::VaryAny));
    assert_eq!(why(200, "Cache-Control: no-cache\r\n"), Err(Reason::NoLifetime));
    assert_eq!(why(200, "Cache-Control: no-cache\r\nETag: \"a\"\r\n"), Ok(()));
    assert_eq!(why(200, "Cache-Control: no-cache\r\nETag: a\r\n"), Err(Reason::NoLifetime));
}

#[test]
fn requests_with_authorization_need_explicit_permission() {
    let with = get("/", "Authorization: Basic eDp5\r\n");
    let stored = |fields: &str| head_for(&with, 200, &response(fields), received(0), &CacheSpec::default()).map(|_| ());
    assert_eq!(stored("Cache-Control: max-age=60\r\n"), Err(Reason::Credentials));
    for word in ["public", "s-maxage=60", "must-revalidate"] {
        assert_eq!(stored(&format!("Cache-Control: max-age=60, {word}\r\n")), Ok(()), "{word}");
    }
    let credentials = "Authorization: Basic eDp5\r\n";
    assert_eq!(use_of("Cache-Control: max-age=60\r\n", credentials, 0), Usable::No(Reason::Credentials));
    assert_eq!(use_of("Cache-Control: max-age=60, public\r\n", credentials, 0), Usable::Fresh);
}

#[test]
fn fields_named_by_no_cache_are_not_stored() {
    let stored_head = head(
        200,
        &response("Cache-Control: max-age=9, no-cache=\"set-cookie, x-a\"\r\nSet-Cookie: a=b\r\nX-A: 1\r\nX-B: 2\r\n"),
    );
    let fields = String::from_utf8(stored_head.unwrap().fields.to_vec()).unwrap();
    assert!(!fields.contains("a=b") && !fields.contains("X-A") && fields.contains("X-B: 2\r\n"), "{fields}");
}

#[test]
fn initial_age_follows_rfc_9111() {
    let age_ms = |fields: &str, received: Received, now_ms| {
        let head = head_for(&get("/", ""), 200, fields, received, &CacheSpec::default()).unwrap();
        assert!(!head.fields.windows(4).any(|part| part == b"Age:"));
        head.age(at_ms(now_ms)).as_millis()
    };
    let lasting = "Cache-Control: max-age=1000\r\n";
    // The response's own Age, and the time of its transfer.
    let slow = Received { requested_at: at_ms(1000), ..received(3500) };
    assert_eq!(age_ms(&format!("{lasting}Age: 10\r\nDate: {}\r\n", date(3)), slow, 5500), 10_000 + 2500 + 2000);
    // The origin's Date shows a higher age; a Date in the future has no effect.
    assert_eq!(age_ms(&format!("{lasting}Date: {}\r\n", date(-40)), received(0), 0), 40_000);
    assert_eq!(age_ms(&format!("{lasting}Date: {}\r\n", date(99)), received(0), 1), 1);
    // The first of repeated fields counts.
    assert_eq!(age_ms(&format!("{lasting}Age: 3\r\nAge: 7\r\n"), received(0), 0), 3000);
    // Expires counts from Date, not from the local clock.
    let expires = format!("Date: {}\r\nExpires: {}\r\n", date(500), date(530));
    let head = head_for(&get("/", ""), 200, &expires, received(0), &CacheSpec::default()).unwrap();
    assert_eq!(head.left(at_ms(29_999)), Ok(Duration::from_millis(1)));
    assert_eq!(head.left(at_ms(30_000)), Err(Duration::ZERO));
}

#[test]
fn a_response_turns_stale_at_its_lifetime() {
    let plain = "Cache-Control: max-age=10\r\nETag: \"a\"\r\n";
    assert_eq!(use_of(plain, "", 9_999), Usable::Fresh);
    assert_eq!(use_of(plain, "", 10_000), Usable::Validate(Reason::Expired));
    let graced = "Cache-Control: max-age=10, stale-while-revalidate=5\r\n";
    assert_eq!(use_of(graced, "", 10_000), Usable::Stale(Reason::WhileRevalidating));
    assert_eq!(use_of(graced, "", 15_000), Usable::Stale(Reason::WhileRevalidating));
    assert_eq!(use_of(graced, "", 15_001), Usable::Validate(Reason::Expired));
    // Directives that forbid stale responses also forbid these (RFC 9111, section 4.2.4).
    for word in ["must-revalidate", "proxy-revalidate", "s-maxage=10"] {
        let strict = format!("Cache-Control: max-age=10, stale-while-revalidate=5, {word}\r\n");
        assert_eq!(use_of(&strict, "", 12_000), Usable::Validate(Reason::Expired), "{word}");
        assert_eq!(
            use_of(&strict, "Cache-Control: max-stale\r\n", 12_000),
            Usable::Validate(Reason::Expired),
            "{word}"
        );
    }
    assert_eq!(
        use_of("Cache-Control: max-age=10, no-cache\r\nETag: \"a\"\r\n", "", 0),
        Usable::Validate(Reason::OriginDemands)
    );
}

#[test]
fn request_directives_restrict_reuse() {
    let plain = "Cache-Control: max-age=10\r\n";
    let demands = Usable::Validate(Reason::ClientDemands);
    assert_eq!(use_of(plain, "Cache-Control: no-cache\r\n", 1), demands);
    assert_eq!(use_of(plain, "Pragma: no-cache\r\n", 1), demands);
    assert_eq!(use_of(plain, "Cache-Control: max-age=4\r\n", 4_000), Usable::Fresh);
    assert_eq!(use_of(plain, "Cache-Control: max-age=4\r\n", 4_001), demands);
    assert_eq!(use_of(plain, "Cache-Control: min-fresh=4\r\n", 6_000), Usable::Fresh);
    assert_eq!(use_of(plain, "Cache-Control: min-fresh=4\r\n", 6_001), demands);
    assert_eq!(use_of(plain, "Cache-Control: max-stale=4\r\n", 14_000), Usable::Stale(Reason::ClientAllows));
    assert_eq!(use_of(plain, "Cache-Control: max-stale=4\r\n", 14_001), Usable::Validate(Reason::Expired));
    assert_eq!(use_of(plain, "Cache-Control: max-stale\r\n", 99_000), Usable::Stale(Reason::ClientAllows));
    let deaf = CacheSpec { ignores_clients: true, ..CacheSpec::default() };
    let request = get("/", "Cache-Control: no-cache, no-store, max-age=0, only-if-cached\r\n");
    let directives = directives(&request, &deaf);
    assert_eq!(usable(&head(200, &response(plain)).unwrap(), &directives, at_ms(9_000)), Usable::Fresh);
    assert!(directives.demands.only_if_cached && !directives.demands.no_store);
}

#[test]
fn stale_if_error_needs_permission() {
    let usable = |fields: &str, request: &str, ms| {
        let head = head(200, &response(fields)).unwrap();
        usable_on_error(&head, &directives(&get("/", request), &CacheSpec::default()), at_ms(ms))
    };
    let plain = "Cache-Control: max-age=10\r\nETag: \"a\"\r\n";
    let graced = "Cache-Control: max-age=10, stale-if-error=5\r\n";
    assert!(!usable(plain, "", 10_000));
    assert!(usable(plain, "Cache-Control: stale-if-error=5\r\n", 15_000));
    assert!(usable(graced, "", 15_000) && !usable(graced, "", 15_001));
    assert!(!usable(graced, "Cache-Control: no-cache\r\n", 11_000));
    assert!(!usable("Cache-Control: max-age=10, stale-if-error=5, must-revalidate\r\nETag: \"a\"\r\n", "", 11_000));
}

#[test]
fn entity_tags_are_validated() {
    for valid in ["\"\"", "\"a\"", "W/\"a\"", "\"a,b\""] {
        assert!(is_entity_tag(valid.as_bytes()), "{valid}");
    }
    for bad in ["", "a", "\"", "W/", "w/\"a\"", "\"a\"b\"", "\"a"] {
        assert!(!is_entity_tag(bad.as_bytes()), "{bad}");
    }
}

#[test]
fn the_first_of_several_age_fields_counts() {
    let age_s = |fields: &str| {
        let head = head(200, &response(&format!("Cache-Control: max-age=3600\r\nETag: \"a\"\r\n{fields}"))).unwrap();
        head.terms.initial_age.as_secs()
    };
    for (fields, expected) in [
        ("Age: 7200, 0\r\n", 7200),
        ("Age: 0, 7200\r\n", 0),
        ("Age: 7200\r\nAge: 0\r\n", 7200),
        ("age: 0\r\nAGE: 7200\r\n", 0),
        ("Age: 7200 ,0\r\n", 7200),
        // Empty members are skipped.
        ("Age: , 7200\r\n", 7200),
        ("Age:\r\nAge: 7200\r\n", 7200),
        ("Age: 0,\r\n", 0),
        // The first member is not a number: the list is ignored.
        ("Age: abc, 7200\r\n", 0),
        ("Age: -1, 7200\r\n", 0),
        ("Age: 7200;a=b\r\n", 0),
        ("Age: \"7200\"\r\nAge: 7200\r\n", 0),
    ] {
        assert_eq!(age_s(fields), expected, "{fields}");
    }
}

#[test]
fn cdn_cache_control_replaces_cache_control_and_expires() {
    let later = format!("Expires: {}\r\n", date(900));
    for (fields, expected) in [
        ("CDN-Cache-Control: max-age=60\r\nCache-Control: no-store\r\n".to_owned(), Ok(60)),
        ("CDN-Cache-Control: max-age=60\r\nCache-Control: max-age=5, s-maxage=6\r\n".to_owned(), Ok(60)),
        (format!("CDN-Cache-Control: max-age=0\r\n{later}"), Err(Reason::NoLifetime)),
        (format!("CDN-Cache-Control: foo\r\nCache-Control: max-age=9\r\n{later}"), Err(Reason::NoLifetime)),
        ("CDN-Cache-Control: private\r\nCache-Control: max-age=9\r\n".to_owned(), Err(Reason::Private)),
        ("CDN-Cache-Control: no-store\r\nCache-Control: max-age=9\r\n".to_owned(), Err(Reason::OriginForbids)),
        // Empty or invalid: ignored.
        ("CDN-Cache-Control:\r\nCache-Control: max-age=9\r\n".to_owned(), Ok(9)),
        ("CDN-Cache-Control: max-age=60, &&\r\nCache-Control: no-store\r\n".to_owned(), Err(Reason::OriginForbids)),
        (format!("CDN-Cache-Control: max-age=\"60\"\r\n{later}"), Ok(900)),
        // Fields for other caches are ignored.
        ("Surrogate-Control: max-age=60\r\nCache-Control: no-store\r\n".to_owned(), Err(Reason::OriginForbids)),
    ] {
        assert_eq!(lifetime_s(&fields), expected, "{fields}");
    }
    let head = "CDN-Cache-Control: no-cache\r\nCache-Control: max-age=9\r\nETag: \"a\"\r\n";
    assert_eq!(use_of(head, "", 0), Usable::Validate(Reason::OriginDemands));
}
