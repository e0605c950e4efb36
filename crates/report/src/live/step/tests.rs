use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::state::{ChartHead, Fact, HeatHead, Line, Section, Status, Table, Text};
use super::*;

/// Applies a step as the page's script does (`apply` in live.js).
fn apply(whole: &str, step: &str) -> Value {
    let (mut state, step): (Value, Value) = (serde_json::from_str(whole).unwrap(), serde_json::from_str(step).unwrap());
    if let Some(head) = step.get("head") {
        let sections = state["sections"].take();
        state = head.clone();
        state["sections"] = sections;
    }
    let mut change = |id: &str, change: &dyn Fn(&mut Value)| {
        let sections = state["sections"].as_array_mut().unwrap().iter_mut();
        let mut pieces = sections.flat_map(|section| section["pieces"].as_array_mut().unwrap().iter_mut());
        change(pieces.find(|piece| piece["id"] == id).expect("a piece of this name"));
    };
    let list = |name: &str| step.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    for piece in list("pieces") {
        change(piece["id"].as_str().unwrap(), &|old| *old = piece.clone());
    }
    let splice = |old: &mut Value, from: usize, new: &Value| {
        let values = old.as_array_mut().unwrap();
        values.truncate(from);
        values.extend(new.as_array().unwrap().iter().cloned());
    };
    for grown in list("grown") {
        let from = grown["from"].as_u64().unwrap() as usize;
        change(grown["id"].as_str().unwrap(), &|chart| {
            splice(&mut chart["xs"], from, &grown["xs"]);
            for (at, ys) in grown["ys"].as_array().unwrap().iter().enumerate() {
                splice(&mut chart["ys"][at], from, ys);
            }
        });
    }
    for grown in list("columns") {
        let from = grown["from"].as_u64().unwrap() as usize;
        change(grown["id"].as_str().unwrap(), &|heat| splice(&mut heat["columns"], from, &grown["columns"]));
    }
    state
}

fn chart(values: &[u8], log: bool) -> Piece {
    let line = Line { name: "a <b>".into(), ..Line::default() };
    let head = ChartHead { id: "chart".into(), log, series: vec![line.clone(), line], ..ChartHead::default() };
    // Some values are gaps.
    let ys = values.iter().map(|&value| (value % 7 != 0).then_some(f64::from(value)));
    let xs = (0..values.len()).map(|at| at as f64).collect();
    Piece::Chart(Chart { head, xs, ys: vec![ys.clone().collect(), ys.rev().collect()] })
}

fn heat(values: &[u8], lowest: u16) -> Piece {
    let column = |(at, value): (usize, &u8)| Column { x: at as u32, cells: vec![0, u64::from(*value)] };
    let columns = values.iter().enumerate().map(column).collect();
    Piece::Heat(Heat { head: HeatHead { id: "heat".into(), lowest, ..HeatHead::default() }, columns })
}

fn state(word: &str, values: &[u8], other: bool, sections: u8) -> State {
    let rows = values.iter().take(3).map(|value| vec![value.to_string()]).collect();
    let table = Piece::Table(Table { id: "table".into(), rows, ..Table::default() });
    let text = Piece::Text(Text { id: "text".into(), text: word.into(), verbatim: other });
    let one = Section::new("one", "One").with(chart(values, other)).with(table).with(text);
    let mut state = State {
        title: "t".into(),
        status: Status { word: word.into(), tone: "going" },
        facts: values
            .first()
            .map(|&value| Fact::new("f", value.to_string(), f64::from(value), ""))
            .into_iter()
            .collect(),
        sections: vec![one],
        ..State::default()
    };
    if sections > 1 {
        state.sections.push(Section::new("two", "Two").with(heat(values, u16::from(other))));
    }
    state
}

proptest! {
    #[test]
    fn step_transforms_one_page_state_into_the_next(
        before: Vec<u8>,
        shared in 0usize..40,
        after: Vec<u8>,
        words: (bool, bool, bool),
        sections: (u8, u8),
    ) {
        // The first values are the same, as in a running run.
        let after: Vec<u8> = before.iter().take(shared).chain(&after).copied().collect();
        let word = |turn: bool| if turn { "x" } else { "y" };
        let (was, is) = (
            state(word(words.0), &before, words.2, sections.0 % 2 + 1),
            state(word(words.1), &after, false, sections.1 % 2 + 1),
        );
        match step(&was, &is) {
            None => prop_assert_ne!(sections.0 % 2, sections.1 % 2),
            Some(step) => {
                prop_assert_eq!(apply(&was.whole(), &step), serde_json::from_str::<Value>(&is.whole()).unwrap());
            }
        }
    }
}

#[test]
fn unchanged_parts_are_not_sent() {
    let long: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let (was, mut is) = (state("x", &long, false, 2), state("x", &long, false, 2));
    assert_eq!(step(&was, &is).as_deref(), Some("{}"));
    if let Piece::Chart(chart) = &mut is.sections[0].pieces[0] {
        chart.xs.push(1000.0);
        chart.ys.iter_mut().for_each(|ys| ys.push(Some(1.5)));
    }
    let sent: Value = serde_json::from_str(&step(&was, &is).unwrap()).unwrap();
    assert_eq!(sent, json!({ "grown": [{ "id": "chart", "from": 1000, "xs": [1000.0], "ys": [[1.5], [1.5]] }] }));
    is.status.word = "over".into();
    let sent = step(&was, &is).unwrap();
    assert!(sent.contains("\"over\"") && sent.len() < 600, "{}", sent.len());
}

#[test]
fn page_with_another_title_is_sent_completely() {
    let was = state("x", &[1, 2], false, 1);
    assert!(step(&was, &state("x", &[1, 2], false, 2)).is_none());
    let mut renamed = was.clone();
    renamed.sections[0].heading = "Other".into();
    assert!(step(&was, &renamed).is_none());
}
