use proptest::prelude::*;

use super::*;
use crate::{CacheWorkload, Form, Object};

const NOW_MS: u64 = 1_700_000_000_000;

fn world(name: &str) -> Arc<World> {
    Arc::new(World::new(Arc::new(CacheWorkload::named(name).unwrap()), 7, 0x1f3a))
}

fn ask(object: Object, gzip: bool) -> Ask {
    Ask {
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

/// A reply of the origin's, as it should be.
struct Reply {
    stamp: Stamp,
    status: &'static str,
    coding: &'static str,
    body: Vec<u8>,
}

fn reply(world: &World, object: Object, variant: Variant) -> Reply {
    let version = world.version(object, (NOW_MS / 1000) as i64);
    let number = version.number;
    let stamp =
        Stamp { world: world.id, object, version: number, variant, ask: Some(ID), renewed: false, made_ms: NOW_MS };
    let coding = if variant == Variant::Gzip { "gzip" } else { "" };
    Reply { stamp, status: "200 OK", coding, body: whole(&world.body(object, version, variant)) }
}

fn whole(body: &Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !body.piece(bytes.len() as u64).is_empty() {
        bytes.extend_from_slice(body.piece(bytes.len() as u64));
    }
    bytes
}

impl Reply {
    fn head(&self) -> Vec<u8> {
        let mut head =
            format!("HTTP/1.1 {}\r\nAge:  7\r\ncontent-encoding:{}\r\nx-yamabiko: ", self.status, self.coding);
        let mut value = Vec::new();
        self.stamp.write(&mut value);
        head.push_str(std::str::from_utf8(&value).unwrap());
        head.push_str("\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n");
        head.into_bytes()
    }

    /// What a checker makes of it, its body cut into pieces that end at `cuts`.
    fn seen(&self, world: &Arc<World>, ask: Ask, cuts: &[usize]) -> Seen {
        let mut checker = Checker::new(Arc::clone(world), ask, ID, NOW_MS);
        checker.head(&self.head());
        let mut from = 0;
        for &cut in cuts.iter().chain([&self.body.len()]) {
            let cut = cut.clamp(from, self.body.len());
            assert_eq!(checker.body(&self.body[from..cut]), Go::On);
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
            let reply = reply(&world, object, world.variant(object, gzip));
            let seen = reply.seen(&world, ask(object, gzip), &[]);
            let is_gzip = gzip && kind < 3;
            assert_eq!(
                seen,
                Seen {
                    stamp: Some(reply.stamp),
                    content: Content::Right,
                    body_bytes: reply.body.len() as u64,
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
    let right = reply(&world, object, Variant::Plain);
    for stamp in [
        Stamp { object: Object { number: 6, ..object }, ..right.stamp },
        Stamp { object: Object { kind: 4, ..object }, ..right.stamp },
        Stamp { version: right.stamp.version + 1, ..right.stamp },
        Stamp { world: 0x1f3b, ..right.stamp },
    ] {
        let reply = Reply { stamp, body: right.body.clone(), ..reply(&world, object, Variant::Plain) };
        let seen = reply.seen(&world, ask(object, true), &[]);
        assert!(matches!(seen.content, Content::Differs { at: 0..16 }), "{stamp:?}: {seen:?}");
        assert_eq!(seen.stamp, Some(stamp), "the judge says what it means");
    }
    // A whole reply of another object is right in itself.
    let other = Object { kind: 3, number: 6 };
    assert_eq!(reply(&world, other, Variant::Plain).seen(&world, ask(object, true), &[]).content, Content::Right);
    let elsewhere = world.with_id(9);
    assert_eq!(reply(&elsewhere, other, Variant::Plain).seen(&world, ask(object, true), &[]).content, Content::Right);
}

#[test]
fn content_codings_changed_by_a_proxy_are_detected() {
    let world = world("modern");
    let object = Object { kind: 1, number: 5 };
    let (plain, gzip) = (reply(&world, object, Variant::Plain), reply(&world, object, Variant::Gzip));
    // Inflated by the proxy: the text can still be compared.
    let inflated =
        Reply { stamp: gzip.stamp, body: plain.body.clone(), coding: "", ..reply(&world, object, Variant::Gzip) };
    let seen = inflated.seen(&world, ask(object, false), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Right, false));
    let broken = Reply { body: plain.body[1..].to_vec(), ..inflated };
    assert!(matches!(broken.seen(&world, ask(object, false), &[]).content, Content::Differs { .. }));
    // Deflated by the proxy: it cannot.
    let deflated =
        Reply { stamp: plain.stamp, coding: "gzip", body: vec![1, 2, 3], ..reply(&world, object, Variant::Plain) };
    let seen = deflated.seen(&world, ask(object, true), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Recoded, true));
    let brotli = Reply { coding: "br", ..deflated };
    let seen = brotli.seen(&world, ask(object, true), &[]);
    assert_eq!((seen.content, seen.content_encoding_gzip), (Content::Recoded, false));
    // Raw gzip with its coding's field lost is no text.
    let lost = Reply { coding: "", ..reply(&world, object, Variant::Gzip) };
    assert_eq!(lost.seen(&world, ask(object, true), &[]).content, Content::Differs { at: 0 });
}

#[test]
fn response_without_comparable_body_is_not_compared() {
    let world = world("polymix-1");
    let object = Object { kind: 0, number: 5 };
    let whole = reply(&world, object, Variant::Plain);
    let not_modified = Reply { status: "304 Not Modified", body: Vec::new(), ..reply(&world, object, Variant::Plain) };
    let seen = not_modified.seen(&world, ask(object, false), &[]);
    assert_eq!((seen.content, seen.stamp), (Content::NotLooked, Some(whole.stamp)));
    let error = Reply { status: "502 Bad Gateway", body: b"sorry".to_vec(), ..reply(&world, object, Variant::Plain) };
    assert_eq!(error.seen(&world, ask(object, false), &[]).content, Content::NotLooked);
    let head = Reply { body: Vec::new(), ..reply(&world, object, Variant::Plain) };
    let head_ask = Ask { method: Method::Head, ..ask(object, false) };
    assert_eq!(head.seen(&world, head_ask, &[]).content, Content::NotLooked);
    let strange = Reply {
        stamp: Stamp { object: Object { kind: 25, number: 1 }, ..whole.stamp },
        ..reply(&world, object, Variant::Plain)
    };
    assert_eq!(strange.seen(&world, ask(object, false), &[]).content, Content::NotLooked);
}

#[test]
fn response_heads_in_unusual_forms_are_parsed() {
    let world = world("polymix-1");
    let object = Object { kind: 0, number: 5 };
    let right = reply(&world, object, Variant::Plain);
    let mut value = Vec::new();
    right.stamp.write(&mut value);
    let value = String::from_utf8(value).unwrap();
    let stamp_of = |heads: &[String]| {
        let mut checker = Checker::new(Arc::clone(&world), ask(object, false), ID, NOW_MS);
        heads.iter().for_each(|head| checker.head(head.as_bytes()));
        checker.end().stamp
    };
    let ok = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    assert_eq!(stamp_of(&[ok("")]), None);
    assert_eq!(stamp_of(&[ok(&format!("X-YAMABIKO:{value} \r\n"))]), Some(right.stamp));
    assert_eq!(stamp_of(&[format!("HTTP/1.0 200\nx-yamabiko:\t{value}\n\n")]), Some(right.stamp), "bare line feeds");
    assert_eq!(stamp_of(&[ok(&format!("x-yamabiko: {value}\r\nx-yamabiko: {value}\r\n"))]), Some(right.stamp));
    assert_eq!(stamp_of(&[ok(&format!("x-yamabiko: {value}\r\nx-yamabiko: 1.A1.1.p.-.-.1\r\n"))]), None, "which?");
    assert_eq!(stamp_of(&[ok(&format!("x-yamabiko: {value}, {value}\r\n"))]), None);
    assert_eq!(stamp_of(&[ok(&format!("x-yamabiko-request-id: {value}\r\n"))]), None);
    let interim = format!("HTTP/1.1 103 Early Hints\r\nx-yamabiko: {value}\r\n\r\n");
    assert_eq!(stamp_of(&[interim, ok("")]), None, "an interim response is another");
    assert_eq!(stamp_of(&["\r\n".into()]), None);
    assert_eq!(stamp_of(&[String::new()]), None);
}

#[test]
fn checker_signals_the_planned_abort_of_the_client() {
    let world = world("polymix-1");
    let object = (0..).map(|number| Object { kind: 0, number }).find(|it| world.size(*it) > 4000).unwrap();
    let right = reply(&world, object, Variant::Plain);
    let leaving = Ask { abort_after: Some(1000), ..ask(object, false) };
    let mut checker = Checker::new(Arc::clone(&world), leaving, ID, NOW_MS);
    checker.head(&right.head());
    assert_eq!(checker.body(&right.body[..999]), Go::On);
    assert_eq!(checker.clone().end().content, Content::Short, "one byte before, the end was not planned");
    assert_eq!(checker.body(&right.body[999..1000]), Go::AbortHere);
    let seen = checker.end();
    assert_eq!((seen.content, seen.body_bytes), (Content::Right, 1000));
}

proptest! {
    /// Wherever the body is cut into pieces: one bit, one byte too few or too many are found, and where.
    #[test]
    fn single_wrong_byte_is_detected(
        kind in 0..6u8, number in 0..1000u64, gzip: bool, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        at: prop::sample::Index, bit in 0..8u8,
    ) {
        let world = world("modern");
        let object = Object { kind, number };
        let mut reply = reply(&world, object, world.variant(object, gzip));
        prop_assume!(reply.body.len() < 200_000);
        let ask = ask(object, gzip);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(reply.body.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(reply.seen(&world, ask, &cuts).content, Content::Right);
        let at = at.index(reply.body.len());
        // Also on both sides of a cut.
        for at in [Some(at), cuts.first().copied(), cuts.first().and_then(|cut| cut.checked_sub(1))].into_iter().flatten() {
            if at < reply.body.len() {
                reply.body[at] ^= 1 << bit;
                prop_assert_eq!(reply.seen(&world, ask, &cuts).content, Content::Differs { at: at as u64 });
                reply.body[at] ^= 1 << bit;
            }
        }
        let last = reply.body.pop().unwrap();
        prop_assert_eq!(reply.seen(&world, ask, &cuts).content, Content::Short);
        reply.body.extend([last, 0]);
        prop_assert_eq!(reply.seen(&world, ask, &cuts).content, Content::Long);
    }

    #[test]
    fn arbitrary_response_heads_do_not_panic(head: Vec<u8>, body: Vec<u8>) {
        let mut checker = Checker::new(world("modern"), ask(Object::default(), true), ID, NOW_MS);
        checker.head(&head);
        checker.body(&body);
        prop_assert_eq!(checker.end().body_bytes, body.len() as u64);
    }
}
