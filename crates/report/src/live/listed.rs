//! The list of runs on the live page: running runs, and the newest ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schema::RunPhase;

use super::Follower;
use super::state::{Piece, Section, State, Status, Table, Text};

/// A run in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    id: String,
    word: String,
    lead: String,
    is_over: bool,
}

/// Modification times of a run's document and progress file.
type Stamps = [Option<SystemTime>; 2];

/// Cache of runs that ended, which the list need not read again.
#[derive(Debug, Default)]
pub struct RunList {
    known: BTreeMap<PathBuf, (Stamps, Listed)>,
}

impl RunList {
    /// Reads these folders, the oldest first; the newest are shown.
    pub fn poll(&mut self, dirs: &[PathBuf]) -> State {
        let newest = &dirs[dirs.len().saturating_sub(RUNS_MAX)..];
        self.known.retain(|dir, _| newest.contains(dir));
        let runs: Vec<Listed> = newest.iter().rev().map(|dir| self.listed(dir)).collect();
        list(&runs, dirs.len())
    }

    fn listed(&mut self, dir: &Path) -> Listed {
        let stamp = ["summary.json", "progress.json"]
            .map(|name| std::fs::metadata(dir.join(name)).and_then(|found| found.modified()).ok());
        if let Some((known, listed)) = self.known.get(dir)
            && *known == stamp
            && listed.is_over
        {
            return listed.clone();
        }
        let listed = Listed::read(dir);
        self.known.insert(dir.to_owned(), (stamp, listed.clone()));
        listed
    }
}

impl Listed {
    /// Reads a run's folder, without its tables.
    pub fn read(dir: &Path) -> Listed {
        let mut follower = Follower::new(dir);
        follower.poll_without_tables();
        let state = follower.state();
        let word = match state.judged {
            Some(judged) if state.is_over && state.status.word == "Ended" => judged.word.to_owned(),
            _ => state.status.word,
        };
        let word = if follower.phase() == RunPhase::Killed { "Killed".to_owned() } else { word };
        Listed { id: state.title, word, lead: state.lead, is_over: state.is_over }
    }
}

/// The page of these runs; `all` is the total number of runs.
pub fn list(runs: &[Listed], all: usize) -> State {
    let going = runs.iter().filter(|run| !run.is_over).count();
    let lead = match (all, going) {
        (0, _) => "There is no stored run yet; `yamabiko demo` makes the first.".to_owned(),
        (_, 0) => "No run is running.".to_owned(),
        (_, 1) => "1 run is running.".to_owned(),
        (_, n) => format!("{n} runs are running."),
    };
    let table = |id: &str, runs: Vec<&Listed>| {
        let row = |run: &&Listed| vec![run.id.clone(), run.word.clone(), run.lead.clone()];
        (!runs.is_empty()).then(|| {
            Piece::Table(Table {
                id: id.to_owned(),
                head: ["run", "", "result"].map(str::to_owned).to_vec(),
                left: vec![1, 2],
                rows: runs.iter().map(row).collect(),
                links: runs.iter().map(|run| format!("run/{}/", run.id)).collect(),
            })
        })
    };
    let (over, on): (Vec<&Listed>, Vec<&Listed>) = runs.iter().partition(|run| run.is_over);
    let left_out = all.saturating_sub(runs.len());
    let mut newest = Section::new("newest", "Newest").with(table("newest-table", over));
    if left_out > 0 {
        let text = format!("And {left_out} older ones: `yamabiko runs` lists all.");
        newest = newest.with(Piece::Text(Text { id: "newest-rest".into(), text, verbatim: false }));
    }
    let mut sections = vec![Section::new("going", "Running").with(table("going-table", on)), newest];
    sections.retain(|section| !section.pieces.is_empty());
    State {
        title: "Runs".to_owned(),
        status: Status { word: if going > 0 { "Running" } else { "" }.to_owned(), tone: "going" },
        aloud: lead.clone(),
        lead,
        sections,
        ..State::default()
    }
}

/// Largest number of runs in the list.
const RUNS_MAX: usize = 40;
