//! Tests the cache against an oracle in virtual time: random origins, requests and clock steps. Every served response
//! must be allowed by RFC 9111, according to an implementation that shares no code with the cache.
//!
//! The body of a response is its number; for each number the oracle stores the request, the time and the response
//! fields.

use proptest::prelude::*;
use units::Timestamp;

use super::testing::{UNIX_ZERO_S, at_ms, cache, cache_request, date, directives, get};
use super::*;

/// The caching fields of a response.
#[derive(Clone, Debug)]
struct ResponseFields {
    max_age_s: Option<u64>,
    s_maxage_s: Option<u64>,
    no_store: bool,
    no_cache: bool,
    private: bool,
    public: bool,
    must_revalidate: bool,
    stale_while_revalidate_s: Option<u64>,
    age_s: u64,
    /// Error of the origin's clock.
    skew_s: i64,
    varies: bool,
    cookie: bool,
}

/// The caching fields of a request.
#[derive(Clone, Debug)]
struct RequestFields {
    page: u8,
    language: u8,
    no_cache: bool,
    no_store: bool,
    max_age_s: Option<u64>,
    max_stale_s: Option<u64>,
    min_fresh_s: Option<u64>,
    credentials: bool,
    unsafe_method: bool,
}

#[derive(Clone, Debug)]
struct StoredResponse {
    response_fields: ResponseFields,
    request_fields: RequestFields,
    received_ms: u64,
    delay_ms: u64,
}

fn response_fields_of() -> impl Strategy<Value = ResponseFields> {
    let seconds = || prop::option::weighted(0.6, 0u64..8);
    (
        (seconds(), prop::option::weighted(0.2, 0u64..8), prop::option::weighted(0.3, 0u64..5)),
        (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>()),
        (prop::bool::weighted(0.2), 0u64..3, -3i64..4, any::<bool>(), prop::bool::weighted(0.1)),
    )
        .prop_map(|(times, words, rest)| ResponseFields {
            max_age_s: times.0,
            s_maxage_s: times.1,
            stale_while_revalidate_s: times.2,
            no_store: words.0,
            no_cache: words.1,
            private: words.2,
            public: words.3,
            must_revalidate: rest.0,
            age_s: rest.1,
            skew_s: rest.2,
            varies: rest.3,
            cookie: rest.4,
        })
}

fn request_fields_of() -> impl Strategy<Value = RequestFields> {
    let seconds = || prop::option::weighted(0.1, 0u64..6);
    (
        (0u8..3, 0u8..3),
        (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.15), prop::bool::weighted(0.05)),
        (seconds(), seconds(), seconds()),
    )
        .prop_map(|(what, words, times)| RequestFields {
            page: what.0,
            language: what.1,
            no_cache: words.0,
            no_store: words.1,
            credentials: words.2,
            unsafe_method: words.3,
            max_age_s: times.0,
            max_stale_s: times.1,
            min_fresh_s: times.2,
        })
}

impl ResponseFields {
    fn fields(&self, now_ms: u64, tag: usize) -> String {
        let mut words = Vec::new();
        let mut add = |is: bool, word: &str| {
            if is {
                words.push(word.to_owned());
            }
        };
        add(self.no_store, "no-store");
        add(self.no_cache, "no-cache");
        add(self.private, "private");
        add(self.public, "public");
        add(self.must_revalidate, "must-revalidate");
        let mut time = |seconds: Option<u64>, word: &str| {
            if let Some(seconds) = seconds {
                words.push(format!("{word}={seconds}"));
            }
        };
        time(self.max_age_s, "max-age");
        time(self.s_maxage_s, "s-maxage");
        time(self.stale_while_revalidate_s, "stale-while-revalidate");
        let mut fields = format!("Date: {}\r\nETag: \"{tag}\"\r\n", date((now_ms / 1000) as i64 + self.skew_s));
        if !words.is_empty() {
            fields += &format!("Cache-Control: {}\r\n", words.join(", "));
        }
        if self.age_s > 0 {
            fields += &format!("Age: {}\r\n", self.age_s);
        }
        if self.varies {
            fields += "Vary: Accept-Language\r\n";
        }
        if self.cookie {
            fields += "Set-Cookie: a=b\r\n";
        }
        fields
    }
}

impl RequestFields {
    fn head(&self) -> String {
        let mut fields = format!("Accept-Language: l{}\r\n", self.language);
        let mut words = Vec::new();
        if self.no_cache {
            words.push("no-cache".to_owned());
        }
        if self.no_store {
            words.push("no-store".to_owned());
        }
        for (seconds, word) in
            [(self.max_age_s, "max-age"), (self.max_stale_s, "max-stale"), (self.min_fresh_s, "min-fresh")]
        {
            if let Some(seconds) = seconds {
                words.push(format!("{word}={seconds}"));
            }
        }
        if !words.is_empty() {
            fields += &format!("Cache-Control: {}\r\n", words.join(", "));
        }
        if self.credentials {
            fields += "Authorization: Basic eDp5\r\n";
        }
        get(&format!("/{}", self.page), &fields)
    }
}

/// Why RFC 9111 forbids this response for this request at this time without contacting the origin.
fn forbidden(stored_response: &StoredResponse, request_fields: &RequestFields, now_ms: u64) -> Option<&'static str> {
    let StoredResponse { response_fields, request_fields: first, received_ms, delay_ms } = stored_response;
    let explicit = response_fields.public || response_fields.s_maxage_s.is_some() || response_fields.must_revalidate;
    if first.page != request_fields.page {
        return Some("another URI");
    }
    if response_fields.varies && first.language != request_fields.language {
        return Some("another variant");
    }
    if response_fields.no_store || first.no_store || response_fields.private || response_fields.no_cache {
        return Some("the response must not be reused");
    }
    if (first.credentials || request_fields.credentials) && !explicit {
        return Some("credentials");
    }
    if response_fields.cookie && !response_fields.public {
        return Some("the response sets a cookie");
    }
    let unix_ms = received_ms / 1000 * 1000;
    let apparent_ms = (unix_ms as i64 - origin_date_ms(stored_response)).max(0) as u64;
    let age_ms = apparent_ms.max(response_fields.age_s * 1000 + delay_ms) + (now_ms - received_ms);
    let lifetime_ms = response_fields.s_maxage_s.or(response_fields.max_age_s).unwrap_or(0) * 1000;
    if request_fields.no_cache || request_fields.max_age_s.is_some_and(|most| age_ms > most * 1000) {
        return Some("the client requires validation");
    }
    if request_fields.min_fresh_s.is_some_and(|least| lifetime_ms < age_ms + least * 1000) {
        return Some("the response is not fresh for the required time");
    }
    if age_ms < lifetime_ms {
        return None;
    }
    if response_fields.must_revalidate || response_fields.s_maxage_s.is_some() {
        return Some("the response is stale and must not be served stale");
    }
    let over_ms = age_ms - lifetime_ms;
    let grace_s = response_fields.stale_while_revalidate_s.unwrap_or(0);
    let allowed = (grace_s > 0 && over_ms <= grace_s * 1000)
        || request_fields.max_stale_s.is_some_and(|most| over_ms <= most * 1000);
    if allowed { None } else { Some("stale") }
}

/// The origin's Date in milliseconds after zero.
fn origin_date_ms(stored_response: &StoredResponse) -> i64 {
    let answered_ms = stored_response.received_ms - stored_response.delay_ms;
    (answered_ms / 1000) as i64 * 1000 + stored_response.response_fields.skew_s * 1000
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn responses_from_the_cache_are_allowed_by_rfc_9111(
        steps in prop::collection::vec((request_fields_of(), response_fields_of(), 0u64..3000, 0u64..1500), 1..60),
    ) {
        let spec = CacheSpec::default();
        let cache = cache(&spec);
        let mut answers: Vec<StoredResponse> = Vec::new();
        // Responses with a lower number are out of date for this page.
        let mut changed = [0usize; 3];
        let mut now_ms = 0;
        for (request_fields, response_fields, pause_ms, delay_ms) in steps {
            now_ms += pause_ms;
            let request = request_fields.head();
            let cache_request = cache_request(&request);
            if request_fields.unsafe_method {
                cache.invalidate(&cache_request.key());
                changed[usize::from(request_fields.page)] = answers.len();
                continue;
            }
            let directives = directives(&request, &spec);
            let found = match cache.find(&cache_request) {
                Found::Answer(stored) => Some(stored),
                _ => None,
            };
            let mut out = Vec::new();
            let fast = cache.fresh(&cache_request, at_ms(now_ms), &mut out);
            if let Some(stored) = &found {
                let number: usize = std::str::from_utf8(&stored.body).unwrap().parse().unwrap();
                let use_ = usable(&stored.head, &directives, at_ms(now_ms));
                prop_assert_eq!(fast.is_some(), use_ == Usable::Fresh);
                prop_assert!(number >= changed[usize::from(request_fields.page)], "a response from before a change");
                if matches!(use_, Usable::Fresh | Usable::Stale(_)) {
                    let why = forbidden(&answers[number], &request_fields, now_ms);
                    prop_assert_eq!(why, None, "{:?} for {:?} at {} ms", &answers[number], &request_fields, now_ms);
                    continue;
                }
            } else {
                prop_assert!(fast.is_none() && out.is_empty());
            }
            // The origin responds immediately; its response takes time to arrive.
            let number = answers.len();
            let fields = response_fields.fields(now_ms, number);
            let requested_at = at_ms(now_ms);
            now_ms += delay_ms;
            let received = Received { requested_at, at: at_ms(now_ms), unix_s: UNIX_ZERO_S + now_ms / 1000 };
            let request_fields = request_fields.clone();
            answers.push(StoredResponse { response_fields, request_fields, received_ms: now_ms, delay_ms });
            match super::terms(&directives, 200, fields.as_bytes(), received, &spec) {
                Ok((response_fields, vary)) => {
                    let head = Head::new(200, fields.as_bytes(), vary, response_fields, received);
                    let stored = super::testing::stored(head, &number.to_string());
                    prop_assert!(cache.put(cache_request.key(), cache_request.fields, stored));
                }
                Err(_) => cache.forget(&cache_request.key(), cache_request.fields),
            }
        }
    }
}

/// The converse: in the plain case, every response that may be served is served.
#[test]
fn fresh_responses_are_served_from_the_cache() {
    let spec = CacheSpec::default();
    let cache = cache(&spec);
    let request = get("/x?y", "");
    let cache_request = cache_request(&request);
    let fields =
        format!("Date: {}\r\nCache-Control: max-age=10\r\nETag: \"a\"\r\nContent-Type: text/plain\r\n", date(0));
    let received = super::testing::received(0);
    let (response_fields, vary) =
        super::terms(&directives(&request, &spec), 200, fields.as_bytes(), received, &spec).unwrap();
    let stored = super::testing::stored(Head::new(200, fields.as_bytes(), vary, response_fields, received), "hello");
    assert!(cache.put(cache_request.key(), cache_request.fields, stored));
    let give = |request: &str, now: Timestamp| {
        let mut out = Vec::new();
        let fresh = cache.fresh(&super::testing::cache_request(request), now, &mut out)?;
        Some((fresh.status, String::from_utf8(fresh.body.to_vec()).unwrap(), String::from_utf8(out).unwrap()))
    };
    let (status, body, head) = give(&request, at_ms(3_500)).unwrap();
    assert_eq!((status, &*body), (200, "hello"));
    let date = date(0);
    let expected = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: {date}\r\nCache-Control: max-age=10\r\nETag: \"a\"\r\nContent-Type: \
         text/plain\r\nAge: 3\r\nCache-Status: yamabiko; hit; ttl=6; detail=fresh\r\n"
    );
    assert_eq!(head, expected);
    let (status, body, head) = give(&get("/x?y", "If-None-Match: \"a\"\r\n"), at_ms(0)).unwrap();
    assert_eq!((status, &*body), (304, ""));
    assert!(head.starts_with("HTTP/1.1 304 Not Modified\r\nDate:") && !head.contains("Content-"), "{head}");
    let (status, body, head) = give(&get("/x?y", "Range: bytes=1-2\r\n"), at_ms(0)).unwrap();
    assert_eq!((status, &*body), (206, "el"));
    assert!(head.contains("Content-Length: 2\r\n") && head.contains("Content-Range: bytes 1-2/5\r\n"), "{head}");
    let (status, body, head) = give(&get("/x?y", "Range: bytes=5-\r\n"), at_ms(0)).unwrap();
    assert_eq!((status, &*body), (416, ""));
    assert!(head.contains("Content-Length: 0\r\n") && head.contains("Content-Range: bytes */5\r\n"), "{head}");
    let (status, body, head) = give(&request.replacen("GET", "HEAD", 1), at_ms(0)).unwrap();
    assert_eq!((status, &*body), (200, ""));
    assert!(head.contains("Content-Length: 5\r\n"), "{head}");
    assert_eq!(give(&request, at_ms(10_000)), None);
    assert_eq!(give(&get("/x?z", ""), at_ms(0)), None);
}
