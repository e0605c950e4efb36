//! Invalid requests, sent with curl: each is refused with its reason, counted and logged, and stores nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::site::{Response, SimulatedAgent, Site, gzip};
use crate::fleet::parties;
use crate::support::workspace::{str_of, wait_until, yamabiko};

/// Counts the refusals that a test provokes; in the end the manager must have counted and logged each.
pub struct ExpectedRefusals<'a> {
    site: &'a Site,
    before: Value,
    counts: BTreeMap<&'static str, u64>,
}

impl<'a> ExpectedRefusals<'a> {
    pub fn of(site: &'a Site) -> ExpectedRefusals<'a> {
        ExpectedRefusals { site, before: site.stored()["refused"].clone(), counts: BTreeMap::new() }
    }

    /// Asserts that a request is refused with this status and reason, and that the index is unchanged. Returns the
    /// response body.
    pub fn expect(&mut self, status: u16, why: &'static str, what: &str, request: impl FnOnce() -> Response) -> Value {
        let before = self.site.index_state();
        let response = request();
        assert_eq!((response.status, &response.body["error"]), (status, &json!(why)), "{what}: {response:?}");
        assert!(response.body["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {response:?}");
        assert_eq!(self.site.index_state(), before, "{what}");
        self.count(why);
        response.body
    }

    /// Counts a refusal that the caller has checked.
    pub fn count(&mut self, why: &'static str) {
        *self.counts.entry(why).or_default() += 1;
    }

    /// Asserts that the manager has counted all refusals by kind, that the log mentions each kind (it may omit lines),
    /// and that the API has each kind.
    pub fn settle(self, operator: &str) {
        for (why, count) in &self.counts {
            let before = self.before[*why].as_u64().unwrap_or(0);
            wait_until(&format!("{count} more refusals of kind {why} are counted"), || {
                self.site.refused(why) >= before + count
            });
            assert_eq!(self.site.refused(why), before + count, "{why}");
            let log = self.site.serving.running.stderr();
            assert!(log.contains(&format!(" {why}: ")) || log.contains("more lines"), "{why} in {log}");
        }
        let listed = self.site.get(operator, "/refusals");
        assert_eq!(listed.status, 200, "{listed:?}");
        for why in self.counts.keys() {
            assert!(listed.body.to_string().contains(&format!("\"{why}\"")), "{why} in {listed:?}");
        }
    }
}

#[test]
fn requests_without_a_valid_token_are_refused() {
    let site = Site::start(&[]);
    let (mut shop, bank) = (SimulatedAgent::known(&site, "shop", "a"), SimulatedAgent::known(&site, "bank", "b"));
    let (reader, operator) = (site.token("eyes", "reader"), site.token("boss", "operator"));
    shop.sends_next_batch(&site);
    let (batch, url) = (shop.batch().to_string(), site.url(&shop.route("batches")));
    let json_of = ["-H", "Content-Type: application/json", "--data-binary", "@-"];
    let post = |more: &[&str]| site.curl_with(&[&json_of[..], more, &[&url]].concat(), batch.as_bytes());

    let mut refusals = ExpectedRefusals::of(&site);
    refusals.expect(401, "unauthenticated", "no token", || post(&[]));
    let almost = format!("{}x", &shop.token[..shop.token.len() - 1]);
    for (what, value) in [
        ("an empty token", "Bearer ".to_owned()),
        ("another scheme", "Basic c2hvcDpzaG9w".to_owned()),
        ("the name alone", "Bearer shop".to_owned()),
        ("one letter wrong", format!("Bearer {almost}")),
        ("another's secret", format!("Bearer shop.{}", bank.token.split_once('.').unwrap().1)),
        ("a long one", format!("Bearer {}", "a".repeat(4_000))),
        ("bytes that are not ASCII", "Bearer \u{fc}\u{fe}".to_owned()),
    ] {
        refusals.expect(401, "unauthenticated", what, || post(&["-H", &format!("Authorization: {value}")]));
    }
    let both = format!("Authorization: Bearer {}", shop.token);
    refusals.expect(401, "unauthenticated", "two tokens", || post(&["-H", &both, "-H", "Authorization: Bearer x"]));
    // A token in the URL is not accepted, since URLs are logged.
    let in_url = format!("{url}?token={}", shop.token);
    refusals.expect(401, "unauthenticated", "in the URL", || {
        site.curl_with(&[&json_of[..], &[&in_url]].concat(), batch.as_bytes())
    });

    for (what, token) in [("of another agent", &bank.token), ("of a reader", &reader), ("of an operator", &operator)] {
        for route in ["batches", "hello"] {
            let body = if route == "hello" { shop.hello() } else { shop.batch() }.to_string();
            refusals.expect(403, "forbidden", what, || site.post(token, &shop.route(route), &[], body.as_bytes()));
        }
    }
    // A stream of another agent under its own name.
    let (mut stolen, mut hello) = (bank.batch(), bank.hello());
    stolen["stream"] = json!(shop.stream);
    hello["stream"] = json!(shop.stream);
    refusals.expect(403, "forbidden", "another's stream", || bank.send(&site, &stolen));
    refusals.expect(403, "forbidden", "another's stream", || {
        site.post(&bank.token, &bank.route("hello"), &[], hello.to_string().as_bytes())
    });
    // An agent may read and change nothing; a reader may change nothing.
    refusals.expect(403, "forbidden", "an agent reads", || site.get(&shop.token, "/agents"));
    let put = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let url = site.url("/agents/shop/settings");
        site.curl(&["-X", "PUT", "-H", &bearer, "-H", "Content-Type: application/json", "-d", "{\"share\":0.5}", &url])
    };
    for (what, token) in [("an agent changes", &shop.token), ("a reader changes", &reader)] {
        refusals.expect(403, "forbidden", what, || put(token));
    }
    assert_eq!(site.get(&reader, "/agents").status, 200);
    assert_eq!(put(&operator).status, 200);
    refusals.settle(&operator);
    // The page's listener requires the secret of its URL, and accepts no token.
    let (base_url, secret) = site.page.split_at(site.page.trim_end_matches('/').rfind('/').unwrap() + 1);
    let bearer = format!("Authorization: Bearer {operator}");
    for path in ["", "api/1/agents", &format!("{}x/", &secret[..secret.len() - 2])] {
        let response = site.curl(&["-H", &bearer, &format!("{base_url}{path}")]);
        assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
    }
    assert_eq!(site.curl(&[&format!("{}api/1/agents", site.page)]).status, 200);

    // A revoked token is refused immediately, also on an open connection.
    let mut open = site.connect();
    open.stream.write_all(&shop.request(1)).unwrap();
    let response = open.response().unwrap();
    assert_eq!(response.status(), 200, "{}", response.head);
    parties::run_yamabiko(&yamabiko(), &["tap", "manager", "token", "revoke", "shop", "--data", str_of(&site.data)])
        .unwrap();
    let before = site.index_state();
    open.stream.write_all(&shop.request(1)).unwrap();
    let response = open.response().unwrap();
    assert_eq!(response.status(), 401, "{}", response.head);
    assert_eq!(site.index_state(), before);
    let list =
        parties::run_yamabiko(&yamabiko(), &["tap", "manager", "token", "list", "--data", str_of(&site.data)]).unwrap();
    let line = list.lines().find(|line| line.contains("shop")).unwrap();
    assert!(line.contains("revoked"), "{list}");
    // Neither the list nor the log nor the index contains a secret.
    let log = site.serving.running.stderr();
    for token in [&shop.token, &bank.token, &reader, &operator] {
        let secret = token.split_once('.').unwrap().1;
        assert!(!list.contains(secret) && !log.contains(secret));
        for entry in fs::read_dir(&site.data).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            let bytes = fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{:?}", entry.path());
        }
    }
    bank_sends_next_batch(&site, bank);
}

fn bank_sends_next_batch(site: &Site, mut bank: SimulatedAgent) {
    bank.sends_next_batch(site);
    assert_eq!(site.stored()["streams"][&bank.stream], 1);
}

#[test]
fn oversized_and_malformed_requests_are_refused() {
    let site = Site::start(&[]);
    let mut shop = SimulatedAgent::known(&site, "shop", "a");
    shop.sends_next_batch(&site);
    let route = shop.route("batches");
    let (boss, mut refusals) = (site.token("boss", "operator"), ExpectedRefusals::of(&site));
    // Compressed size: incompressible bytes, with and without Content-Length.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take((2 << 20) + 1)
    .collect();
    for more in [&[][..], &["-H", "Transfer-Encoding: chunked"], &["-H", "Content-Encoding: gzip"], &["-H", "Expect:"]]
    {
        refusals.expect(413, "too_large", "too large compressed", || site.post(&shop.token, &route, more, &noise));
    }
    // Decompressed size: 1 MB compresses to 2 KB, as spaces and as a padded valid batch.
    let zeros = gzip(&vec![b' '; (16 << 20) + 1]);
    assert!(zeros.len() < 1 << 20);
    refusals.expect(413, "too_large", "too large decompressed", || shop.send_bytes(&site, &zeros));
    let padded = shop.batch().to_string() + &" ".repeat(16 << 20);
    refusals.expect(413, "too_large", "too large decompressed", || shop.send_bytes(&site, &gzip(padded.as_bytes())));
    let many = shop.batch_of(shop.sequence, 20_001);
    refusals.expect(413, "too_large", "too many rows", || shop.send(&site, &many));

    let good = shop.batch().to_string();
    let packed = gzip(good.as_bytes());
    let flipped: Vec<u8> = {
        let mut bytes = packed.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        bytes
    };
    for (what, bytes) in [
        ("an empty body", Vec::new()),
        ("not gzip", b"{}".to_vec()),
        ("half of the gzip", packed[..packed.len() / 2].to_vec()),
        ("gzip without its end", packed[..packed.len() - 4].to_vec()),
        ("a changed byte", flipped),
        ("bytes after the gzip", [&packed[..], b"more"].concat()),
        ("not JSON", gzip(b"rows, please")),
        ("not UTF-8", gzip(b"{\"stream\": \"\xff\xfe\"}")),
        ("half of the JSON", gzip(&good.as_bytes()[..good.len() / 2])),
        ("JSON twice", gzip(format!("{good}{good}").as_bytes())),
        ("brackets without end", gzip("[".repeat(100_000).as_bytes())),
        ("an empty object", gzip(b"{}")),
        ("a list", gzip(format!("[{good}]").as_bytes())),
    ] {
        refusals.expect(400, "malformed", what, || shop.send_bytes(&site, &bytes));
    }
    for (what, change) in [
        ("an unknown field", &["payload"][..]),
        ("an unknown field of a row", &["rows", "0", "payload"]),
        ("a number for a text", &["stream"]),
        ("a text for rows", &["rows"]),
    ] {
        let mut batch = shop.batch();
        *at(&mut batch, change) = if change.last() == Some(&"stream") { json!(5) } else { json!("x") };
        refusals.expect(400, "malformed", what, || shop.send(&site, &batch));
    }
    for lines in [&["-H", "Content-Type: text/plain"][..], &["-H", "Content-Type: multipart/form-data"]] {
        let (bearer, url) = (format!("Authorization: Bearer {}", shop.token), site.url(&route));
        let words = [&["-H", &bearer, "--data-binary", "@-"], lines, &[&url[..]]].concat();
        refusals.expect(415, "unsupported_media_type", "a content type other than JSON", || {
            site.curl_with(&words, good.as_bytes())
        });
    }
    let encoding = ["-H", "Content-Encoding: br"];
    refusals.expect(415, "unsupported_media_type", "an unsupported content encoding", || {
        site.post(&shop.token, &route, &encoding, good.as_bytes())
    });

    let (bearer, url) = (format!("Authorization: Bearer {}", shop.token), site.url(&route));
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        refusals.expect(405, "method_not_allowed", method, || site.curl(&["-X", method, "-H", &bearer, &url]));
    }
    for route in ["/nowhere", "/agents/shop/batches/1", "/agents/shop%2Fbatches"] {
        let response = site.get(&shop.token, route);
        assert!(matches!(response.status, 403..=405), "{route}: {response:?}");
        let why =
            ["forbidden", "not_found", "method_not_allowed"].into_iter().find(|why| response.body["error"] == **why);
        refusals.count(why.expect("a known reason"));
    }
    refusals.settle(&boss);
    shop.sends_next_batch(&site);
}

/// The value at a path in a document, created if it is missing.
pub fn at<'a>(document: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(document, |inner, step| match step.parse::<usize>() {
        Ok(number) => &mut inner[number],
        Err(_) => &mut inner[*step],
    })
}

#[test]
fn batches_are_accepted_once_and_in_order() {
    let site = Site::start(&[]);
    let mut shop = SimulatedAgent::known(&site, "shop", "a");
    let (first, second) = (shop.sends_next_batch(&site), shop.sends_next_batch(&site));
    let (boss, mut refusals) = (site.token("boss", "operator"), ExpectedRefusals::of(&site));
    for (what, batch) in [("the last one again", &second), ("an older one", &first)] {
        let body = refusals.expect(409, "already_stored", what, || shop.send(&site, batch));
        assert_eq!(body["stored_through"], 2, "{what}");
    }
    // The same number with other rows is not stored either, and is reported as a conflict.
    let body = refusals.expect(409, "conflict", "other rows under a number", || shop.send(&site, &shop.batch_of(2, 7)));
    assert_eq!(body["stored_through"], 2);
    for number in [4, 5, 1_000_000] {
        let mut ahead = shop.batch();
        ahead["sequence"] = json!(number);
        let body = refusals.expect(409, "sequence_gap", "a number is missing", || shop.send(&site, &ahead));
        assert_eq!(body["stored_through"], 2, "{number}");
    }
    // A stream whose first batch is missing.
    let mut other = shop.batch();
    other["stream"] = json!("c".repeat(32));
    refusals.expect(409, "sequence_gap", "the middle of a stream", || shop.send(&site, &other));
    refusals.settle(&boss);
    // Acknowledged batches are stored also after a kill of the manager.
    let stored = site.index_state();
    let Site { serving, data, workspace, .. } = site;
    serving.running.signal(Signal::SIGKILL);
    drop(serving);
    let again = Site::start_in(workspace, data, &[]);
    assert_eq!(again.index_state(), stored);
    let body =
        ExpectedRefusals::of(&again).expect(409, "already_stored", "after a kill", || shop.send(&again, &second));
    assert_eq!(body["stored_through"], 2);
    shop.sends_next_batch(&again);
}

/// Incomplete and invalid requests end, store nothing, and do not block others.
#[test]
fn incomplete_batches_store_nothing() {
    let site = Site::start(&[]);
    let mut shop = SimulatedAgent::known(&site, "shop", "a");
    shop.sends_next_batch(&site);
    let before = site.index_state();
    let complete =
        SimulatedAgent { name: "shop".into(), token: shop.token.clone(), stream: shop.stream.clone(), sequence: 2 }
            .request(2);

    // Parts of a request, on connections that are closed and on connections that stay open.
    let mut open_connections = Vec::new();
    for part in [10, 100, complete.len() / 2, complete.len() - 1] {
        let mut closing = site.connect();
        closing.stream.write_all(&complete[..part]).unwrap();
        closing.stream.flush().unwrap();
        drop(closing);
        let mut staying_open = site.connect();
        staying_open.stream.write_all(&complete[..part]).unwrap();
        staying_open.stream.flush().unwrap();
        open_connections.push(staying_open);
    }
    // A length beyond the body, an invalid one, two different ones, and both framings together.
    for lines in [
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
    ] {
        let mut connection = site.connect();
        connection.stream.write_all(shop.head(lines).as_bytes()).unwrap();
        connection.stream.write_all(b"{\"a\":0}").unwrap();
        let _ = connection.stream.flush();
        if let Ok(response) = connection.response() {
            assert!((400..500).contains(&response.status()), "{lines}: {}", response.head);
        }
    }
    // Oversized heads.
    for lines in [format!("X-Long: {}\r\n", "a".repeat(1 << 20)), "a: b\r\n".repeat(50_000)] {
        let mut huge = site.connect();
        // The connection may close in the middle.
        let sent = huge.stream.write_all(shop.head(&lines).as_bytes()).and_then(|()| huge.stream.flush());
        if let (Ok(()), Ok(response)) = (sent, huge.response()) {
            assert!((400..500).contains(&response.status()), "{}", response.head);
        }
    }
    // A request without TLS.
    let mut plain = TcpStream::connect(site.serving.address).unwrap();
    plain.write_all(&complete).unwrap();
    // A body that arrives byte by byte, while the same agent sends on another connection.
    let mut slow = site.connect();
    let (head, body) = complete.split_at(complete.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4);
    slow.stream.write_all(head).unwrap();
    for byte in &body[..20] {
        slow.stream.write_all(&[*byte]).unwrap();
        slow.stream.flush().unwrap();
        assert_eq!(site.index_state(), before);
    }
    shop.sends_next_batch(&site);
    // The slow request completes when its batch is stored already.
    slow.stream.write_all(&body[20..]).unwrap();
    let response = slow.response().unwrap();
    assert_eq!(response.status(), 409, "{}", response.head);
    drop(open_connections);
    assert_eq!(site.stored()["rows"], 4);
    shop.sends_next_batch(&site);
    assert!(site.stored()["rows"] == 6 && site.stored()["streams"].as_object().unwrap().len() == 1);
}
