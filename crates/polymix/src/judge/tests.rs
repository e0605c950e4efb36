//! Each kind of wrong answer beside the nearest right one, on exchanges made by hand.

use std::time::Duration;

use schema::cache_part::EXAMPLES_MAX;

use super::*;
use crate::{CacheWorkload, Expires, Law};

const RUN: u32 = 0xbeef;
const OBJECT: Object = Object { kind: 0, number: 7 };
/// Some moment of this year, in s since 1970.
const NOW_S: i64 = 1_795_000_000;

/// Objects that change every hundred seconds.
fn world_with(change: impl FnOnce(&mut CacheWorkload)) -> Arc<World> {
    let mut spec = CacheWorkload::polymix(1);
    spec.think = None;
    spec.kinds[0].life.cycle = Law::Constant(100.0);
    spec.kinds[0].life.variance = 0.0;
    change(&mut spec);
    Arc::new(World::new(Arc::new(spec), 7, 0x51))
}

fn world() -> Arc<World> {
    world_with(|_| ())
}

fn judge(world: &Arc<World>) -> Judge {
    Judge::new(Arc::clone(world), (Timestamp::ZERO, None))
}

/// A whole answer of the origin, made as it was asked for: nothing is wrong with it.
fn answer(world: &World, sequence: u64, requested_unix_ms: u64) -> CacheExchange {
    let due = world.version(OBJECT, unix_s(requested_unix_ms));
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
        response_version: due.number,
        generated_unix_ms: requested_unix_ms,
        expected_version: due.number,
        expires_unix_s: due.expires_s.unwrap_or(i64::MAX),
        content: CacheContent::Right,
        body_bytes: 1000,
        ..CacheExchange::default()
    }
}

/// The same out of a cache, made for request 3 at another time.
fn copy(world: &World, sequence: u64, generated_unix_ms: u64, requested_unix_ms: u64) -> CacheExchange {
    CacheExchange {
        from_sequence: Some(3),
        response_version: world.version(OBJECT, unix_s(generated_unix_ms)).number,
        generated_unix_ms,
        ..answer(world, sequence, requested_unix_ms)
    }
}

fn judged(world: &Arc<World>, exchange: CacheExchange) -> (bool, Option<Wrong>) {
    let mut exchange = exchange;
    judge(world).add(&mut exchange);
    (exchange.hit, exchange.wrong)
}

/// A fresh answer of the origin, spoilt.
fn spoilt(spoil: impl FnOnce(&mut CacheExchange)) -> Option<Wrong> {
    let world = world();
    let mut exchange = answer(&world, 5, NOW_S as u64 * 1000);
    spoil(&mut exchange);
    judged(&world, exchange).1
}

/// A fresh copy, spoilt.
fn spoilt_copy(spoil: impl FnOnce(&mut CacheExchange)) -> Option<Wrong> {
    spoilt(|exchange| {
        exchange.from_sequence = Some(3);
        spoil(exchange);
    })
}

#[test]
fn response_generated_for_another_request_is_a_hit() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let hit = |spoil: fn(&mut CacheExchange)| {
        let mut exchange = answer(&world, 5, now);
        spoil(&mut exchange);
        judged(&world, exchange)
    };
    assert_eq!(hit(|_| ()), (false, None));
    assert_eq!(hit(|row| row.from_sequence = Some(4)), (true, None));
    assert_eq!(hit(|row| row.from_run = Some(1)), (true, None), "kept from an earlier run");
    let renewed = |row: &mut CacheExchange| (row.from_sequence, row.from_run, row.renewed) = (None, None, true);
    assert_eq!(hit(renewed), (true, None), "renewed by a 304");
    assert_eq!(hit(|row| (row.from_sequence, row.from_run) = (None, None)), (false, None), "made for nobody");
    let not_told = |row: &mut CacheExchange| {
        (row.status, row.form, row.from_sequence, row.from_run) = (304, CacheForm::Ims304, None, None);
    };
    assert_eq!(hit(not_told), (false, None), "the proxy may have asked for a 304");
    assert_eq!(hit(|row| (row.status, row.response_object) = (0, None)), (false, None));
}

#[test]
fn response_without_identity_or_of_another_world_is_foreign() {
    let no_identity =
        |row: &mut CacheExchange| (row.response_object, row.failure) = (None, Some(FailureCause::UnexpectedBody));
    assert_eq!(spoilt(no_identity), Some(Wrong::Foreign));
    assert_eq!(spoilt(|row| row.response_world += 1), Some(Wrong::Foreign));
    // An error page has its own cause; a head that broke off says nothing.
    assert_eq!(spoilt(|row| (row.status, row.response_object) = (503, None)), None);
    assert_eq!(spoilt(|row| (row.response_object, row.failure) = (None, Some(FailureCause::Reset))), None);
    assert_eq!(spoilt(|row| (row.status, row.response_object) = (302, None)), Some(Wrong::Foreign));
}

#[test]
fn response_with_another_number_or_kind_is_the_wrong_object() {
    assert_eq!(spoilt(|row| row.response_object = Some(8)), Some(Wrong::WrongObject));
    assert_eq!(spoilt(|row| row.response_kind = 1), Some(Wrong::WrongObject));
}

#[test]
fn gzip_for_a_client_that_does_not_accept_it_is_the_wrong_variant() {
    assert_eq!(spoilt(|row| row.body_gzip = true), Some(Wrong::WrongVariant));
    assert_eq!(spoilt(|row| (row.body_gzip, row.accepts_gzip) = (true, true)), None);
    assert_eq!(spoilt(|row| (row.accepts_gzip, row.variant_gzip) = (true, true)), None, "plain is for everybody");
}

/// A proxy that does not pass the ask on has everything made for nobody.
#[test]
fn response_without_request_id_is_a_hit_if_generated_before_the_request() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let unnamed = |made_ms| {
        let row = copy(&world, 5, made_ms, now);
        CacheExchange { from_sequence: None, from_run: None, ..row }
    };
    let hit = |row| judged(&world, row).0;
    assert!(!hit(unnamed(now + 3000)), "fetched for this request");
    assert!(!hit(unnamed(now)));
    assert!(!hit(unnamed(now - CLOCK_SLACK_MS)), "the clocks may differ by as much");
    assert!(hit(unnamed(now - CLOCK_SLACK_MS - 1)));
    assert!(hit(CacheExchange { renewed: true, ..unnamed(now + 3000) }), "what a 304 renewed was there before");
    assert!(!hit(CacheExchange { response_world: 9, ..unnamed(now - 9000) }));

    // All misses of a proxy that drops it, then one old copy.
    let mut judge = judge(&world);
    for sequence in 3..13 {
        let made_for_nobody = CacheExchange { from_sequence: None, from_run: None, ..answer(&world, sequence, now) };
        judge.add(&mut made_for_nobody.clone());
    }
    judge.add(&mut unnamed(now - 9000));
    let figures = judge.finish();
    assert_eq!((figures.hits, figures.without_identity, figures.basic_answered), (1, 10, 11));
    assert!(figures.wrong.is_empty(), "{:?}", figures.wrong);
}

#[test]
fn miss_without_request_id_is_false_only_if_generated_after_the_request() {
    let world = world();
    let missed = |made_ms: fn(u64) -> u64| {
        let spoil = |_: &CacheExchange, second: &mut CacheExchange| {
            (second.from_sequence, second.from_run) = (None, None);
            second.generated_unix_ms = made_ms(second.requested_unix_ms);
        };
        after_a_fetch(&world, |_| (), spoil).0
    };
    assert_eq!(missed(|asked| asked), Some(Wrong::FalseMiss));
    assert_eq!(missed(|asked| asked - 1), None, "perhaps a hit");
}

#[test]
fn body_that_differs_from_its_identity_is_wrong() {
    assert_eq!(spoilt(|row| row.content = CacheContent::Differs), Some(Wrong::WrongBody));
    assert_eq!(spoilt(|row| row.content = CacheContent::Long), Some(Wrong::WrongBody));
    assert_eq!(spoilt(|row| row.content = CacheContent::Recoded), None);
    assert_eq!(spoilt(|row| row.content = CacheContent::NotLooked), None);
}

#[test]
fn short_body_is_truncated_unless_the_connection_failed() {
    let short = |failure, aborted| {
        spoilt(|row| (row.content, row.failure, row.aborted) = (CacheContent::Short, failure, aborted))
    };
    assert_eq!(short(Some(FailureCause::UnexpectedLength), false), Some(Wrong::Truncated));
    assert_eq!(short(None, false), Some(Wrong::Truncated));
    assert_eq!(short(None, true), None, "cut as planned");
    assert_eq!(short(Some(FailureCause::ClosedEarly), false), None, "the framing said so");
    assert_eq!(short(Some(FailureCause::ResponseTimeout), false), None);
}

#[test]
fn planned_abort_may_be_forwarded_but_not_cached() {
    let world = world_with(|spec| spec.origin_abort = 1.0);
    let now = NOW_S as u64 * 1000;
    assert!(world.origin_aborts(RequestId { run: RUN, sequence: 3 }).is_some());
    let short = |made_ms| {
        let row = CacheExchange { content: CacheContent::Short, ..copy(&world, 5, made_ms, now) };
        judged(&world, row).1
    };
    assert_eq!(short(now - CLOCK_SLACK_MS), None);
    assert_eq!(short(now - CLOCK_SLACK_MS - 1), Some(Wrong::Truncated));

    // The same with a framing that says so: a broken connection, and the stump that a cache kept.
    let cut = |world: &Arc<World>, made_ms| {
        let failure = Some(FailureCause::ClosedEarly);
        judged(world, CacheExchange { content: CacheContent::Short, failure, ..copy(world, 5, made_ms, now) }).1
    };
    assert_eq!(cut(&world, now - CLOCK_SLACK_MS), None);
    assert_eq!(cut(&world, now - CLOCK_SLACK_MS - 1), Some(Wrong::Truncated));
    assert_eq!(cut(&world_with(|_| ()), now - 9000), None, "the origin had not cut it");
    let mut kept = CacheExchange {
        content: CacheContent::Short,
        failure: Some(FailureCause::ClosedEarly),
        ..copy(&world, 5, now - 9000, now)
    };
    let mut judge = judge(&world);
    judge.add(&mut kept);
    let why = &judge.finish().examples[0].why;
    assert!(why.ends_with("a response aborted by the origin was cached, generated for request 3"), "{why}");
}

#[test]
fn not_modified_is_false_for_a_client_without_a_current_copy() {
    let not_modified = |method, form| {
        spoilt(|row| {
            (row.status, row.method, row.form) = (304, method, form);
            (row.response_object, row.content, row.body_bytes) = (None, CacheContent::NotLooked, 0);
        })
    };
    assert_eq!(not_modified(Method::Get, CacheForm::Ims304), None);
    assert_eq!(not_modified(Method::Get, CacheForm::Ims200), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Get, CacheForm::Basic), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Get, CacheForm::Reload), Some(Wrong::FalseNotModified));
    assert_eq!(not_modified(Method::Post, CacheForm::Basic), Some(Wrong::FalseNotModified));
    assert_eq!(spoilt(|row| row.form = CacheForm::Ims304), None, "a 200 is never wrong");
}

#[test]
fn fresh_older_copy_may_answer_not_modified() {
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Law::Constant(50.0)));
    let due = world.version(OBJECT, NOW_S);
    // The version before was last made just before the change, and lived for 50 s from then.
    let end_s = due.modified_s - 1 + 50;
    let at = |ms| {
        let row = answer(&world, 5, ms);
        let row = CacheExchange { status: 304, form: CacheForm::Ims200, response_object: None, ..row };
        judged(&world, row).1
    };
    assert_eq!(at(end_s as u64 * 1000 + DATE_SLACK_MS), None);
    assert_eq!(at(end_s as u64 * 1000 + DATE_SLACK_MS + 1), Some(Wrong::FalseNotModified));
}

#[test]
fn hit_on_an_uncacheable_object_is_incorrect() {
    assert_eq!(spoilt_copy(|row| row.cacheable = false), Some(Wrong::HitOnUncacheable));
    assert_eq!(spoilt(|row| row.cacheable = false), None);
}

#[test]
fn reload_must_get_a_response_generated_after_the_request() {
    let reload = |old_ms| {
        spoilt_copy(|row| {
            row.form = CacheForm::Reload;
            row.generated_unix_ms -= old_ms;
        })
    };
    assert_eq!(reload(CLOCK_SLACK_MS), None);
    assert_eq!(reload(CLOCK_SLACK_MS + 1), Some(Wrong::HitOnReload));
    assert_eq!(spoilt(|row| row.form = CacheForm::Reload), None);
}

#[test]
fn response_generated_for_a_request_for_another_object_is_a_false_hit() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let hit = |before: CacheExchange, run: u32| {
        let (mut judge, mut before) = (judge(&world), before);
        judge.add(&mut before);
        let mut exchange = CacheExchange { from_run: Some(run), ..copy(&world, 5, now, now) };
        judge.add(&mut exchange);
        exchange.wrong
    };
    let asked_same = answer(&world, 3, now);
    let asked_other = CacheExchange { object: 8, response_object: Some(8), ..asked_same };
    assert_eq!(hit(asked_same, RUN), None);
    assert_eq!(hit(asked_other, RUN), Some(Wrong::FalseHit));
    assert_eq!(hit(CacheExchange { sequence: 4, ..asked_other }, RUN), None, "one that has not ended is not known");
    assert_eq!(hit(asked_other, RUN + 1), None, "nor one of another run");
    let follow_up = 3 + (1 << 40);
    let mut judge = judge(&world);
    judge.add(&mut CacheExchange { sequence: follow_up, ..asked_other });
    let mut exchange = CacheExchange { from_sequence: Some(follow_up), ..copy(&world, 5, now, now) };
    judge.add(&mut exchange);
    assert_eq!(exchange.wrong, Some(Wrong::FalseHit));
    assert_eq!(spoilt_copy(|row| row.method = Method::Post), Some(Wrong::FalseHit));
    assert_eq!(spoilt_copy(|row| row.method = Method::Head), None);
}

#[test]
fn old_version_is_stale_one_second_after_the_change() {
    let world = world();
    let made = world.version(OBJECT, NOW_S);
    let end_ms = made.next_change_s as u64 * 1000;
    let at = |ms| judged(&world, copy(&world, 5, NOW_S as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms), None);
    assert_eq!(at(end_ms + DATE_SLACK_MS), None);
    assert_eq!(at(end_ms + DATE_SLACK_MS + 1), Some(Wrong::Stale));
    assert_eq!(judged(&world, answer(&world, 5, end_ms + 10_000)).1, None);
}

#[test]
fn think_time_extends_the_staleness_tolerance() {
    let world = world_with(|spec| spec.think = Some(Law::Constant(2.0)));
    let end_ms = world.version(OBJECT, NOW_S).next_change_s as u64 * 1000;
    let at = |ms| judged(&world, copy(&world, 5, NOW_S as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms + 2000 + DATE_SLACK_MS), None);
    assert_eq!(at(end_ms + 2000 + DATE_SLACK_MS + 1), Some(Wrong::Stale));
}

#[test]
fn old_version_within_its_lifetime_is_not_stale() {
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Law::Constant(150.0)));
    let made_s = world.version(OBJECT, NOW_S).next_change_s - 1;
    let end_ms = (made_s as u64 + 150) * 1000;
    let at = |ms| judged(&world, copy(&world, 5, made_s as u64 * 1000, ms)).1;
    assert_eq!(at(end_ms + DATE_SLACK_MS), None, "the object has changed, its lifetime lasts");
    assert_eq!(at(end_ms + DATE_SLACK_MS + 1), Some(Wrong::Stale));

    // Beyond its lifetime and unchanged: renewed, as far as anybody can tell.
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Law::Constant(10.0)));
    let made_s = world.version(OBJECT, NOW_S).modified_s;
    assert_eq!(judged(&world, copy(&world, 5, made_s as u64 * 1000, (made_s as u64 + 90) * 1000)).1, None);

    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::Absent);
    assert_eq!(judged(&world, copy(&world, 5, NOW_S as u64 * 1000, (NOW_S as u64 + 9000) * 1000)).1, None);
}

/// A copy that a 304 renewed lives from there (RFC 9111, section 4.3.4), and so may outlive a change.
#[test]
fn possibly_renewed_copy_is_possibly_stale_and_not_incorrect() {
    // Changes every 100 s, and lives for 30.
    let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Law::Constant(30.0)));
    let made_s = world.version(OBJECT, NOW_S).modified_s + 10;
    let change_s = world.version(OBJECT, made_s).next_change_s;
    let ms = |s: i64| s as u64 * 1000;
    let asked = |at_ms, spoil: fn(&mut CacheExchange)| {
        let mut row = CacheExchange { renewable: true, ..copy(&world, 5, ms(made_s), at_ms) };
        spoil(&mut row);
        let mut judge = judge(&world);
        judge.add(&mut row);
        (row.wrong, judge.finish().possibly_stale)
    };
    // Long past its own lifetime; renewed a second before the change it would live until then.
    let last_ms = ms(change_s - 1 + 30) + DATE_SLACK_MS;
    assert_eq!(asked(ms(change_s) - 1, |_| ()), (None, 0), "unchanged: renewed, as far as anybody can tell");
    assert_eq!(asked(ms(change_s + 9), |_| ()), (None, 1));
    assert_eq!(asked(last_ms, |_| ()), (None, 1));
    assert_eq!(asked(last_ms + 1, |_| ()), (Some(Wrong::Stale), 0), "no renewal reaches so far");
    // One that nobody could renew.
    assert_eq!(asked(ms(change_s + 9), |row| row.renewable = false), (Some(Wrong::Stale), 0));
    // Age tells against the cache: as old as it is, or since a renewal that is over, too.
    let with_age = |age_s: i64| {
        let mut row = CacheExchange { renewable: true, ..copy(&world, 5, ms(made_s), ms(change_s + 9)) };
        row.age_s = Some(age_s as u32);
        judged(&world, row).1
    };
    assert_eq!(with_age(change_s + 9 - made_s), Some(Wrong::Stale));
    assert_eq!(with_age(9 + 25), Some(Wrong::Stale), "renewed 25 s before the change");
    assert_eq!(with_age(9 + 15), None);
    assert_eq!(with_age(0), None, "that a copy is new is not believed, nor that it was not renewed");
    // Told by the 304's identity, the lifetime counts from the renewal.
    let renewed = |renewed_s: i64, at_ms| {
        let row = CacheExchange {
            renewable: true,
            renewed: true,
            from_sequence: None,
            from_run: None,
            ..copy(&world, 5, ms(renewed_s), at_ms)
        };
        judged(&world, row).1
    };
    assert_eq!(renewed(change_s - 20, ms(change_s + 10) + DATE_SLACK_MS), None);
    assert_eq!(renewed(change_s - 20, ms(change_s + 10) + DATE_SLACK_MS + 1), Some(Wrong::Stale));
}

/// An answer of the origin for request 3, then a basic request that was offered as a hit.
fn after_a_fetch(
    world: &Arc<World>,
    spoil_first: fn(&mut CacheExchange),
    spoil: impl FnOnce(&CacheExchange, &mut CacheExchange),
) -> (Option<Wrong>, CacheFigures) {
    let now = NOW_S as u64 * 1000;
    let mut judge = judge(world);
    let mut first = answer(world, 3, now);
    spoil_first(&mut first);
    judge.add(&mut first);
    let mut second = CacheExchange { repeat: true, offered: true, ..answer(world, 5, now) };
    spoil(&first, &mut second);
    judge.add(&mut second);
    (second.wrong, judge.finish())
}

#[test]
fn miss_after_a_complete_copy_is_a_false_miss() {
    let world = world();
    let nanosecond = Duration::from_nanos(1);
    let (wrong, figures) = after_a_fetch(&world, |_| (), |first, second| second.sent_at = Some(first.done_at));
    assert_eq!((wrong, figures.offered, figures.offered_while_fetching), (Some(Wrong::FalseMiss), 1, 0));
    assert_eq!(figures.incorrect(), 0, "a false miss is no incorrect answer");
    assert_eq!(figures.wrong["false_miss"], 1);
    let (wrong, figures) = after_a_fetch(
        &world,
        |first| first.done_at += Duration::from_nanos(1),
        |first, second| {
            second.sent_at = Some(Timestamp::from_nanos(first.done_at.as_nanos() - nanosecond.as_nanos() as u64));
        },
    );
    assert_eq!((wrong, figures.offered, figures.offered_while_fetching), (None, 1, 1));

    let missed = |spoil_first: fn(&mut CacheExchange), spoil: fn(&mut CacheExchange)| {
        after_a_fetch(&world, spoil_first, |_, second| spoil(second)).0.is_some()
    };
    assert!(missed(|_| (), |_| ()));
    assert!(!missed(|_| (), |second| second.from_sequence = Some(3)), "a hit");
    assert!(!missed(|_| (), |second| second.offered = false));
    assert!(!missed(|_| (), |second| second.form = CacheForm::Ims200));
    assert!(!missed(|_| (), |second| second.failure = Some(FailureCause::Reset)));
    assert!(!missed(|first| first.aborted = true, |_| ()));
    assert!(!missed(|first| first.failure = Some(FailureCause::Reset), |_| ()));
    assert!(!missed(|first| first.form = CacheForm::Ims304, |_| ()));
    assert!(missed(|first| first.form = CacheForm::Ims200, |_| ()), "a 200 past the cache fills it");
    assert!(!missed(|first| first.variant_gzip = true, |_| ()), "another variant");
    assert!(!missed(|first| first.secure = true, |_| ()));
    assert!(!missed(|first| first.content = CacheContent::Differs, |_| ()));
}

#[test]
fn miss_after_the_lifetime_of_the_copy_is_not_false() {
    let world = world();
    let end_ms = world.version(OBJECT, NOW_S).next_change_s as u64 * 1000;
    let at = |ms: u64| {
        let asked = answer(&world, 5, ms);
        let renew = |_: &CacheExchange, second: &mut CacheExchange| {
            *second = CacheExchange { repeat: true, offered: true, ..asked };
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
    let mut judge = judge(&world);
    judge.add(&mut answer(&world, 3, NOW_S as u64 * 1000));
    judge.add(&mut answer(&world, 4, (end_s + 5) * 1000));
    let mut missed = CacheExchange { repeat: true, offered: true, ..answer(&world, 5, (end_s + 6) * 1000) };
    judge.add(&mut missed);
    assert_eq!(missed.wrong, Some(Wrong::FalseMiss));
}

#[test]
fn hit_ratios_cover_basic_requests_of_the_measured_phase() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let second = |s: u64| Timestamp::from_nanos(s * 1_000_000_000);
    let mut judge = Judge::new(Arc::clone(&world), (second(3), None));
    judge.set_measured_end(second(9));
    let hit = |sequence| CacheExchange { repeat: true, offered: true, ..copy(&world, sequence, now, now) };
    let rows = [
        answer(&world, 2, now), // before the phase
        CacheExchange { object_bytes: 3000, ..answer(&world, 3, now) },
        hit(4),
        CacheExchange { form: CacheForm::Reload, ..answer(&world, 5, now) },
        CacheExchange { secure: true, ..answer(&world, 6, now) },
        CacheExchange { status: 0, response_object: None, failure: Some(FailureCause::ConnectRefused), ..hit(7) },
        CacheExchange { offered: false, method: Method::Head, ..hit(8) },
        hit(9), // after it
    ];
    for mut row in rows {
        judge.add(&mut row);
    }
    let figures = judge.finish();
    assert_eq!((figures.requests, figures.answered, figures.errors["connect_refused"]), (6, 5, 1));
    assert_eq!(figures.error_ratio, Some(1.0 / 6.0));
    assert_eq!((figures.basic_requests, figures.basic_answered), (3, 2));
    assert_eq!((figures.offered, figures.repeats, figures.hits, figures.hits_of_all), (2, 2, 1, 2));
    assert_eq!((figures.hit_ratio.offered, figures.hit_ratio.measured), (Some(2.0 / 3.0), Some(0.5)));
    assert_eq!((figures.byte_hit_ratio.offered, figures.byte_hit_ratio.measured), (Some(0.4), Some(0.25)));
    assert_eq!(figures.hit_ratio.ideal, None, "the simulation is another's");
    assert_eq!(figures.response_time_ns.count, 6);
    assert_eq!((figures.hits_response_time_ns.count, figures.misses_response_time_ns.count), (1, 1));
    assert!(figures.wrong.is_empty() && figures.examples.is_empty());
}

#[test]
fn without_requests_there_are_no_ratios() {
    let figures = judge(&world()).finish();
    assert_eq!((figures.error_ratio, figures.hit_ratio), (None, schema::Ratio::default()));
}

#[test]
fn examples_of_incorrect_responses_name_the_request_and_are_limited() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let mut judge = judge(&world);
    for sequence in 0..2 * EXAMPLES_MAX as u64 {
        let row = answer(&world, sequence, now);
        judge.add(&mut CacheExchange { response_object: Some(8), form: CacheForm::Ims200, ..row });
    }
    let figures = judge.finish();
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
fn merged_judges_count_like_a_single_one() {
    let world = world();
    let now = NOW_S as u64 * 1000;
    let (mut one, mut left, mut right) = (judge(&world), judge(&world), judge(&world));
    for sequence in 0..60 {
        let row = match sequence % 4 {
            0 => answer(&world, sequence, now),
            1 => copy(&world, sequence, now, now),
            2 => CacheExchange { response_object: Some(9), ..answer(&world, sequence, now) },
            _ => CacheExchange { failure: Some(FailureCause::Reset), ..answer(&world, sequence, now) },
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

/// A proxy may write any moment into a stamp.
#[test]
fn extreme_timestamps_do_not_panic() {
    for generated_unix_ms in [0, u64::MAX] {
        for content in [CacheContent::Right, CacheContent::Short] {
            for form in [CacheForm::Basic, CacheForm::Reload] {
                let row = CacheExchange { content, form, ..copy(&world(), 7, generated_unix_ms, 1_700_000_000_000) };
                judged(&world(), row);
                let world = world_with(|spec| spec.kinds[0].life.expires = Expires::MaxAge(Law::Constant(30.0)));
                let old = CacheExchange { response_version: 0, renewable: true, age_s: Some(u32::MAX), ..row };
                judged(&world, old);
                judged(&world, CacheExchange { from_sequence: None, from_run: None, ..old });
            }
        }
    }
}
