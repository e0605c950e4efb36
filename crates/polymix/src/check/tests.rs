use proptest::prelude::*;

use super::*;
use crate::{CacheWorkload, Form, Object};

const NOW_MS: u64 = 1_700_000_000_000;

fn world(name: &str) -> Arc<World> {
    Arc::new(World::new(Arc::new(CacheWorkload::named(name).unwrap()), 7, 0x1f3a))
}

fn request(object: Object, gzip: bool) -> DrawnRequest {
    DrawnRequest {
        number: 0,
        object,
        form: Form::Basic,
        method: Method::Get,
        gzip,
        secure: false,
        repeat: false,
        offered: false,
        abort_after: None,
        post_bytes: 0,
    }
}

const ID: RequestId = RequestId { run: 1, sequence: 2 };

/// A correct response of the origin.
struct OriginResponse {
    identity: ResponseIdentity,
    status: &'static str,
    coding: &'static str,
    body: Vec<u8>,
}

fn origin_response(world: &World, object: Object, variant: Variant) -> OriginResponse {
    let version = world.version(object, (NOW_MS / 1000) as i64);
    let number = version.number;
    let identity = ResponseIdentity {
        world: world.id,
        object,
        version: number,
        variant,
        request_id: Some(ID),
        renewed: false,
        generated_unix_ms: NOW_MS,
    };
    let coding = if variant == Variant::Gzip { "gzip" } else { "" };
    OriginResponse { identity, status: "200 OK", coding, body: full(&world.body(object, version, variant)) }
}

fn full(body: &Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !body.piece(bytes.len() as u64).is_empty() {
        bytes.extend_from_slice(body.piece(bytes.len() as u64));
    }
    bytes
}

impl OriginResponse {
    fn head(&self) -> Vec<u8> {
        let mut head =
            format!("HTTP/1.1 {}\r\nAge:  7\r\ncontent-encoding:{}\r\nx-yamabiko: ", self.status, self.coding);
        let mut value = Vec::new();
        self.identity.write(&mut value);
        head.push_str(std::str::from_utf8(&value).unwrap());
        head.push_str("\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n");
        head.into_bytes()
    }

    /// The result of a checker that receives this response, its body cut into pieces that end at `cuts`.
    fn seen(&self, world: &Arc<World>, request: DrawnRequest, cuts: &[usize]) -> CheckedResponse {
        let mut checker = Checker::new(Arc::clone(world), request, ID, NOW_MS);
        checker.head(&self.head());
        let mut from = 0;
        for &cut in cuts.iter().chain([&self.body.len()]) {
            let cut = cut.clamp(from, self.body.len());
            assert_eq!(checker.body(&self.body[from..cut]), ReadDirective::Continue);
            from = cut;
        }
        checker.end()
    }
}

#[test]
fn correct_response_passes_the_check() {
    let world = world("modern");
    for (kind, gzip) in [(0, false), (0, true), (1, true), (3, true)] {
        for number in 0..20 {
            let object = Object { kind, number };
            let origin_response = origin_response(&world, object, world.variant(object, gzip));
            let seen = origin_response.seen(&world, request(object, gzip), &[]);
            let is_gzip = gzip && kind < 3;
            assert_eq!(
                seen,
                CheckedResponse {
                    identity: Some(origin_response.identity),
                    content: Content::Right,
                    body_bytes: origin_response.body.len() as u64,
                    age_s: Some(7),
                    content_encoding_gzip: is_gzip
                }
            );
        }
    }
}

#[test]
fn body_of_another_object_version_or_world_differs() {
    let world = world("modern");
    let object = Object { kind: 3, number: 5 };
    let right = origin_response(&world, object, Variant::Plain);
    for identity in [
        ResponseIdentity { object: Object { number: 6, ..object }, ..right.identity },
        ResponseIdentity { object: Object { kind: 4, ..object }, ..right.identity },
        ResponseIdentity { version: right.identity.version + 1, ..right.identity },
        ResponseIdentity { world: 0x1f3b, ..right.identity },
    ] {
        let origin_response =
            OriginResponse { identity, body: right.body.clone(), ..origin_response(&world, object, Variant::Plain) };
        let seen = origin_response.seen(&world, request(object, true), &[]);
        assert!(matches!(seen.content, Content::Differs { at: 0..16 }), "{identity:?}: {seen:?}");
        assert_eq!(
            seen.identity,
            Some(identity),
            "the checker reports the identity, the verifier decides whether it is correct"
        );
    }
    // A complete response for another object passes: its body matches its own identity.
    let other = Object { kind: 3, number: 6 };
    assert_eq!(
        origin_response(&world, other, Variant::Plain).seen(&world, request(object, true), &[]).content,
        Content::Right
    );
    let elsewhere = world.with_id(9);
    assert_eq!(
        origin_response(&elsewhere, other, Variant::Plain).seen(&world, request(object, true), &[]).content,
        Content::Right
    );
}

#[test]
fn content_codings_changed_by_a_proxy_are_detected() {
    let world = world("modern");
    let object = Object { kind: 1, number: 5 };
    let (plain, gzip) =
        (origin_response(&world, object, Variant::Plain), origin_response(&world, object, Variant::Gzip));
    // A text body inflated by the proxy can still be compared.
    let inflated = OriginResponse {
        identity: gzip.identity,
        body: plain.body.clone(),
        coding: "",
        ..origin_response(&world, object, Variant::Gzip)
    };
    let seen = inflated.seen(&world, request(object, false), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Right, false));
    let broken = OriginResponse { body: plain.body[1..].to_vec(), ..inflated };
    assert!(matches!(broken.seen(&world, request(object, false), &[]).content, Content::Differs { .. }));
    // A body deflated by the proxy cannot be compared.
    let deflated = OriginResponse {
        identity: plain.identity,
        coding: "gzip",
        body: vec![1, 2, 3],
        ..origin_response(&world, object, Variant::Plain)
    };
    let seen = deflated.seen(&world, request(object, true), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Recoded, true));
    let brotli = OriginResponse { coding: "br", ..deflated };
    let seen = brotli.seen(&world, request(object, true), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Recoded, false));
    // A gzip body without its Content-Encoding field is not the plain text.
    let without_coding = OriginResponse { coding: "", ..origin_response(&world, object, Variant::Gzip) };
    assert_eq!(without_coding.seen(&world, request(object, true), &[]).content, Content::Differs { at: 0 });
}

#[test]
fn response_without_comparable_body_is_not_compared() {
    let world = world("polymix-1");
    let object = Object { kind: 0, number: 5 };
    let full = origin_response(&world, object, Variant::Plain);
    let not_modified = OriginResponse {
        status: "304 Not Modified",
        body: Vec::new(),
        ..origin_response(&world, object, Variant::Plain)
    };
    let seen = not_modified.seen(&world, request(object, false), &[]);
    assert_eq!((seen.content, seen.identity), (Content::NotCompared, Some(full.identity)));
    let error = OriginResponse {
        status: "502 Bad Gateway",
        body: b"sorry".to_vec(),
        ..origin_response(&world, object, Variant::Plain)
    };
    assert_eq!(error.seen(&world, request(object, false), &[]).content, Content::NotCompared);
    let head = OriginResponse { body: Vec::new(), ..origin_response(&world, object, Variant::Plain) };
    let head_request = DrawnRequest { method: Method::Head, ..request(object, false) };
    assert_eq!(head.seen(&world, head_request, &[]).content, Content::NotCompared);
    let unknown_kind = OriginResponse {
        identity: ResponseIdentity { object: Object { kind: 25, number: 1 }, ..full.identity },
        ..origin_response(&world, object, Variant::Plain)
    };
    assert_eq!(unknown_kind.seen(&world, request(object, false), &[]).content, Content::NotCompared);
}

#[test]
fn response_heads_in_unusual_forms_are_parsed() {
    let world = world("polymix-1");
    let object = Object { kind: 0, number: 5 };
    let right = origin_response(&world, object, Variant::Plain);
    let mut value = Vec::new();
    right.identity.write(&mut value);
    let value = String::from_utf8(value).unwrap();
    let identity_of = |heads: &[String]| {
        let mut checker = Checker::new(Arc::clone(&world), request(object, false), ID, NOW_MS);
        heads.iter().for_each(|head| checker.head(head.as_bytes()));
        checker.end().identity
    };
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    assert_eq!(identity_of(&[ok("")]), None);
    assert_eq!(identity_of(&[ok(&format!("X-YAMABIKO:{value} \r\n"))]), Some(right.identity));
    assert_eq!(
        identity_of(&[format!("HTTP/1.0 200\nx-yamabiko:\t{value}\n\n")]),
        Some(right.identity),
        "bare line feeds"
    );
    assert_eq!(identity_of(&[ok(&format!("x-yamabiko: {value}\r\nx-yamabiko: {value}\r\n"))]), Some(right.identity));
    assert_eq!(identity_of(&[ok(&format!("x-yamabiko: {value}\r\nx-yamabiko: 1.A1.1.p.-.-.1\r\n"))]), None, "which?");
    assert_eq!(identity_of(&[ok(&format!("x-yamabiko: {value}, {value}\r\n"))]), None);
    assert_eq!(identity_of(&[ok(&format!("x-yamabiko-request-id: {value}\r\n"))]), None);
    let interim = format!("HTTP/1.1 103 Early Hints\r\nx-yamabiko: {value}\r\n\r\n");
    assert_eq!(identity_of(&[interim, ok("")]), None, "an interim response has no identity");
    assert_eq!(identity_of(&["\r\n".into()]), None);
    assert_eq!(identity_of(&[String::new()]), None);
}

#[test]
fn checker_signals_the_planned_abort_of_the_client() {
    let world = world("polymix-1");
    let object = (0..).map(|number| Object { kind: 0, number }).find(|it| world.size(*it) > 4000).unwrap();
    let right = origin_response(&world, object, Variant::Plain);
    let aborting = DrawnRequest { abort_after: Some(1000), ..request(object, false) };
    let mut checker = Checker::new(Arc::clone(&world), aborting, ID, NOW_MS);
    checker.head(&right.head());
    assert_eq!(checker.body(&right.body[..999]), ReadDirective::Continue);
    assert_eq!(
        checker.clone().end().content,
        Content::Short,
        "an end one byte before the planned abort is not planned"
    );
    assert_eq!(checker.body(&right.body[999..1000]), ReadDirective::Abort);
    let seen = checker.end();
    assert_eq!((seen.content, seen.body_bytes), (Content::Right, 1000));
}

proptest! {
    /// A flipped bit and a missing or additional byte are detected at their offset, wherever the body is cut into
    /// pieces.
    #[test]
    fn single_wrong_byte_is_detected(
        kind in 0..6u8, number in 0..1000u64, gzip: bool, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        at: prop::sample::Index, bit in 0..8u8,
    ) {
        let world = world("modern");
        let object = Object { kind, number };
        let mut origin_response = origin_response(&world, object, world.variant(object, gzip));
        prop_assume!(origin_response.body.len() < 200_000);
        let request = request(object, gzip);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(origin_response.body.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(origin_response.seen(&world, request, &cuts).content, Content::Right);
        let at = at.index(origin_response.body.len());
        // The wrong byte may be on either side of a cut.
        for at in [Some(at), cuts.first().copied(), cuts.first().and_then(|cut| cut.checked_sub(1))].into_iter().flatten() {
            if at < origin_response.body.len() {
                origin_response.body[at] ^= 1 << bit;
                let content = origin_response.seen(&world, request, &cuts).content;
                prop_assert_eq!(content, Content::Differs { at: at as u64 });
                origin_response.body[at] ^= 1 << bit;
            }
        }
        let last = origin_response.body.pop().unwrap();
        prop_assert_eq!(origin_response.seen(&world, request, &cuts).content, Content::Short);
        origin_response.body.extend([last, 0]);
        prop_assert_eq!(origin_response.seen(&world, request, &cuts).content, Content::Long);
    }

    #[test]
    fn arbitrary_response_heads_do_not_panic(head: Vec<u8>, body: Vec<u8>) {
        let mut checker = Checker::new(world("modern"), request(Object::default(), true), ID, NOW_MS);
        checker.head(&head);
        checker.body(&body);
        prop_assert_eq!(checker.end().body_bytes, body.len() as u64);
    }
}
