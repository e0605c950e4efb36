//! Each kind of incorrect response and the most similar correct one, as exchanges written by hand.

use std::time::Duration;

use schema::cache_part::EXAMPLES_MAX;

use super::*;
use crate::{CacheWorkload, Distribution, Expires};

const RUN: u32 = 0xbeef;
const OBJECT: Object = Object { kind: 0, number: 7 };
/// An arbitrary time, in s since 1970.
const NOW_S: i64 = 1_795_000_000;

/// Objects that change every hundred seconds.
fn world_with(change: impl FnOnce(&mut CacheWorkload)) -> Arc<World> {
    let mut spec = CacheWorkload::polymix(1);
    spec.think = None;
    spec.kinds[0].life.cycle = Distribution::Constant(100.0);
    spec.kinds[0].life.variance = 0.0;
    change(&mut spec);
    Arc::new(World::new(Arc::new(spec), 7, 0x51))
}

fn world() -> Arc<World> {
    world_with(|_| ())
}

fn verifier(world: &Arc<World>) -> Verifier {
    Verifier::new(Arc::clone(world), (Timestamp::ZERO, None))
}

/// A complete and correct response of the origin, generated for this request.
fn origin_response(world: &World, sequence: u64, requested_unix_ms: u64) -> CacheExchange {
    let expected = world.version(OBJECT, unix_s(requested_unix_ms));
    let at = Timestamp::from_nanos(sequence * 1_000_000_000);
    CacheExchange {
        sequence,
        run: RUN,
        world: world.id,
        kind: OBJECT.kind,
        object: OBJECT.number,
        object_bytes: 1000,
        cacheable: true,
        scheduled_at: at,
        sent_at: Some(at),
        done_at: at + Duration::from_millis(10),
        requested_unix_ms,
        status: 200,
        from_sequence: Some(sequence),
        from_run: Some(RUN),
        response_world: world.id,
        response_object: Some(OBJECT.number),
        response_kind: OBJECT.kind,
        response_version: expected.number,
        generated_unix_ms: requested_unix_ms,
        expected_version: expected.number,
        expires_unix_s: expected.expires_s.unwrap_or(i64::MAX),
        content: CacheContent::Right,
        body_bytes: 1000,
        ..CacheExchange::default()
    }
}

/// The same response from a cache, generated for request 3 at another time.
fn cached_response(world: &World, sequence: u64, generated_unix_ms: u64, requested_unix_ms: u64) -> CacheExchange {
    CacheExchange {
        from_sequence: Some(3),
        response_version: world.version(OBJECT, unix_s(generated_unix_ms)).number,
        generated_unix_ms,
        ..origin_response(world, sequence, requested_unix_ms)
    }
}

fn verified(world: &Arc<World>, exchange: CacheExchange) -> (bool, Option<Wrong>) {
    let mut exchange = exchange;
    verifier(world).add(&mut exchange);
    (exchange.hit, exchange.wrong)
}

/// The fault found in a response of the origin that `change` has changed.
fn fault_in_changed(change: impl FnOnce(&mut CacheExchange)) -> Option<Wrong> {
    let world = world();
    let mut exchange = origin_response(&world, 5, NOW_S as u64 * 1000);
    change(&mut exchange);
    verified(&world, exchange).1
}

/// The fault found in a fresh copy that `change` has changed.
fn fault_in_changed_copy(change: impl FnOnce(&mut CacheExchange)) -> Option<Wrong> {
    fault_in_changed(|exchange| {
        exchange.from_sequence = Some(3);
        change(exchange);
    })
}

#[test]
fn response_generated_for_another_request_is_a_hit() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let hit = |change: fn(&mut CacheExchange)| {
        let mut exchange = origin_response(&world, 5, now);
        change(&mut exchange);
        verified(&world, exchange)
    };
    assert_eq!(hit(|_| ()), (false, None));
    assert_eq!(hit(|row| row.from_sequence = Some(4)), (true, None));
    assert_eq!(hit(|row| row.from_run = Some(1)), (true, None), "stored in an earlier run");
    let renewed = |row: &mut CacheExchange| (row.from_sequence, row.from_run, row.renewed) = (None, None, true);
    assert_eq!(hit(renewed), (true, None), "renewed by a 304");
    assert_eq!(
        hit(|row| (row.from_sequence, row.from_run) = (None, None)),
        (false, None),
        "generated for a request without id"
    );
    let not_modified = |row: &mut CacheExchange| {
        (row.status, row.form, row.from_sequence, row.from_run) = (304, CacheForm::Ims304, None, None);
    };
    assert_eq!(hit(not_modified), (false, None), "the proxy may have sent the condition itself");
    assert_eq!(hit(|row| (row.status, row.response_object) = (0, None)), (false, None));
}

#[test]
fn response_without_identity_or_of_another_world_is_foreign() {
    let no_identity =
        |row: &mut CacheExchange| (row.response_object, row.failure) = (None, Some(FailureCause::UnexpectedBody));
    assert_eq!(fault_in_changed(no_identity), Some(Wrong::Foreign));
    assert_eq!(fault_in_changed(|row| row.response_world += 1), Some(Wrong::Foreign));
    // An error page has a failure cause of its own; an incomplete head has no identity to verify.
    assert_eq!(fault_in_changed(|row| (row.status, row.response_object) = (503, None)), None);
    assert_eq!(fault_in_changed(|row| (row.response_object, row.failure) = (None, Some(FailureCause::Reset))), None);
    assert_eq!(fault_in_changed(|row| (row.status, row.response_object) = (302, None)), Some(Wrong::Foreign));
}

#[test]
fn response_with_another_number_or_kind_is_the_wrong_object() {
    assert_eq!(fault_in_changed(|row| row.response_object = Some(8)), Some(Wrong::WrongObject));
    assert_eq!(fault_in_changed(|row| row.response_kind = 1), Some(Wrong::WrongObject));
}

#[test]
fn gzip_for_a_client_that_does_not_accept_it_is_the_wrong_variant() {
    assert_eq!(fault_in_changed(|row| row.body_gzip = true), Some(Wrong::WrongVariant));
    assert_eq!(fault_in_changed(|row| (row.body_gzip, row.accepts_gzip) = (true, true)), None);
    assert_eq!(
        fault_in_changed(|row| (row.accepts_gzip, row.variant_gzip) = (true, true)),
        None,
        "every client accepts a plain body"
    );
}

/// Behind a proxy that does not forward request ids, all responses are generated for requests without id.
#[test]
fn response_without_request_id_is_a_hit_if_generated_before_the_request() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let without_request_id = |generated_unix_ms| {
        let row = cached_response(&world, 5, generated_unix_ms, now);
        CacheExchange { from_sequence: None, from_run: None, ..row }
    };
    let hit = |row| verified(&world, row).0;
    assert!(!hit(without_request_id(now + 3000)), "fetched for this request");
    assert!(!hit(without_request_id(now)));
    assert!(!hit(without_request_id(now - CLOCK_SLACK_MS)), "within the tolerated clock difference");
    assert!(hit(without_request_id(now - CLOCK_SLACK_MS - 1)));
    assert!(
        hit(CacheExchange { renewed: true, ..without_request_id(now + 3000) }),
        "a cached response renewed by a 304 existed before"
    );
    assert!(!hit(CacheExchange { response_world: 9, ..without_request_id(now - 9000) }));

    // Ten misses of a proxy that drops request ids, then one old copy.
    let mut verifier = verifier(&world);
    for sequence in 3..13 {
        let without_id =
            CacheExchange { from_sequence: None, from_run: None, ..origin_response(&world, sequence, now) };
        verifier.add(&mut without_id.clone());
    }
    verifier.add(&mut without_request_id(now - 9000));
    let figures = verifier.finish();
    assert_eq!((figures.hits, figures.without_identity, figures.basic_answered), (1, 10, 11));
    assert!(figures.wrong.is_empty(), "{:?}", figures.wrong);
}

#[test]
fn miss_without_request_id_is_false_only_if_generated_after_the_request() {
    let world = world();
    let missed = |generated_unix_ms: fn(u64) -> u64| {
        let change = |_: &CacheExchange, second: &mut CacheExchange| {
            (second.from_sequence, second.from_run) = (None, None);
            second.generated_unix_ms = generated_unix_ms(second.requested_unix_ms);
        };
        after_a_fetch(&world, |_| (), change).0
    };
    assert_eq!(missed(|requested_ms| requested_ms), Some(Wrong::FalseMiss));
    assert_eq!(missed(|requested_ms| requested_ms - 1), None, "possibly a hit");
}

#[test]
fn body_that_differs_from_its_identity_is_wrong() {
    assert_eq!(fault_in_changed(|row| row.content = CacheContent::Differs), Some(Wrong::WrongBody));
    assert_eq!(fault_in_changed(|row| row.content = CacheContent::Long), Some(Wrong::WrongBody));
    assert_eq!(fault_in_changed(|row| row.content = CacheContent::Recoded), None);
    assert_eq!(fault_in_changed(|row| row.content = CacheContent::NotLooked), None);
}

#[test]
fn short_body_is_truncated_unless_the_connection_failed() {
    let short = |failure, aborted| {
        fault_in_changed(|row| (row.content, row.failure, row.aborted) = (CacheContent::Short, failure, aborted))
    };
    assert_eq!(short(Some(FailureCause::UnexpectedLength), false), Some(Wrong::Truncated));
    assert_eq!(short(None, false), Some(Wrong::Truncated));
    assert_eq!(short(None, true), None, "aborted as planned");
    assert_eq!(short(Some(FailureCause::ClosedEarly), false), None, "the framing shows that the body is incomplete");
    assert_eq!(short(Some(FailureCause::ResponseTimeout), false), None);
}

#[test]
fn planned_abort_may_be_forwarded_but_not_cached() {
    let world = world_with(|spec| spec.origin_abort = 1.0);
    let now = NOW_S as u64 * 1000;
    assert!(world.origin_aborts(RequestId { run: RUN, sequence: 3 }).is_some());
    let short = |generated_unix_ms| {
        let row = CacheExchange { content: CacheContent::Short, ..cached_response(&world, 5, generated_unix_ms, now) };
        verified(&world, row).1
    };
    assert_eq!(short(now - CLOCK_SLACK_MS), None);
    assert_eq!(short(now - CLOCK_SLACK_MS - 1), Some(Wrong::Truncated));

    // The same with a framing that shows it: a broken connection, and an incomplete body stored by the cache.
    let cut = |world: &Arc<World>, generated_unix_ms| {
        let failure = Some(FailureCause::ClosedEarly);
        verified(
            world,
            CacheExchange {
                content: CacheContent::Short,
                failure,
                ..cached_response(world, 5, generated_unix_ms, now)
            },
        )
        .1
    };
    assert_eq!(cut(&world, now - CLOCK_SLACK_MS), None);
    assert_eq!(cut(&world, now - CLOCK_SLACK_MS - 1), Some(Wrong::Truncated));
    assert_eq!(cut(&world_with(|_| ()), now - 9000), None, "the origin does not abort responses");
    let mut incomplete_copy = CacheExchange {
        content: CacheContent::Short,
        failure: Some(FailureCause::ClosedEarly),
        ..cached_response(&world, 5, now - 9000, now)
    };
    let mut verifier = verifier(&world);
    verifier.add(&mut incomplete_copy);
    let why = &verifier.finish().examples[0].why;
    assert!(why.ends_with("a response aborted by the origin was cached, generated for request 3"), "{why}");
}

#[test]
fn not_modified_is_false_for_a_client_without_a_current_copy() {
    let not_modified = |method, form| {
        fault_in_changed(|row| {
            (row.status, row.method, row.form) = (304, method, form);
            (row.response_object, row.content, row.body_bytes) = (None, CacheContent::NotLooked, 0);
        })
    };
    assert_eq!(not_modified(Method::Get, CacheForm::Ims304), None);
    assert_eq!(not_modified(Method::Get, CacheForm::Ims200), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Get, CacheForm::Basic), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Get, CacheForm::Reload), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Post, CacheForm::Basic), Some(Wrong::FalseNotModified));
    assert_eq!(fault_in_changed(|row| row.form = CacheForm::Ims304), None, "a 200 is always allowed");
}

#[test]
fn fresh_older_copy_may_answer_not_modified() {
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Distribution::Constant(50.0)));
    let expected = world.version(OBJECT, NOW_S);
    // The last copy of the version before was generated just before the change and is fresh for 50 s.
    let end_s = expected.modified_s - 1 + 50;
    let at = |ms| {
        let row = origin_response(&world, 5, ms);
        let row = CacheExchange { status: 304, form: CacheForm::Ims200, response_object: None, ..row };
        verified(&world, row).1
    };
    assert_eq!(at(end_s as u64 * 1000 + DATE_SLACK_MS), None);
    assert_eq!(at(end_s as u64 * 1000 + DATE_SLACK_MS + 1), Some(Wrong::FalseNotModified));
}

#[test]
fn hit_on_an_uncacheable_object_is_incorrect() {
    assert_eq!(fault_in_changed_copy(|row| row.cacheable = false), Some(Wrong::HitOnUncacheable));
    assert_eq!(fault_in_changed(|row| row.cacheable = false), None);
}

#[test]
fn reload_must_get_a_response_generated_after_the_request() {
    let reload = |old_ms| {
        fault_in_changed_copy(|row| {
            row.form = CacheForm::Reload;
            row.generated_unix_ms -= old_ms;
        })
    };
    assert_eq!(reload(CLOCK_SLACK_MS), None);
    assert_eq!(reload(CLOCK_SLACK_MS + 1), Some(Wrong::HitOnReload));
    assert_eq!(fault_in_changed(|row| row.form = CacheForm::Reload), None);
}

#[test]
fn response_generated_for_a_request_for_another_object_is_a_false_hit() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let hit = |before: CacheExchange, run: u32| {
        let (mut verifier, mut before) = (verifier(&world), before);
        verifier.add(&mut before);
        let mut exchange = CacheExchange { from_run: Some(run), ..cached_response(&world, 5, now, now) };
        verifier.add(&mut exchange);
        exchange.wrong
    };
    let same_object = origin_response(&world, 3, now);
    let other_object = CacheExchange { object: 8, response_object: Some(8), ..same_object };
    assert_eq!(hit(same_object, RUN), None);
    assert_eq!(hit(other_object, RUN), Some(Wrong::FalseHit));
    assert_eq!(
        hit(CacheExchange { sequence: 4, ..other_object }, RUN),
        None,
        "the object of a request that has not ended is unknown"
    );
    assert_eq!(hit(other_object, RUN + 1), None, "requests of another run are unknown");
    let follow_up = 3 + (1 << 40);
    let mut verifier = verifier(&world);
    verifier.add(&mut CacheExchange { sequence: follow_up, ..other_object });
    let mut exchange = CacheExchange { from_sequence: Some(follow_up), ..cached_response(&world, 5, now, now) };
    verifier.add(&mut exchange);
    assert_eq!(exchange.wrong, Some(Wrong::FalseHit));
    assert_eq!(fault_in_changed_copy(|row| row.method = Method::Post), Some(Wrong::FalseHit));
    assert_eq!(fault_in_changed_copy(|row| row.method = Method::Head), None);
}

#[test]
fn old_version_is_stale_one_second_after_the_change() {
    let world = world();
    let version = world.version(OBJECT, NOW_S);
    let end_ms = version.next_change_s as u64 * 1000;
    let at = |ms| verified(&world, cached_response(&world, 5, NOW_S as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms), None);
    assert_eq!(at(end_ms + DATE_SLACK_MS), None);
    assert_eq!(at(end_ms + DATE_SLACK_MS + 1), Some(Wrong::Stale));
    assert_eq!(verified(&world, origin_response(&world, 5, end_ms + 10_000)).1, None);
}

#[test]
fn think_time_extends_the_staleness_tolerance() {
    let world = world_with(|spec| spec.think = Some(Distribution::Constant(2.0)));
    let end_ms = world.version(OBJECT, NOW_S).next_change_s as u64 * 1000;
    let at = |ms| verified(&world, cached_response(&world, 5, NOW_S as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms + 2000 + DATE_SLACK_MS), None);
    assert_eq!(at(end_ms + 2000 + DATE_SLACK_MS + 1), Some(Wrong::Stale));
}

#[test]
fn old_version_within_its_lifetime_is_not_stale() {
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Distribution::Constant(150.0)));
    let made_s = world.version(OBJECT, NOW_S).next_change_s - 1;
    let end_ms = (made_s as u64 + 150) * 1000;
    let at = |ms| verified(&world, cached_response(&world, 5, made_s as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms + DATE_SLACK_MS), None, "the object has changed, but the copy is fresh");
    assert_eq!(at(end_ms + DATE_SLACK_MS + 1), Some(Wrong::Stale));

    // An expired copy of an unchanged object counts as renewed.
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Distribution::Constant(10.0)));
    let made_s = world.version(OBJECT, NOW_S).modified_s;
    assert_eq!(verified(&world, cached_response(&world, 5, made_s as u64 * 1000, (made_s as u64 + 90) * 1000)).1, None);

    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::Absent);
    assert_eq!(verified(&world, cached_response(&world, 5, NOW_S as u64 * 1000, (NOW_S as u64 + 9000) * 1000)).1, None);
}

/// The lifetime of a renewed copy begins at the 304 (RFC 9111, section 4.3.4), so that it may end after a
/// change.
#[test]
fn possibly_renewed_copy_is_possibly_stale_and_not_incorrect() {
    // The object changes every 100 s; copies are fresh for 30 s.
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Distribution::Constant(30.0)));
    let made_s = world.version(OBJECT, NOW_S).modified_s + 10;
    let change_s = world.version(OBJECT, made_s).next_change_s;
    let ms = |s: i64| s as u64 * 1000;
    let result_at = |at_ms, change: fn(&mut CacheExchange)| {
        let mut row = CacheExchange { renewable: true, ..cached_response(&world, 5, ms(made_s), at_ms) };
        change(&mut row);
        let mut verifier = verifier(&world);
        verifier.add(&mut row);
        (row.wrong, verifier.finish().possibly_stale)
    };
    // Expired long ago; a renewal one second before the change would last until `last_ms`.
    let last_ms = ms(change_s - 1 + 30) + DATE_SLACK_MS;
    assert_eq!(result_at(ms(change_s) - 1, |_| ()), (None, 0), "unchanged: counts as renewed");
    assert_eq!(result_at(ms(change_s + 9), |_| ()), (None, 1));
    assert_eq!(result_at(last_ms, |_| ()), (None, 1));
    assert_eq!(result_at(last_ms + 1, |_| ()), (Some(Wrong::Stale), 0), "no renewal lasts until then");
    // A copy that cannot be renewed.
    assert_eq!(result_at(ms(change_s + 9), |row| row.renewable = false), (Some(Wrong::Stale), 0));
    // Age excludes a renewal: the copy is as old as it states, or its renewal has expired.
    let with_age = |age_s: i64| {
        let mut row = CacheExchange { renewable: true, ..cached_response(&world, 5, ms(made_s), ms(change_s + 9)) };
        row.age_s = Some(age_s as u32);
        verified(&world, row).1
    };
    assert_eq!(with_age(change_s + 9 - made_s), Some(Wrong::Stale));
    assert_eq!(with_age(9 + 25), Some(Wrong::Stale), "renewed 25 s before the change");
    assert_eq!(with_age(9 + 15), None);
    assert_eq!(with_age(0), None, "an Age of 0 proves neither a new copy nor that it was not renewed");
    // With the identity of the 304 the lifetime counts from the renewal.
    let renewed = |renewed_s: i64, at_ms| {
        let row = CacheExchange {
            renewable: true,
            renewed: true,
            from_sequence: None,
            from_run: None,
            ..cached_response(&world, 5, ms(renewed_s), at_ms)
        };
        verified(&world, row).1
    };
    assert_eq!(renewed(change_s - 20, ms(change_s + 10) + DATE_SLACK_MS), None);
    assert_eq!(renewed(change_s - 20, ms(change_s + 10) + DATE_SLACK_MS + 1), Some(Wrong::Stale));
}

/// A response of the origin to request 3, then a basic request that was offered as a hit.
fn after_a_fetch(
    world: &Arc<World>,
    change_first: fn(&mut CacheExchange),
    change: impl FnOnce(&CacheExchange, &mut CacheExchange),
) -> (Option<Wrong>, CacheFigures) {
    let now = NOW_S as u64 * 1000;
    let mut verifier = verifier(world);
    let mut first = origin_response(world, 3, now);
    change_first(&mut first);
    verifier.add(&mut first);
    let mut second = CacheExchange { repeat: true, offered: true, ..origin_response(world, 5, now) };
    change(&first, &mut second);
    verifier.add(&mut second);
    (second.wrong, verifier.finish())
}

#[test]
fn miss_after_a_complete_copy_is_a_false_miss() {
    let world = world();
    let nanosecond = Duration::from_nanos(1);
    let (wrong, figures) = after_a_fetch(&world, |_| (), |first, second| second.sent_at = Some(first.done_at));
    assert_eq!((wrong, figures.offered, figures.offered_while_fetching), (Some(Wrong::FalseMiss), 1, 0));
    assert_eq!(figures.incorrect(), 0, "a false miss is not an incorrect response");
    assert_eq!(figures.wrong["false_miss"], 1);
    let (wrong, figures) = after_a_fetch(
        &world,
        |first| first.done_at += Duration::from_nanos(1),
        |first, second| {
            second.sent_at = Some(Timestamp::from_nanos(first.done_at.as_nanos() - nanosecond.as_nanos() as u64));
        },
    );
    assert_eq!((wrong, figures.offered, figures.offered_while_fetching), (None, 1, 1));

    let missed = |change_first: fn(&mut CacheExchange), change: fn(&mut CacheExchange)| {
        after_a_fetch(&world, change_first, |_, second| change(second)).0.is_some()
    };
    assert!(missed(|_| (), |_| ()));
    assert!(!missed(|_| (), |second| second.from_sequence = Some(3)), "a hit");
    assert!(!missed(|_| (), |second| second.offered = false));
    assert!(!missed(|_| (), |second| second.form = CacheForm::Ims200));
    assert!(!missed(|_| (), |second| second.failure = Some(FailureCause::Reset)));
    assert!(!missed(|first| first.aborted = true, |_| ()));
    assert!(!missed(|first| first.failure = Some(FailureCause::Reset), |_| ()));
    assert!(!missed(|first| first.form = CacheForm::Ims304, |_| ()));
    assert!(missed(|first| first.form = CacheForm::Ims200, |_| ()), "a 200 that passes the cache fills it");
    assert!(!missed(|first| first.variant_gzip = true, |_| ()), "another variant");
    assert!(!missed(|first| first.secure = true, |_| ()));
    assert!(!missed(|first| first.content = CacheContent::Differs, |_| ()));
}

#[test]
fn miss_after_the_lifetime_of_the_copy_is_not_false() {
    let world = world();
    let end_ms = world.version(OBJECT, NOW_S).next_change_s as u64 * 1000;
    let at = |ms: u64| {
        let second_request = origin_response(&world, 5, ms);
        let renew = |_: &CacheExchange, second: &mut CacheExchange| {
            *second = CacheExchange { repeat: true, offered: true, ..second_request };
        };
        let (wrong, figures) = after_a_fetch(&world, |_| (), renew);
        (wrong, figures.offered_expired)
    };
    assert_eq!(at(end_ms - DATE_SLACK_MS - 1), (Some(Wrong::FalseMiss), 0));
    assert_eq!(at(end_ms - DATE_SLACK_MS), (None, 1));
}

#[test]
fn new_copy_replaces_an_expired_one() {
    let world = world();
    let end_s = world.version(OBJECT, NOW_S).next_change_s as u64;
    let mut verifier = verifier(&world);
    verifier.add(&mut origin_response(&world, 3, NOW_S as u64 * 1000));
    verifier.add(&mut origin_response(&world, 4, (end_s + 5) * 1000));
    let mut missed = CacheExchange { repeat: true, offered: true, ..origin_response(&world, 5, (end_s + 6) * 1000) };
    verifier.add(&mut missed);
    assert_eq!(missed.wrong, Some(Wrong::FalseMiss));
}

#[test]
fn hit_ratios_cover_basic_requests_of_the_measured_phase() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let second = |s: u64| Timestamp::from_nanos(s * 1_000_000_000);
    let mut verifier = Verifier::new(Arc::clone(&world), (second(3), None));
    verifier.set_measured_end(second(9));
    let hit = |sequence| CacheExchange { repeat: true, offered: true, ..cached_response(&world, sequence, now, now) };
    let rows = [
        origin_response(&world, 2, now), // before the measured phase
        CacheExchange { object_bytes: 3000, ..origin_response(&world, 3, now) },
        hit(4),
        CacheExchange { form: CacheForm::Reload, ..origin_response(&world, 5, now) },
        CacheExchange { secure: true, ..origin_response(&world, 6, now) },
        CacheExchange { status: 0, response_object: None, failure: Some(FailureCause::ConnectRefused), ..hit(7) },
        CacheExchange { offered: false, method: Method::Head, ..hit(8) },
        hit(9), // after the measured phase
    ];
    for mut row in rows {
        verifier.add(&mut row);
    }
    let figures = verifier.finish();
    assert_eq!((figures.requests, figures.answered, figures.errors["connect_refused"]), (6, 5, 1));
    assert_eq!(figures.error_ratio, Some(1.0 / 6.0));
    assert_eq!((figures.basic_requests, figures.basic_answered), (3, 2));
    assert_eq!((figures.offered, figures.repeats, figures.hits, figures.hits_of_all), (2, 2, 1, 2));
    assert_eq!((figures.hit_ratio.offered, figures.hit_ratio.measured), (Some(2.0 / 3.0), Some(0.5)));
    assert_eq!((figures.byte_hit_ratio.offered, figures.byte_hit_ratio.measured), (Some(0.4), Some(0.25)));
    assert_eq!(figures.hit_ratio.ideal, None, "the verifier does not set the ideal ratio");
    assert_eq!(figures.response_time_ns.count, 6);
    assert_eq!((figures.hits_response_time_ns.count, figures.misses_response_time_ns.count), (1, 1));
    assert!(figures.wrong.is_empty() && figures.examples.is_empty());
}

#[test]
fn without_requests_there_are_no_ratios() {
    let figures = verifier(&world()).finish();
    assert_eq!((figures.error_ratio, figures.hit_ratio), (None, schema::Ratio::default()));
}

#[test]
fn examples_of_incorrect_responses_name_the_request_and_are_limited() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let mut verifier = verifier(&world);
    for sequence in 0..2 * EXAMPLES_MAX as u64 {
        let row = origin_response(&world, sequence, now);
        verifier.add(&mut CacheExchange { response_object: Some(8), form: CacheForm::Ims200, ..row });
    }
    let figures = verifier.finish();
    assert_eq!((figures.incorrect(), figures.wrong["wrong_object"]), (40, 40));
    assert_eq!(figures.examples.len(), EXAMPLES_MAX);
    let example = &figures.examples[0];
    let mut path = Vec::new();
    world.write_path(OBJECT, &mut path);
    assert_eq!(example.request, format!("GET {} (ims200)", String::from_utf8(path).unwrap()));
    assert!(
        example.why.starts_with("received /") && example.why.ends_with(", generated for this request"),
        "{}",
        example.why
    );
}

#[test]
fn merged_verifiers_count_like_a_single_one() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let (mut one, mut left, mut right) = (verifier(&world), verifier(&world), verifier(&world));
    for sequence in 0..60 {
        let row = match sequence % 4 {
            0 => origin_response(&world, sequence, now),
            1 => cached_response(&world, sequence, now, now),
            2 => CacheExchange { response_object: Some(9), ..origin_response(&world, sequence, now) },
            _ => CacheExchange { failure: Some(FailureCause::Reset), ..origin_response(&world, sequence, now) },
        };
        one.add(&mut row.clone());
        if sequence < 30 { left.add(&mut row.clone()) } else { right.add(&mut row.clone()) }
    }
    left.merge(right);
    let (mut merged, whole) = (left.finish(), one.finish());
    assert_eq!(merged.examples.len(), whole.examples.len());
    merged.examples.clone_from(&whole.examples);
    assert_eq!(merged, whole);
}

/// A proxy may write any time into an identity.
#[test]
fn extreme_timestamps_do_not_panic() {
    for generated_unix_ms in [0, u64::MAX] {
        for content in [CacheContent::Right, CacheContent::Short] {
            for form in [CacheForm::Basic, CacheForm::Reload] {
                let row = CacheExchange {
                    content,
                    form,
                    ..cached_response(&world(), 7, generated_unix_ms, 1_700_000_000_000)
                };
                verified(&world(), row);
                let world =
                    world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Distribution::Constant(30.0)));
                let old = CacheExchange { response_version: 0, renewable: true, age_s: Some(u32::MAX), ..row };
                verified(&world, old);
                verified(&world, CacheExchange { from_sequence: None, from_run: None, ..old });
            }
        }
    }
}
