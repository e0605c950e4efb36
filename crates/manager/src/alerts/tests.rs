use rusqlite::{Connection, params};
use schema::TapOutcome;

use super::events::{self, Event, Happened};
use super::values::Moment;
use super::{book, *};
use crate::quality::Sides;
use crate::quality::tests::{MIDNIGHT, TOLD, Told, agent, index, put as fold};

/// An event of this rule, for tests of those who tell it.
pub(super) fn event(alert: &str) -> Event {
    Event {
        id: "x-1".to_owned(),
        number: 1,
        at_s: MIDNIGHT,
        event: Happened::Firing,
        alert: alert.to_owned(),
        subject: String::new(),
        metric: Metric::ResponseP99,
        value: Some(312e6),
        value_text: Some("312 ms".to_owned()),
        threshold: "250ms".to_owned(),
        since_s: MIDNIGHT,
        text: "it is slow".to_owned(),
        agent: None,
        group: None,
        program: None,
        peer: None,
        side: Sides::Client,
    }
}

fn rule(text: &str) -> Rule {
    serde_json::from_str(text).unwrap()
}

/// Puts a rule.
fn put_rule(index: &Connection, text: &str, now_s: u64) {
    let change = index.unchecked_transaction().unwrap();
    put(&change, &rule(text), now_s).unwrap();
    change.commit().unwrap();
}

/// Judges the minute that ends so many minutes after midnight, half a minute later. Gives what happened, in words.
fn judge(index: &Connection, minute: u64) -> Vec<String> {
    judge_at(index, MIDNIGHT + minute * 60, 0)
}

fn judge_at(index: &Connection, end_s: u64, listens_since_s: u64) -> Vec<String> {
    let before = log(index, None, 1).unwrap().first().map_or(0, |event| event.number);
    let now_ns = (end_s + 30) * 1_000_000_000;
    let moment = Moment { end_s, now_ns, listens_since_ns: listens_since_s * 1_000_000_000 };
    let judged = book::judge(index, moment).unwrap();
    let change = index.unchecked_transaction().unwrap();
    book::keep(&change, &judged).unwrap();
    change.commit().unwrap();
    let happened = events::read(index, "id > ?1 ORDER BY id", before, 1000).unwrap();
    happened.iter().map(|event| format!("{} {}", event.event.name(), event.subject)).collect()
}

/// Ten attempts of an agent in the minute after this one, so many of which fail.
fn minute(index: &mut Connection, agent: &'static str, minute: u64, failed: usize) {
    let told = |at: usize| Told {
        agent,
        at_s: MIDNIGHT + minute * 60 + at as u64 * 5,
        outcome: if at < failed { TapOutcome::Failed } else { TapOutcome::Succeeded },
        ..TOLD
    };
    fold(index, &(0..10).map(told).collect::<Vec<_>>());
}

const ERRORS: &str = r#"{"name":"errors","metric":"error_ratio","threshold":"20%","over":"2m","for":"2m","min_attempts":5,
    "ends_at":"10%","ends_after":"1m","by":"agent"}"#;

#[test]
fn an_outage_fires_for_its_agent_and_ends() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    let mut happened = Vec::new();
    for at in 0..14 {
        let failed = if (3..7).contains(&at) { 8 } else { 0 };
        minute(&mut index, "a", at, failed);
        minute(&mut index, "b", at, 0);
        happened.extend(judge(&index, at + 1).into_iter().map(|event| (at + 1, event)));
        // Asked again, a minute is not judged again.
        assert_eq!(judge(&index, at + 1), Vec::<String>::new());
    }
    // 40 % over two minutes at minute 4, for two minutes: 6. Minutes 7 and 8 are good at 9, and for a minute at 10.
    assert_eq!(happened, [(6, "firing a".to_owned()), (10, "resolved a".to_owned())]);
    let listed = list(&index).unwrap();
    assert_eq!(
        (listed[0].state, listed[0].subjects.len(), listed[0].evaluated_s),
        (State::Fine, 2, Some(MIDNIGHT + 14 * 60))
    );
    let told = log(&index, None, 10).unwrap();
    assert_eq!(told[1].text, "errors: error ratio over 2m of agent a is 80.0 %, above 20%");
    assert_eq!((told[0].since_s, told[0].agent.as_deref()), (MIDNIGHT + 360, Some("a")));
    assert!(told[0].id != told[1].id && told[0].id.len() > 16, "{}", told[0].id);
    assert_eq!(log(&index, Some(told[0].number), 10).unwrap(), told[1..]);
}

/// An agent that was away sends what it saw hours ago, and the manager itself was away for an hour.
#[test]
fn what_comes_late_fires_nothing() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    for at in 0..10 {
        minute(&mut index, "a", 600 + at, 0);
        assert!(judge(&index, 601 + at).is_empty());
    }
    (0..120).for_each(|at| minute(&mut index, "a", 300 + at, 10));
    (0..120).for_each(|at| minute(&mut index, "b", 300 + at, 10));
    for at in 10..20 {
        minute(&mut index, "a", 600 + at, 0);
        assert!(judge(&index, 601 + at).is_empty());
    }
    // It was pending when the manager went away; when it is back the hour's rows come, and the present is bad for a minute only.
    minute(&mut index, "a", 620, 10);
    assert!(judge(&index, 621).is_empty());
    assert_eq!(list(&index).unwrap()[0].state, State::Pending);
    (621..681).for_each(|at| minute(&mut index, "a", at, 10));
    assert!(judge(&index, 681).is_empty() && judge(&index, 682).is_empty());
    minute(&mut index, "a", 682, 10);
    assert_eq!(judge(&index, 683), ["firing a"]);
}

#[test]
fn no_data_is_a_state_of_its_own() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    for at in 0..4 {
        minute(&mut index, "a", at, 10);
        judge(&index, at + 1);
    }
    assert_eq!(list(&index).unwrap()[0].state, State::Firing);
    assert!(judge(&index, 5).is_empty(), "the last minute still says something");
    assert_eq!(judge(&index, 6), ["no_data a"]);
    assert!(judge(&index, 7).is_empty());
    let listed = &list(&index).unwrap()[0];
    assert_eq!((listed.state, listed.subjects[0].instance.state), (State::Firing, State::NoData), "it is not over");
    minute(&mut index, "a", 7, 0);
    assert!(judge(&index, 8).is_empty(), "good, and not for long enough");
    minute(&mut index, "a", 8, 0);
    assert_eq!(judge(&index, 9), ["resolved a"]);
    // Nothing to say and nothing to remember.
    for at in 10..13 {
        assert!(judge(&index, at).is_empty());
    }
    assert!(list(&index).unwrap()[0].subjects.is_empty());
}

#[test]
fn a_rule_that_goes_takes_its_alarm_with_it() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    let fire = |index: &mut Connection, from: u64| {
        for at in from..from + 4 {
            minute(index, "a", at, 10);
            judge(index, at + 1);
        }
        assert_eq!(list(index).unwrap()[0].state, State::Firing);
    };
    fire(&mut index, 0);
    // The same again changes nothing.
    put_rule(&index, ERRORS, MIDNIGHT + 300);
    assert_eq!(list(&index).unwrap()[0].state, State::Firing);
    put_rule(&index, &ERRORS.replace("20%", "30%"), MIDNIGHT + 300);
    let last = &log(&index, None, 1).unwrap()[0];
    assert_eq!(
        (last.event, last.text.as_str()),
        (Happened::Resolved, "errors: over for agent a: the rule was changed")
    );
    assert_eq!(list(&index).unwrap()[0].state, State::NoData);
    fire(&mut index, 5);
    let change = index.unchecked_transaction().unwrap();
    assert!(remove(&change, "errors", MIDNIGHT + 600).unwrap());
    assert!(!remove(&change, "errors", MIDNIGHT + 600).unwrap());
    change.commit().unwrap();
    assert_eq!(log(&index, None, 1).unwrap()[0].text, "errors: over for agent a: the rule was removed");
    assert!(list(&index).unwrap().is_empty());
}

#[test]
fn rules_are_bounded_and_must_make_sense() {
    let index = index();
    let change = index.unchecked_transaction().unwrap();
    let named = |name: String| Rule { name, ..rule(ERRORS) };
    for at in 0..RULES_MAX {
        put(&change, &named(format!("r{at}")), MIDNIGHT).unwrap();
    }
    assert!(matches!(put(&change, &named("one-more".into()), MIDNIGHT), Err(AlertError::Asked(_))));
    put(&change, &Rule { threshold: "15%".into(), ..named("r0".into()) }, MIDNIGHT).unwrap();
    assert!(matches!(
        put(&change, &Rule { threshold: "5".into(), ..named("r0".into()) }, MIDNIGHT),
        Err(AlertError::Asked(_))
    ));
}

fn told_at(index: &Connection, name: &str, at_s: u64) {
    let at_ns = (at_s * 1_000_000_000) as i64;
    index.execute("UPDATE agents SET told_at = ?2, last_seen_at = ?2 WHERE name = ?1", params![name, at_ns]).unwrap();
}

/// An agent that tried nothing, and one of which nobody knows.
#[test]
fn too_few_attempts_are_counted_where_the_agent_has_told() {
    let mut index = index();
    agent(&index, "idle", "", 0);
    agent(&index, "away", "", 0);
    put_rule(&index, r#"{"name":"idle","metric":"attempts","threshold":"5","over":"1m","by":"agent"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"all","metric":"attempts","threshold":"5","over":"1m"}"#, MIDNIGHT);
    minute(&mut index, "idle", 0, 0);
    told_at(&index, "idle", MIDNIGHT + 61);
    assert!(judge(&index, 1).is_empty());
    told_at(&index, "idle", MIDNIGHT + 121);
    assert_eq!(judge(&index, 2), ["firing ", "firing idle"]);
    // What was told ends before the minute does: it may have tried.
    told_at(&index, "idle", MIDNIGHT + 170);
    assert_eq!(judge(&index, 3), ["no_data ", "no_data idle"]);
}

#[test]
fn silent_agents_and_what_they_lost() {
    let index = index();
    agent(&index, "a", "north", 0);
    agent(&index, "b", "south", 0);
    put_rule(&index, r#"{"name":"silent","metric":"agent_silent","threshold":"3m","group":"north"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"lost","metric":"records_lost","threshold":"10","over":"5m"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"lag","metric":"agent_lag","threshold":"10m"}"#, MIDNIGHT);
    told_at(&index, "a", MIDNIGHT);
    told_at(&index, "b", MIDNIGHT);
    for at in 1..=2 {
        assert!(judge(&index, at).is_empty());
    }
    assert_eq!(judge(&index, 3), ["firing a"], "3 min and a half");
    index.execute("UPDATE agents SET records_lost = 8, rows_dropped = 3 WHERE name = 'b'", []).unwrap();
    told_at(&index, "a", MIDNIGHT + 200);
    told_at(&index, "b", MIDNIGHT + 200);
    assert_eq!(judge(&index, 4), ["firing b", "resolved a"]);
    assert_eq!(log(&index, None, 2).unwrap()[1].text, "lost: number of lost records in 5m of agent b is 11, above 10");
    // The manager was away for an hour: nobody was silent because of that, and all lag behind.
    let end_s = MIDNIGHT + 2 * 3600;
    assert_eq!(judge_at(&index, end_s, end_s - 60), ["firing a", "firing b", "resolved b"]);
}

/// Through a day that is read as hours, and subjects that find no room.
#[test]
fn a_long_time_is_read_as_hours() {
    let mut index = index();
    put_rule(&index, r#"{"name":"day","metric":"error_ratio","threshold":"10%","over":"24h"}"#, MIDNIGHT);
    minute(&mut index, "a", 10, 0);
    minute(&mut index, "a", 600, 4);
    minute(&mut index, "a", 1430, 1);
    // 5 of 30, whichever way the day is cut.
    assert_eq!(judge(&index, 1440), ["firing "]);
    assert_eq!(list(&index).unwrap()[0].subjects[0].instance.value, Some(5.0 / 30.0));
    // The first ten minutes are not in it any more.
    judge(&index, 1451);
    assert_eq!(list(&index).unwrap()[0].subjects[0].instance.value, Some(5.0 / 20.0));
}

/// Through the threads' own steps: each event stands in the log once, and reaches a receiver that refuses, is away and comes
/// back, under the same name.
#[test]
fn events_are_told_until_they_are_taken() {
    use super::keeper::{Judging, tell_one};
    use super::log_file::{BYTES_MAX, LogFile};
    use super::webhook::Told as Outcome;
    use crate::scripted::{FINE, Scripted};
    use web::post::{Post, Receiver, Roots};

    let folder = tempfile::tempdir().unwrap();
    let data = crate::Data::open(folder.path()).unwrap();
    let (notes, _writing) = crate::notes::Notes::start(data.clone(), std::sync::Arc::new(|_: &str| {})).unwrap();
    let rows: Vec<_> =
        (0..10).map(|at| Told { at_s: MIDNIGHT + at, outcome: TapOutcome::Failed, ..TOLD }.placed()).collect();
    data.change(|change| crate::quality::fold(change, &rows)).unwrap();
    let text = r#"{"name":"bad","metric":"error_ratio","threshold":"1%","over":"1m"}"#;
    data.change(|change| put(change, &rule(text), MIDNIGHT)).unwrap();
    let judging = Judging {
        log: LogFile::new(folder.path(), BYTES_MAX),
        data: data.clone(),
        notes,
        signal: std::sync::Arc::default(),
        has_webhook: true,
        listens_since_ns: 0,
    };
    // Not before the minute is settled.
    judging.turn((MIDNIGHT + 89) * 1_000_000_000).unwrap();
    assert!(data.read(|index| log(index, None, 9)).unwrap().is_empty());
    judging.turn((MIDNIGHT + 90) * 1_000_000_000).unwrap();
    judging.turn((MIDNIGHT + 92) * 1_000_000_000).unwrap();
    let lines = std::fs::read_to_string(folder.path().join("alerts.log")).unwrap();
    let lines: Vec<Event> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, data.read(|index| log(index, None, 9)).unwrap());
    assert_eq!((lines.len(), lines[0].text.as_str()), (1, "bad: error ratio over 1m of all agents is 100 %, above 1%"));
    let to = |scripted: &Scripted| {
        let timeout = std::time::Duration::from_secs(60);
        Post::new(Receiver { url: scripted.url.clone(), headers: Vec::new(), roots: Roots::System, timeout }).unwrap()
    };
    let scripted = Scripted::start(vec![(500, "", Vec::new()), (400, "", b"what?".to_vec()), FINE]);
    let post = to(&scripted);
    for wanted in ["500", "400 what?"] {
        let told = tell_one(&data, &post, MIDNIGHT + 200).unwrap();
        assert!(matches!(&told, Some(Outcome::Again(_, why)) if why.ends_with(wanted)), "{told:?}");
    }
    assert_eq!(tell_one(&data, &post, MIDNIGHT + 200).unwrap(), Some(Outcome::Taken));
    assert_eq!(tell_one(&data, &post, MIDNIGHT + 200).unwrap(), None);
    for _ in 0..3 {
        let asked = scripted.next();
        assert!(asked.head.contains("content-type: application/json"));
        let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
        assert_eq!((body["id"].as_str(), body["status"].as_str()), (Some(lines[0].id.as_str()), Some("firing")));
    }
    // Nobody there: it waits. And the threads begin and end.
    data.change(|change| remove(change, "bad", MIDNIGHT + 100)).unwrap();
    let gone = to(&Scripted::start(Vec::new()));
    assert!(matches!(tell_one(&data, &gone, MIDNIGHT + 200).unwrap(), Some(Outcome::Again(..))));
    assert!(matches!(tell_one(&data, &gone, MIDNIGHT + 90_000).unwrap(), Some(Outcome::GivenUp(_))));
    assert_eq!(tell_one(&data, &gone, MIDNIGHT + 90_000).unwrap(), None);
    let mut keeper = Keeper::start(data.clone(), judging.notes.clone(), None).unwrap();
    keeper.stop();
}
