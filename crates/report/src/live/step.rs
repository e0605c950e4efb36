//! The difference between two states of the live page.

use serde::Serialize;

use super::State;
use super::state::{Chart, Column, Heat, Piece};

/// The changes from one state to the next: applied to the previous state, they give the next state.
#[derive(Debug, Default, Serialize)]
struct Step<'a> {
    /// The state without its sections, if any of it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<State>,
    /// Pieces that replace those with the same id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<&'a Piece>,
    /// Charts of which only points from an index on changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    grown: Vec<Grown<'a>>,
    /// Heat maps of which only columns from an index on changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<GrownHeat<'a>>,
}

/// New points: they replace all points from `from` on.
#[derive(Debug, Serialize)]
struct Grown<'a> {
    id: &'a str,
    from: usize,
    xs: &'a [f64],
    ys: Vec<&'a [Option<f64>]>,
}

/// New columns: they replace all columns from `from` on.
#[derive(Debug, Serialize)]
struct GrownHeat<'a> {
    id: &'a str,
    from: usize,
    columns: &'a [Column],
}

/// The step from `before` to `after` as one line of JSON; `None` if the page has other pieces now, so that the complete
/// state must be sent. `Some` of an empty object means that nothing changed.
pub fn step(before: &State, after: &State) -> Option<String> {
    let names = |state: &State| {
        let sections = state.sections.iter();
        sections
            .map(|s| (s.id.clone(), s.heading.clone(), s.pieces.iter().map(|p| p.id().to_owned()).collect()))
            .collect()
    };
    let (was, is): (Vec<(String, String, Vec<String>)>, _) = (names(before), names(after));
    if was != is {
        return None;
    }
    let mut step = Step::default();
    let (was, is) = (head(before), head(after));
    if was != is {
        step.head = Some(is);
    }
    for (was, is) in before.pieces().zip(after.pieces()) {
        match (was, is) {
            (was, is) if was == is => {}
            (Piece::Chart(was), Piece::Chart(is)) if was.head == is.head => step.grown.push(grown(was, is)),
            (Piece::Heat(was), Piece::Heat(is)) if was.head == is.head => step.columns.push(grown_heat(was, is)),
            (_, is) => step.pieces.push(is),
        }
    }
    Some(serde_json::to_string(&step).expect("a step has plain keys and finite numbers"))
}

fn head(state: &State) -> State {
    State {
        title: state.title.clone(),
        status: state.status.clone(),
        lead: state.lead.clone(),
        progress: state.progress.clone(),
        facts: state.facts.clone(),
        judged: state.judged.clone(),
        sections: Vec::new(),
        foot: state.foot.clone(),
        aloud: state.aloud.clone(),
        is_over: state.is_over,
    }
}

fn grown<'a>(was: &Chart, is: &'a Chart) -> Grown<'a> {
    let same = |at: usize| {
        was.xs.get(at) == is.xs.get(at) && was.ys.iter().zip(&is.ys).all(|(was, is)| was.get(at) == is.get(at))
    };
    let from = (0..was.xs.len().min(is.xs.len())).find(|&at| !same(at)).unwrap_or(was.xs.len().min(is.xs.len()));
    Grown { id: &is.head.id, from, xs: &is.xs[from..], ys: is.ys.iter().map(|values| &values[from..]).collect() }
}

fn grown_heat<'a>(was: &Heat, is: &'a Heat) -> GrownHeat<'a> {
    let both = was.columns.iter().zip(&is.columns);
    let from = both.take_while(|(was, is)| was == is).count();
    GrownHeat { id: &is.head.id, from, columns: &is.columns[from..] }
}

#[cfg(test)]
mod tests;
