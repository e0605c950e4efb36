//! Conversations in simulated time, and their expected exchanges.

mod conversation;
pub(crate) mod random_events;

use std::time::Duration;

use schema::{TapError, TapExchange, TapOutcome, TapSide};
use units::Timestamp;

use super::*;
use crate::event::{Caveats, TcpCounts};
use conversation::{Conversation, ms, rows, rows_of};

/// Outcome, bytes sent, bytes received.
fn summary(rows: &[TapExchange]) -> Vec<(TapOutcome, u64, u64)> {
    rows.iter().map(|row| (row.outcome, row.sent_bytes, row.received_bytes)).collect()
}

#[test]
fn one_request_has_every_indicator() {
    let mut conversation = Conversation::lookup_and_connect(5, 20);
    conversation.send_for(3, 100).wait(50).receive_for(10, 20_000).wait(2).close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 100, 20_000)]);
    let row = &all[0];
    assert_eq!((row.connection, row.exchange, row.last), (Some(0), Some(0), true));
    assert_eq!((row.program.as_deref(), row.side), (Some("curl"), TapSide::Client));
    assert_eq!((row.lookup_ns, row.setup_ns), (Some(ms(5)), Some(ms(20))));
    assert_eq!((row.send_ns(), row.wait_ns(), row.receive_ns()), (Some(ms(3)), Some(ms(50)), Some(ms(10))));
    assert_eq!((row.response_ns(), row.connection_ns()), (Some(ms(63)), Some(ms(85))));
    assert_eq!(row.receive_rate(), Some(2_000_000.0));
    assert_eq!(row.overall_rate().map(f64::round), Some(236_471.0), "20,100 bytes in 85 ms");
}

#[test]
fn persistent_connections_have_one_row_per_request_and_one_connect_time() {
    let mut conversation = Conversation::connect(20);
    for _ in 0..3 {
        conversation.send(80).wait(10).receive(500).wait(1000);
    }
    conversation.close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 80, 500); 3]);
    assert_eq!(all.iter().map(|row| row.exchange.unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(all.iter().filter(|row| row.setup_ns.is_some()).count(), 1);
    assert_eq!(all.iter().map(|row| row.last).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(all[2].connection_bytes, Some(3 * 580));
    assert!(
        all.iter().all(|row| row.response_ns() == Some(ms(10))),
        "idle time between exchanges is in no response time"
    );
}

#[test]
fn pieces_of_one_run_in_one_direction_are_joined() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).send(20_000).wait(10).receive_for(100, 5_000).receive_for(100, 5_000).close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 20_080, 10_000)]);
    assert_eq!(all[0].receive_ns(), Some(ms(200)));
}

#[test]
fn pipelined_requests_are_one_exchange() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(1).send(80).wait(30).receive(500).wait(1).receive(500).close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 160, 1_000)]);
    assert_eq!(all[0].send_ns(), Some(ms(1)));
}

#[test]
fn data_from_the_server_before_any_request_is_a_greeting() {
    // POP3 and SMTP: greeting, then request and response.
    let mut conversation = Conversation::connect(20);
    conversation.wait(7).receive(40).send(6).wait(3).receive(30).send(6).wait(4).receive(20).close();
    let all = rows(conversation.events);
    assert_eq!(
        summary(&all),
        [(TapOutcome::Greeting, 0, 40), (TapOutcome::Succeeded, 6, 30), (TapOutcome::Succeeded, 6, 20)]
    );
    assert_eq!((all[0].wait_ns(), all[0].response_ns()), (Some(ms(7)), None));
    assert_eq!(all[0].setup_ns, Some(ms(20)));
    let mut silent = Conversation::connect(20);
    silent.receive(40).close();
    assert_eq!(summary(&rows(silent.events)), [(TapOutcome::Greeting, 0, 40)]);
}

#[test]
fn tls_exchanges_follow_changes_of_direction_and_close_notify_is_no_request() {
    let mut conversation = Conversation::connect(20);
    conversation.send(517).wait(20).receive(3_000).send(80 + 120).wait(20).receive(9_000).send(24).close();
    let all = rows(conversation.events);
    let outcomes: Vec<_> = all.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [TapOutcome::Succeeded, TapOutcome::Succeeded, TapOutcome::Farewell]);
    // The other end closed first: later data gets no response, however long the program stays.
    let mut conversation = Conversation::connect(20);
    conversation.send(100).wait(20).receive(900).peer_closes().wait(5).send(24).wait(500).close();
    assert_eq!(rows(conversation.events).last().unwrap().outcome, TapOutcome::Farewell);
    let mut conversation = Conversation::connect(20);
    conversation.send(100).wait(20).receive(900).peer_closes().wait(5).send_fails(32).close();
    assert_eq!(rows(conversation.events).last().unwrap().outcome, TapOutcome::Farewell);
}

#[test]
fn a_request_without_response_fails() {
    let failed = |conversation: Conversation| {
        let all = rows(conversation.events);
        let last = all.last().unwrap();
        (last.outcome == TapOutcome::Failed).then_some(last.error).flatten()
    };
    let mut given_up = Conversation::connect(1);
    given_up.send(80).wait(3_000).close();
    assert_eq!(failed(given_up), Some(TapError::GivenUp));
    let mut second = Conversation::connect(1);
    second.send(80).wait(5).receive(10).send(80).wait(3_000).close();
    assert_eq!(failed(second), Some(TapError::GivenUp));
    let mut no_response = Conversation::connect(1);
    no_response.send(80).wait(5).peer_closes().close();
    assert_eq!(failed(no_response), Some(TapError::NoResponse));
    let mut reset = Conversation::connect(1);
    reset.send(80).wait(5).receive_fails(104).close();
    assert_eq!(failed(reset), Some(TapError::Errno(104)));
    let mut midway = Conversation::connect(1);
    midway.send(80).wait(5).receive(1_000).wait(5).receive_fails(104).close();
    assert_eq!(failed(midway), Some(TapError::Errno(104)));
    let mut closed_meanwhile = Conversation::connect(1);
    closed_meanwhile.send(80).wait(5).receive(10).wait(60_000).send_fails(32).close();
    assert_eq!(failed(closed_meanwhile), Some(TapError::Errno(32)));
}

#[test]
fn a_long_poll_is_one_exchange_in_flight_until_its_response() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(55_000).receive(2).close();
    let mut exchanges = Exchanges::new(Vec::new());
    let mut seen = Vec::new();
    for event in conversation.events {
        exchanges.apply(event);
        seen.push(exchanges.in_flight());
    }
    // loaded, opened, connected, sent, received, closed
    assert_eq!(seen, [0, 0, 0, 1, 0, 0]);
    let mut all = Vec::new();
    exchanges.drain(&mut all);
    assert_eq!(all[0].wait_ns(), Some(ms(55_000)));
}

#[test]
fn a_response_on_a_half_closed_connection_is_recorded() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).shut().wait(5).receive(900).peer_closes().close();
    assert_eq!(summary(&rows(conversation.events)), [(TapOutcome::Succeeded, 80, 900)]);
}

#[test]
fn end_of_file_does_not_lengthen_the_last_exchange() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(5).receive_for(2, 900).wait(60_000).peer_closes().wait(1).close();
    let all = rows(conversation.events);
    assert_eq!((all[0].receive_ns(), all[0].response_ns()), (Some(ms(2)), Some(ms(7))));
}

#[test]
fn a_failed_connect_is_a_failed_attempt() {
    let all = rows(Conversation::refused(3, 111).events);
    assert_eq!(all.len(), 1);
    let row = &all[0];
    assert_eq!(
        (row.outcome, row.error, row.exchange, row.last),
        (TapOutcome::Failed, Some(TapError::Errno(111)), None, true)
    );
    assert_eq!((row.setup_ns, row.connection_ns()), (None, Some(ms(3))));
    let mut abandoned = Conversation::connecting();
    abandoned.wait(5_000).close();
    assert_eq!(rows(abandoned.events)[0].error, Some(TapError::GivenUp));
}

#[test]
fn a_failed_name_lookup_is_a_separate_row() {
    let all = rows(Conversation::lookup_fails(-2).events);
    assert_eq!((all[0].connection, all[0].error), (None, Some(TapError::Lookup(-2))));
    assert_eq!(all[0].ended_at(), Timestamp::from_nanos(all[0].opened_at.as_nanos() + all[0].lookup_ns.unwrap()));
}

#[test]
fn a_name_lookup_belongs_to_the_next_connect_of_its_thread_or_of_its_process() {
    let mut conversation = Conversation::lookup_and_connect(5, 1);
    conversation.close();
    conversation.open(2).close_other(2);
    let all = rows(conversation.events);
    assert_eq!(all.iter().map(|row| row.lookup_ns).collect::<Vec<_>>(), [Some(ms(5)), None]);
    let mut elsewhere = Conversation::connecting_after_lookup_in_thread(9, 4);
    elsewhere.close();
    assert_eq!(
        rows(elsewhere.events)[0].lookup_ns,
        Some(ms(4)),
        "a lookup in another thread belongs to the next connect of the process"
    );
}

#[test]
fn a_connection_opened_and_not_used_is_no_attempt() {
    let mut conversation = Conversation::connect(1);
    conversation.wait(10).close();
    let all = rows(conversation.events);
    assert_eq!((all[0].outcome, all[0].exchange), (TapOutcome::Unused, None));
    assert_eq!(all[0].setup_ns, Some(ms(1)));
}

#[test]
fn a_server_program_records_requests_as_received_and_responses_as_sent() {
    let mut conversation = Conversation::accept();
    conversation
        .wait(2)
        .receive(80)
        .wait(30)
        .send_for(4, 5_000)
        .wait(1_000)
        .receive(80)
        .wait(30)
        .send(5_000)
        .wait(1)
        .peer_closes()
        .close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 5_000, 80); 2]);
    let row = &all[0];
    assert_eq!((row.side, row.setup_ns), (TapSide::Server, None));
    assert_eq!((row.wait_ns(), row.send_ns(), row.response_ns()), (Some(ms(30)), Some(ms(4)), Some(ms(34))));
    let mut broken = Conversation::accept();
    broken.receive(80).wait(30).send(5_000).wait(9_000).receive_fails(104).close();
    assert_eq!(
        summary(&rows(broken.events)),
        [(TapOutcome::Succeeded, 5_000, 80)],
        "a reset between requests belongs to no exchange"
    );
    let mut abandoned = Conversation::accept();
    abandoned.receive(80).wait(500).peer_closes().close();
    assert_eq!(rows(abandoned.events)[0].error, Some(TapError::GivenUp));
    let mut refused = Conversation::accept();
    refused.receive(80).wait(500).close();
    assert_eq!(rows(refused.events)[0].error, Some(TapError::NoResponse));
}

#[test]
fn exchanges_of_a_killed_program_are_cut_and_of_an_exited_one_are_not() {
    let end = |conversation: &mut Conversation| {
        conversation.process_ends();
        let all = rows_of(std::mem::take(conversation));
        (all.last().unwrap().outcome, all.last().unwrap().closed_at.is_some())
    };
    let mut killed = Conversation::connect(1);
    killed.send(80).wait(5).receive(10);
    assert_eq!(end(&mut killed), (TapOutcome::Cut, true));
    let mut ended = Conversation::connect(1);
    ended.send(80).wait(5).receive(10).exit();
    assert_eq!(end(&mut ended), (TapOutcome::Succeeded, true));
    let mut waiting = Conversation::connect(1);
    waiting.send(80).wait(5_000).exit();
    assert_eq!(end(&mut waiting), (TapOutcome::Cut, true), "a request in flight at the program's end is cut");
    let mut running = Conversation::connect(1);
    running.send(80).wait(5).receive(10);
    let all = rows_of(running);
    assert_eq!((all[0].outcome, all[0].closed_at), (TapOutcome::Cut, None));
}

#[test]
fn a_connection_is_concurrent_until_its_last_holder_closes_it() {
    let gauges = |events: Vec<Event>| {
        let mut exchanges = Exchanges::new(Vec::new());
        let take = |event| {
            exchanges.apply(event);
            exchanges.concurrent_connections()
        };
        let gauges: Vec<u64> = events.into_iter().map(take).collect();
        exchanges.end();
        assert_eq!(exchanges.concurrent_connections(), 0);
        gauges
    };
    let mut closed = Conversation::connect(1);
    closed.send(80).wait(5).receive(10).wait(1).close();
    // loaded, opened, connected, sent, received, closed
    assert_eq!(gauges(closed.events), [0, 1, 1, 1, 1, 0]);
    let mut abandoned = Conversation::connect(1);
    abandoned.send(80).wait(5).receive(10).exit();
    assert_eq!(
        gauges(abandoned.events),
        [0, 1, 1, 1, 1, 0],
        "a connection that its process reported leaving is not concurrent"
    );
    // The child holds it when the parent has closed; a lingering child is unknown until it reports.
    let mut forked = Conversation::accept();
    forked.fork(2).close().in_image(2).wait(1).receive(80).wait(5).send(900).wait(1).close();
    let forked = gauges(forked.events);
    assert_eq!((forked.iter().max(), forked.last(), forked[1]), (Some(&1), Some(&0), 1), "{forked:?}");
    assert!(forked[1..forked.len() - 1].iter().all(|&level| level == 1), "{forked:?}");
    let shared = Caveats { shared: true, ..Caveats::default() };
    let mut lingers = Conversation::accept();
    lingers.wait(1).close_with(None, shared).wait(3).fork(2).in_image(2).wait(1).receive(80);
    lingers.close_with(None, shared);
    let lingers = gauges(lingers.events);
    assert_eq!(lingers.iter().filter(|&&level| level == 1).count(), lingers.len() - 3, "{lingers:?}");
}

#[test]
fn a_connection_ends_when_its_last_process_closes_it() {
    // A forking server: the parent accepts and closes, the child serves.
    let mut conversation = Conversation::accept();
    conversation.fork(2).close().in_image(2).wait(1).receive(80).wait(5).send(900).wait(1).close();
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 900, 80)]);
    assert_eq!(all[0].connection_ns(), Some(ms(7)));
}

#[test]
fn a_forked_child_that_reports_late_still_holds_the_connection() {
    // The parent has closed before the child ran for the first time.
    let shared = Caveats { shared: true, ..Caveats::default() };
    let mut conversation = Conversation::accept();
    conversation
        .wait(1)
        .close_with(None, shared)
        .wait(3)
        .fork(2)
        .in_image(2)
        .wait(1)
        .receive(80)
        .wait(5)
        .send(900)
        .wait(1);
    conversation.close_with(None, shared);
    let all = rows(conversation.events);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 900, 80)]);
    assert_eq!(all[0].connection_ns(), Some(ms(11)));
    // The connection had no other holder: it ends after lingering, with the time of its close.
    let mut conversation = Conversation::accept();
    conversation.receive(80).send(900).wait(1).close_with(None, shared);
    let mut exchanges = Exchanges::new(Vec::new());
    conversation.events.into_iter().for_each(|event| exchanges.apply(event));
    let (mut early, mut late) = (Vec::new(), Vec::new());
    exchanges.tick(Timestamp::from_nanos(ms(2_000)));
    exchanges.drain(&mut early);
    exchanges.tick(Timestamp::from_nanos(ms(2_001)));
    exchanges.drain(&mut late);
    assert_eq!((early.len(), late.len(), exchanges.open()), (0, 1, 0));
    assert_eq!((late[0].outcome, late[0].connection_ns()), (TapOutcome::Succeeded, Some(ms(1))));
}

#[test]
fn a_forked_child_that_never_uses_a_connection_does_not_cut_it() {
    let shared = Caveats { shared: true, ..Caveats::default() };
    let end = |used_by_child: bool| {
        let mut conversation = Conversation::connect(1);
        conversation.fork(2).send(80).wait(5).receive(10).wait(1).close_with(None, shared);
        if used_by_child {
            conversation.in_image(2).wait(1).send(20);
        }
        let mut exchanges = Exchanges::new(Vec::new());
        conversation.events.into_iter().for_each(|event| exchanges.apply(event));
        exchanges.image_ended(2, Timestamp::from_nanos(ms(9_000)));
        exchanges.end();
        let mut all = Vec::new();
        exchanges.drain(&mut all);
        (all.last().unwrap().outcome, all.last().unwrap().connection_ns())
    };
    assert_eq!(end(false), (TapOutcome::Succeeded, Some(ms(7))));
    assert_eq!(end(true), (TapOutcome::Cut, Some(ms(8_000))));
}

#[test]
fn a_connection_ends_when_its_last_holder_released_it_not_when_the_process_end_is_detected() {
    let found = |conversation: &mut Conversation, ended: [u32; 2]| {
        let mut exchanges = Exchanges::new(Vec::new());
        std::mem::take(&mut conversation.events).into_iter().for_each(|event| exchanges.apply(event));
        ended.into_iter().for_each(|image| exchanges.image_ended(image, Timestamp::from_nanos(ms(9_000))));
        exchanges.end();
        let mut all = Vec::new();
        exchanges.drain(&mut all);
        let last = all.pop().unwrap();
        assert!(last.last);
        (last.outcome, last.connection_ns())
    };
    // The child sends a request and leaves, the parent keeps the connection for 100 ms longer.
    let child_request = || {
        let mut conversation = Conversation::connect(1);
        conversation.fork(2).in_image(2).send(80).wait(5).receive(10).exit().in_image(1).wait(100);
        conversation
    };
    for ended in [[1, 2], [2, 1]] {
        assert_eq!(found(child_request().close(), ended), (TapOutcome::Succeeded, Some(ms(106))), "{ended:?}");
        assert_eq!(found(child_request().exit(), ended), (TapOutcome::Succeeded, Some(ms(106))), "{ended:?}");
        // The last holder is killed: the time is unknown until its end is detected.
        let cut = (TapOutcome::Cut, Some(ms(8_000)));
        assert_eq!(found(child_request().send(80), ended), cut, "{ended:?}");
    }
}

#[test]
fn a_forked_child_that_reports_after_its_parent_ended_still_holds_the_connection() {
    let abandoned = || {
        let mut conversation = Conversation::connect(1);
        conversation.send(80).wait(5).exit();
        let mut exchanges = Exchanges::new(Vec::new());
        std::mem::take(&mut conversation.events).into_iter().for_each(|event| exchanges.apply(event));
        exchanges.image_ended(1, Timestamp::from_nanos(ms(1_010)));
        (conversation, exchanges)
    };
    let end = |mut exchanges: Exchanges| {
        exchanges.end();
        let mut all = Vec::new();
        exchanges.drain(&mut all);
        let last = all.pop().unwrap();
        (last.outcome, last.connection_ns())
    };
    let (mut conversation, mut exchanges) = abandoned();
    assert_eq!((exchanges.concurrent_connections(), exchanges.open()), (0, 1));
    conversation.fork(2).in_image(2).wait(10).receive(900).wait(5).close();
    conversation.events.into_iter().for_each(|event| exchanges.apply(event));
    assert_eq!((exchanges.concurrent_connections(), exchanges.open()), (0, 0));
    assert_eq!(end(exchanges), (TapOutcome::Succeeded, Some(ms(21))));
    // The child survives, and the run ends.
    let (mut conversation, mut exchanges) = abandoned();
    conversation.fork(2);
    conversation.events.into_iter().for_each(|event| exchanges.apply(event));
    exchanges.tick(Timestamp::from_nanos(ms(60_000)));
    assert_eq!(exchanges.concurrent_connections(), 1);
    assert_eq!(end(exchanges), (TapOutcome::Cut, None));
    // No child holds the connection.
    let (_, mut exchanges) = abandoned();
    exchanges.tick(Timestamp::from_nanos(ms(2_009)));
    assert_eq!(exchanges.open(), 1);
    exchanges.tick(Timestamp::from_nanos(ms(2_010)));
    assert_eq!(exchanges.open(), 0);
    assert_eq!(end(exchanges), (TapOutcome::Cut, Some(ms(6))));
}

#[test]
fn a_pending_connect_counts_as_concurrent_connection() {
    let mut exchanges = Exchanges::new(Vec::new());
    let mut conversation = Conversation::connecting();
    std::mem::take(&mut conversation.events).into_iter().for_each(|event| exchanges.apply(event));
    assert_eq!((exchanges.concurrent_connections(), exchanges.open()), (1, 1));
    // The kernel rejected the call: there was no attempt.
    let at = Timestamp::from_nanos(ms(1_001));
    conversation.push(EventKind::Withdrawn { connection: 1, at });
    conversation.events.pop().into_iter().for_each(|event| exchanges.apply(event));
    exchanges.end();
    let mut all = Vec::new();
    exchanges.drain(&mut all);
    assert_eq!((exchanges.concurrent_connections(), exchanges.open(), all.len()), (0, 0, 0));
    // The local address is known after connect returns.
    let local = "192.0.2.7:40000".parse().unwrap();
    let mut conversation = Conversation::connect(20);
    conversation.last_attempt(|attempt| attempt.local = Some(local));
    conversation.send(80).wait(5).receive(10).close();
    assert_eq!(rows(conversation.events)[0].local, Some(local));
    // Abandoned while it waits, or killed.
    let outcome = |conversation: &mut Conversation| {
        let all = rows_of(std::mem::take(conversation));
        (all[0].outcome, all[0].error, all[0].connection_ns())
    };
    let failed = (TapOutcome::Failed, Some(TapError::GivenUp), Some(ms(3_000)));
    assert_eq!(outcome(Conversation::connecting().wait(3_000).close()), failed);
    assert_eq!(
        outcome(Conversation::connecting().wait(3_000).process_ends()),
        (TapOutcome::Cut, None, Some(ms(3_000)))
    );
}

#[test]
fn a_forked_child_that_responds_slowly_keeps_the_connection_open() {
    // The child reports after its parent has closed, and then nothing for longer than connections linger: its receive
    // is reported when it responds.
    let shared = Caveats { shared: true, ..Caveats::default() };
    let mut conversation = Conversation::accept();
    conversation.wait(1).close_with(None, shared).wait(1).fork(2).in_image(2);
    let mut exchanges = Exchanges::new(Vec::new());
    std::mem::take(&mut conversation.events).into_iter().for_each(|event| exchanges.apply(event));
    exchanges.tick(Timestamp::from_nanos(ms(60_000)));
    assert_eq!(exchanges.open(), 1);
    conversation.wait(1).receive(80).wait(5_000).send(900).wait(1).close_with(None, Caveats::default());
    conversation.events.into_iter().for_each(|event| exchanges.apply(event));
    exchanges.end();
    let mut all = Vec::new();
    exchanges.drain(&mut all);
    assert_eq!(summary(&all), [(TapOutcome::Succeeded, 900, 80)]);
    assert_eq!(all[0].response_ns(), Some(ms(5_000)));
}

/// A client with the lower port keeps its side, although the ports alone would make it the server.
#[test]
fn the_client_side_of_a_connection_survives_exec() {
    let found = |conversation: &mut Conversation| {
        conversation.in_image(2).wait(3_600_000).find("192.0.2.1:33000", "192.0.2.80:50000");
        conversation.send(20).wait(5).receive(900).wait(1).close();
        std::mem::take(&mut conversation.events)
    };
    let outcomes = |mut exchanges: Exchanges, events: Vec<Event>| {
        events.into_iter().for_each(|event| exchanges.apply(event));
        exchanges.end();
        let mut all = Vec::new();
        exchanges.drain(&mut all);
        all.iter().map(|row| (row.side, row.outcome, row.sent_bytes)).collect::<Vec<_>>()
    };
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(5).receive(10);
    let mut exchanges = Exchanges::new(Vec::new());
    std::mem::take(&mut conversation.events).into_iter().for_each(|event| exchanges.apply(event));
    exchanges.image_ended(1, Timestamp::from_nanos(ms(1_100)));
    let before = (TapSide::Client, TapOutcome::Cut, 80);
    let expected = [before, (TapSide::Client, TapOutcome::Succeeded, 20)];
    assert_eq!(outcomes(exchanges, found(&mut conversation)), expected);
    // Without earlier events only the ports are known.
    let guessed = outcomes(Exchanges::new(Vec::new()), found(&mut Conversation::default()));
    assert_eq!(guessed[0], (TapSide::Server, TapOutcome::Greeting, 20));
}

#[test]
fn only_connections_that_match_the_filter_are_followed() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(5).receive(10).close();
    let with = |only: &str| {
        let mut exchanges = Exchanges::new(vec![only.parse().unwrap()]);
        conversation.events.iter().cloned().for_each(|event| exchanges.apply(event));
        let mut all = Vec::new();
        exchanges.drain(&mut all);
        (all.len(), exchanges.opened_so_far())
    };
    assert_eq!((with("80"), with("443"), with("192.0.2.80")), ((1, 1), (0, 0), (1, 1)));
}

#[test]
fn bytes_that_bypass_the_hooks_are_counted_from_tcp_info() {
    let tcp_counts = |sent, received| Some(TcpCounts { sent, received, retransmits: 2, rtt_us: 40_000 });
    let with = |tcp_counts, caveats: Caveats, error: bool| {
        let mut conversation = Conversation::connect(1);
        conversation.send(80).wait(5).receive(1_000);
        if error {
            conversation.receive_fails(104);
        }
        conversation.close_with(tcp_counts, caveats);
        let row = rows(conversation.events).pop().unwrap();
        (row.unseen_bytes, row.retransmits)
    };
    let none = Caveats::default();
    assert_eq!(with(tcp_counts(80, 1_000), none, false), (Some(0), Some(2)));
    assert_eq!(with(tcp_counts(180, 1_500), none, false), (Some(600), Some(2)));
    assert_eq!(with(tcp_counts(80, 1_001), Caveats { off_by_one: true, ..none }, false), (Some(0), Some(2)));
    assert_eq!(
        with(tcp_counts(80, 9_000), none, true),
        (Some(0), Some(2)),
        "data that the kernel discarded after an error is not unseen"
    );
    assert_eq!(with(tcp_counts(99, 1_099), Caveats { kernel_tls: true, ..none }, false), (None, Some(2)));
    assert_eq!(with(None, none, false), (None, None));
}

#[test]
fn open_connections_are_limited_and_those_beyond_are_counted() {
    let mut exchanges = Exchanges { connections_max: 2, ..Exchanges::new(Vec::new()) };
    let mut conversation = Conversation::connect(1);
    conversation.open(2).open(3).open(4).close_other(2).open(5);
    conversation.events.into_iter().for_each(|event| exchanges.apply(event));
    assert_eq!((exchanges.open(), exchanges.left_out(), exchanges.opened_so_far()), (2, 2, 3));
}

#[test]
fn other_users_are_limited_to_a_share_of_the_connections() {
    let mut exchanges = Exchanges { connections_max: 16, ..Exchanges::new(Vec::new()) };
    let mut open = |index: u32, connections: std::ops::Range<u64>| {
        for connection in connections {
            let mut conversation = Conversation::connect(1);
            conversation.open(connection);
            let mut event = conversation.events.pop().unwrap();
            event.origin.image = index << 24 | 1;
            exchanges.apply(event);
        }
        (exchanges.open(), exchanges.left_out())
    };
    assert_eq!(open(1, 100..110), (2, 8), "each other user may have an eighth of the connections");
    assert_eq!([open(2, 200..210), open(3, 300..310), open(4, 400..410)], [(4, 16), (6, 24), (8, 32)]);
    assert_eq!(
        [open(5, 500..510), open(6, 600..610), open(7, 700..710)],
        [(10, 40), (12, 48), (12, 58)],
        "all other users together may have three quarters of the connections"
    );
    assert_eq!(open(0, 800..810), (16, 64), "the remaining connections are available to the tap's user");
}

#[test]
fn overlapping_kinds_of_waiting_are_counted_once() {
    let mut conversation = Conversation::connect(1);
    conversation.send(80).wait(5);
    conversation.last_run(|run| run.blocked = Duration::from_millis(2));
    conversation.receive(10);
    conversation.last_run(|run| run.waited = Duration::from_millis(40));
    conversation.close();
    assert_eq!(rows(conversation.events)[0].blocked_ns, ms(42));
}
