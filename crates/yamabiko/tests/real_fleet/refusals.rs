//! Invalid input from outside, sent with curl: each is refused for its reason, counted, logged, and nothing is stored.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::site::{Answer, Paper, Site, gzip};
use crate::fleet::parties;
use crate::support::workspace::{str_of, wait_until, yamabiko};

/// Refusals that a site makes; at the end each must have been counted and logged.
pub struct Refusals<'a> {
    site: &'a Site,
    before: Value,
    made: BTreeMap<&'static str, u64>,
}

impl<'a> Refusals<'a> {
    pub fn of(site: &'a Site) -> Refusals<'a> {
        Refusals { site, before: site.stored()["refused"].clone(), made: BTreeMap::new() }
    }

    /// Refused with this status and reason; the index is unchanged. Returns the response body.
    pub fn sees(&mut self, status: u16, why: &'static str, what: &str, ask: impl FnOnce() -> Answer) -> Value {
        let kept = self.site.kept();
        let answer = ask();
        assert_eq!((answer.status, &answer.body["error"]), (status, &json!(why)), "{what}: {answer:?}");
        assert!(answer.body["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {answer:?}");
        assert_eq!(self.site.kept(), kept, "{what}");
        self.made(why);
        answer.body
    }

    /// One that was seen elsewhere.
    pub fn made(&mut self, why: &'static str) {
        *self.made.entry(why).or_default() += 1;
    }

    /// All are counted, by kind; each kind is in the log, where not every line need be; the API shows the newest.
    pub fn settle(self, operator: &str) {
        for (why, made) in &self.made {
            let before = self.before[*why].as_u64().unwrap_or(0);
            wait_until(&format!("{made} more of {why} are counted"), || self.site.refused(why) >= before + made);
            assert_eq!(self.site.refused(why), before + made, "{why}");
            let log = self.site.serving.running.stderr();
            assert!(log.contains(&format!(" {why}: ")) || log.contains("more lines"), "{why} in {log}");
        }
        let shown = self.site.get(operator, "/refusals");
        assert_eq!(shown.status, 200, "{shown:?}");
        for why in self.made.keys() {
            assert!(shown.body.to_string().contains(&format!("\"{why}\"")), "{why} in {shown:?}");
        }
    }
}

#[test]
fn requests_without_a_valid_token_are_refused() {
    let site = Site::start(&[]);
    let (mut shop, bank) = (Paper::known(&site, "shop", "a"), Paper::known(&site, "bank", "b"));
    let (reader, operator) = (site.token("eyes", "reader"), site.token("boss", "operator"));
    shop.goes_on(&site);
    let (batch, url) = (shop.batch().to_string(), site.url(&shop.route("batches")));
    let json_of = ["-H", "Content-Type: application/json", "--data-binary", "@-"];
    let post = |more: &[&str]| site.curl_with(&[&json_of[..], more, &[&url]].concat(), batch.as_bytes());

    let mut refusals = Refusals::of(&site);
    refusals.sees(401, "unauthenticated", "no token", || post(&[]));
    let almost = format!("{}x", &shop.token[..shop.token.len() - 1]);
    for (what, value) in [
        ("an empty token", "Bearer ".to_owned()),
        ("another scheme", "Basic c2hvcDpzaG9w".to_owned()),
        ("the name alone", "Bearer shop".to_owned()),
        ("one letter wrong", format!("Bearer {almost}")),
        ("another's secret", format!("Bearer shop.{}", bank.token.split_once('.').unwrap().1)),
        ("a long one", format!("Bearer {}", "a".repeat(4_000))),
        ("bytes that are no text", "Bearer \u{fc}\u{fe}".to_owned()),
    ] {
        refusals.sees(401, "unauthenticated", what, || post(&["-H", &format!("Authorization: {value}")]));
    }
    let both = format!("Authorization: Bearer {}", shop.token);
    refusals.sees(401, "unauthenticated", "two tokens", || post(&["-H", &both, "-H", "Authorization: Bearer x"]));
    // A token in the URL is none: it would be in logs.
    let in_url = format!("{url}?token={}", shop.token);
    refusals.sees(401, "unauthenticated", "in the URL", || {
        site.curl_with(&[&json_of[..], &[&in_url]].concat(), batch.as_bytes())
    });

    for (what, token) in [("of another agent", &bank.token), ("of a reader", &reader), ("of an operator", &operator)] {
        for route in ["batches", "hello"] {
            let body = if route == "hello" { shop.hello() } else { shop.batch() }.to_string();
            refusals.sees(403, "forbidden", what, || site.post(token, &shop.route(route), &[], body.as_bytes()));
        }
    }
    // A stream of another agent under its own name.
    let (mut stolen, mut hello) = (bank.batch(), bank.hello());
    stolen["stream"] = json!(shop.stream);
    hello["stream"] = json!(shop.stream);
    refusals.sees(403, "forbidden", "another's stream", || bank.send(&site, &stolen));
    refusals.sees(403, "forbidden", "another's stream", || {
        site.post(&bank.token, &bank.route("hello"), &[], hello.to_string().as_bytes())
    });
    // An agent reads nothing and changes nothing; a reader changes nothing.
    refusals.sees(403, "forbidden", "an agent reads", || site.get(&shop.token, "/agents"));
    let put = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let url = site.url("/agents/shop/settings");
        site.curl(&["-X", "PUT", "-H", &bearer, "-H", "Content-Type: application/json", "-d", "{\"share\":0.5}", &url])
    };
    for (what, token) in [("an agent changes", &shop.token), ("a reader changes", &reader)] {
        refusals.sees(403, "forbidden", what, || put(token));
    }
    assert_eq!(site.get(&reader, "/agents").status, 200);
    assert_eq!(put(&operator).status, 200);
    refusals.settle(&operator);
    // The page's door wants the secret of its URL, and no token is one there.
    let (door, secret) = site.page.split_at(site.page.trim_end_matches('/').rfind('/').unwrap() + 1);
    let bearer = format!("Authorization: Bearer {operator}");
    for path in ["", "api/1/agents", &format!("{}x/", &secret[..secret.len() - 2])] {
        let answer = site.curl(&["-H", &bearer, &format!("{door}{path}")]);
        assert!(matches!(answer.status, 403 | 404), "{path}: {answer:?}");
    }
    assert_eq!(site.curl(&[&format!("{}api/1/agents", site.page)]).status, 200);

    // One that is revoked is worth nothing from then on, on a connection that is open as well.
    let mut open = site.connect();
    open.stream.write_all(&shop.request(1)).unwrap();
    let response = open.response().unwrap();
    assert_eq!(response.status(), 200, "{}", response.head);
    parties::ask(&yamabiko(), &["tap", "manager", "token", "revoke", "shop", "--data", str_of(&site.data)]).unwrap();
    let kept = site.kept();
    open.stream.write_all(&shop.request(1)).unwrap();
    let response = open.response().unwrap();
    assert_eq!(response.status(), 401, "{}", response.head);
    assert_eq!(site.kept(), kept);
    let list = parties::ask(&yamabiko(), &["tap", "manager", "token", "list", "--data", str_of(&site.data)]).unwrap();
    let line = list.lines().find(|line| line.contains("shop")).unwrap();
    assert!(line.contains("revoked"), "{list}");
    // No secret is in the list, in the log, or in the index.
    let log = site.serving.running.stderr();
    for token in [&shop.token, &bank.token, &reader, &operator] {
        let secret = token.split_once('.').unwrap().1;
        assert!(!list.contains(secret) && !log.contains(secret));
        for entry in fs::read_dir(&site.data).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            let bytes = fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{:?}", entry.path());
        }
    }
    bank_goes_on(&site, bank);
}

fn bank_goes_on(site: &Site, mut bank: Paper) {
    bank.goes_on(site);
    assert_eq!(site.stored()["streams"][&bank.stream], 1);
}

#[test]
fn oversized_and_malformed_requests_are_refused() {
    let site = Site::start(&[]);
    let mut shop = Paper::known(&site, "shop", "a");
    shop.goes_on(&site);
    let route = shop.route("batches");
    let (boss, mut refusals) = (site.token("boss", "operator"), Refusals::of(&site));
    // Compressed: incompressible bytes, with and without an announced length.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take((2 << 20) + 1)
    .collect();
    for more in [&[][..], &["-H", "Transfer-Encoding: chunked"], &["-H", "Content-Encoding: gzip"], &["-H", "Expect:"]]
    {
        refusals.sees(413, "too_large", "too long packed", || site.post(&shop.token, &route, more, &noise));
    }
    // Unpacked: 2 KB a MB, as zeros and as JSON that would be a good batch.
    let zeros = gzip(&vec![b' '; (16 << 20) + 1]);
    assert!(zeros.len() < 1 << 20);
    refusals.sees(413, "too_large", "too long unpacked", || shop.send_bytes(&site, &zeros));
    let padded = shop.batch().to_string() + &" ".repeat(16 << 20);
    refusals.sees(413, "too_large", "too long unpacked", || shop.send_bytes(&site, &gzip(padded.as_bytes())));
    let many = shop.batch_of(shop.sequence, 20_001);
    refusals.sees(413, "too_large", "too many rows", || shop.send(&site, &many));

    let good = shop.batch().to_string();
    let packed = gzip(good.as_bytes());
    let flipped: Vec<u8> = {
        let mut bytes = packed.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        bytes
    };
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("no gzip", b"{}".to_vec()),
        ("half of the gzip", packed[..packed.len() / 2].to_vec()),
        ("gzip without its end", packed[..packed.len() - 4].to_vec()),
        ("a changed byte", flipped),
        ("bytes behind it", [&packed[..], b"more"].concat()),
        ("no JSON", gzip(b"rows, please")),
        ("no text", gzip(b"{\"stream\": \"\xff\xfe\"}")),
        ("half of the JSON", gzip(&good.as_bytes()[..good.len() / 2])),
        ("JSON twice", gzip(format!("{good}{good}").as_bytes())),
        ("brackets without end", gzip("[".repeat(100_000).as_bytes())),
        ("an empty object", gzip(b"{}")),
        ("a list", gzip(format!("[{good}]").as_bytes())),
    ] {
        refusals.sees(400, "malformed", what, || shop.send_bytes(&site, &bytes));
    }
    for (what, change) in [
        ("a strange field", &["payload"][..]),
        ("a strange field of a row", &["rows", "0", "payload"]),
        ("a number for a text", &["stream"]),
        ("a text for rows", &["rows"]),
    ] {
        let mut batch = shop.batch();
        *at(&mut batch, change) = if change.last() == Some(&"stream") { json!(5) } else { json!("x") };
        refusals.sees(400, "malformed", what, || shop.send(&site, &batch));
    }
    for lines in [&["-H", "Content-Type: text/plain"][..], &["-H", "Content-Type: multipart/form-data"]] {
        let (bearer, url) = (format!("Authorization: Bearer {}", shop.token), site.url(&route));
        let words = [&["-H", &bearer, "--data-binary", "@-"], lines, &[&url[..]]].concat();
        refusals
            .sees(415, "unsupported_media_type", "no JSON by its own word", || site.curl_with(&words, good.as_bytes()));
    }
    let odd = ["-H", "Content-Encoding: br"];
    refusals.sees(415, "unsupported_media_type", "another packing", || {
        site.post(&shop.token, &route, &odd, good.as_bytes())
    });

    let (bearer, url) = (format!("Authorization: Bearer {}", shop.token), site.url(&route));
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        refusals.sees(405, "method_not_allowed", method, || site.curl(&["-X", method, "-H", &bearer, &url]));
    }
    for route in ["/nowhere", "/agents/shop/batches/1", "/agents/shop%2Fbatches"] {
        let answer = site.get(&shop.token, route);
        assert!(matches!(answer.status, 403..=405), "{route}: {answer:?}");
        let why =
            ["forbidden", "not_found", "method_not_allowed"].into_iter().find(|why| answer.body["error"] == **why);
        refusals.made(why.expect("a known one"));
    }
    refusals.settle(&boss);
    shop.goes_on(&site);
}

/// The place in a document, made if it is not there.
pub fn at<'a>(document: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(document, |inner, step| match step.parse::<usize>() {
        Ok(number) => &mut inner[number],
        Err(_) => &mut inner[*step],
    })
}

#[test]
fn batches_are_accepted_once_and_in_order() {
    let site = Site::start(&[]);
    let mut shop = Paper::known(&site, "shop", "a");
    let (first, second) = (shop.goes_on(&site), shop.goes_on(&site));
    let (boss, mut refusals) = (site.token("boss", "operator"), Refusals::of(&site));
    for (what, batch) in [("the last one again", &second), ("an older one", &first)] {
        let body = refusals.sees(409, "already_stored", what, || shop.send(&site, batch));
        assert_eq!(body["stored_through"], 2, "{what}");
    }
    // The same number with other rows is not stored either, and is reported as a conflict.
    let body = refusals.sees(409, "conflict", "other rows under a number", || shop.send(&site, &shop.batch_of(2, 7)));
    assert_eq!(body["stored_through"], 2);
    for number in [4, 5, 1_000_000] {
        let mut ahead = shop.batch();
        ahead["sequence"] = json!(number);
        let body = refusals.sees(409, "sequence_gap", "a number is missing", || shop.send(&site, &ahead));
        assert_eq!(body["stored_through"], 2, "{number}");
    }
    // A stream that does not begin at its first batch.
    let mut other = shop.batch();
    other["stream"] = json!("c".repeat(32));
    refusals.sees(409, "sequence_gap", "the middle of a stream", || shop.send(&site, &other));
    refusals.settle(&boss);
    // Also after the manager was killed: acknowledged batches are stored.
    let stored = site.kept();
    let Site { serving, data, workspace, .. } = site;
    serving.running.signal(Signal::SIGKILL);
    drop(serving);
    let again = Site::start_in(workspace, data, &[]);
    assert_eq!(again.kept(), stored);
    let body = Refusals::of(&again).sees(409, "already_stored", "after a kill", || shop.send(&again, &second));
    assert_eq!(body["stored_through"], 2);
    shop.goes_on(&again);
}

/// Requests that no client sends: they end, nothing is stored, and others are served meanwhile.
#[test]
fn incomplete_batches_store_nothing() {
    let site = Site::start(&[]);
    let mut shop = Paper::known(&site, "shop", "a");
    shop.goes_on(&site);
    let kept = site.kept();
    let whole =
        Paper { name: "shop".into(), token: shop.token.clone(), stream: shop.stream.clone(), sequence: 2 }.request(2);

    // Half of the head, half of the body, and gone; and the same by those who stay.
    let mut staying = Vec::new();
    for part in [10, 100, whole.len() / 2, whole.len() - 1] {
        let mut leaves = site.connect();
        leaves.stream.write_all(&whole[..part]).unwrap();
        leaves.stream.flush().unwrap();
        drop(leaves);
        let mut stays = site.connect();
        stays.stream.write_all(&whole[..part]).unwrap();
        stays.stream.flush().unwrap();
        staying.push(stays);
    }
    // A length beyond the body, an invalid one, two different ones, and both framings at the same time.
    for lines in [
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
    ] {
        let mut odd = site.connect();
        odd.stream.write_all(shop.head(lines).as_bytes()).unwrap();
        odd.stream.write_all(b"{\"a\":0}").unwrap();
        let _ = odd.stream.flush();
        if let Ok(response) = odd.response() {
            assert!((400..500).contains(&response.status()), "{lines}: {}", response.head);
        }
    }
    // Heads without measure.
    for lines in [format!("X-Long: {}\r\n", "a".repeat(1 << 20)), "a: b\r\n".repeat(50_000)] {
        let mut huge = site.connect();
        // The connection may close in the middle.
        let sent = huge.stream.write_all(shop.head(&lines).as_bytes()).and_then(|()| huge.stream.flush());
        if let (Ok(()), Ok(response)) = (sent, huge.response()) {
            assert!((400..500).contains(&response.status()), "{}", response.head);
        }
    }
    // No TLS at all.
    let mut plain = TcpStream::connect(site.serving.address).unwrap();
    plain.write_all(&whole).unwrap();
    // A body that comes a byte at a time, while the same agent goes on elsewhere.
    let mut slow = site.connect();
    let (head, body) = whole.split_at(whole.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4);
    slow.stream.write_all(head).unwrap();
    for byte in &body[..20] {
        slow.stream.write_all(&[*byte]).unwrap();
        slow.stream.flush().unwrap();
        assert_eq!(site.kept(), kept);
    }
    shop.goes_on(&site);
    // It comes to its end late, when its number is stored already.
    slow.stream.write_all(&body[20..]).unwrap();
    let response = slow.response().unwrap();
    assert_eq!(response.status(), 409, "{}", response.head);
    drop(staying);
    assert_eq!(site.stored()["rows"], 4);
    shop.goes_on(&site);
    assert!(site.stored()["rows"] == 6 && site.stored()["streams"].as_object().unwrap().len() == 1);
}
