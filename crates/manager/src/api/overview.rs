//! The event stream of the page: the state of all agents and alerts, and every two seconds the changes.
//!
//! ```text
//!   index ──read──▶ PageState ──changes──▶ step ─┐
//!                     └────────────────────────────────▶ whole ─┴─ Hub: serialised once, the same bytes for all
//! ```
//!
//! Without viewers only the counts of rows are read, every ten seconds, so that rates are known when a viewer
//! connects.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::agents::{Agent, agents};
use super::{State, now_ns};
use crate::alerts;
use crate::error::Error;
use crate::quality::{self, QualityError};

/// The polling thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Overview {
    signal: UpdateSignal,
    thread: Option<JoinHandle<()>>,
}

impl Overview {
    /// Starts the thread for the page of `state`.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(state: &State) -> io::Result<Overview> {
        let signal = state.signal.clone();
        let state = state.clone();
        let mut poller = Poller::default();
        let thread = thread::Builder::new().name("overview".into()).spawn(move || {
            loop {
                poller.poll(&state);
                if state.signal.wait(UPDATE_INTERVAL) {
                    state.hub.close();
                    return;
                }
            }
        })?;
        Ok(Overview { signal, thread: Some(thread) })
    }
}

impl Drop for Overview {
    fn drop(&mut self) {
        self.signal.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Signals the thread to poll early. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub(super) struct UpdateSignal(Arc<(Mutex<SignalState>, Condvar)>);

#[derive(Debug, Default)]
struct SignalState {
    is_signalled: bool,
    is_ending: bool,
}

impl UpdateSignal {
    /// Poll now.
    pub(super) fn notify(&self) {
        self.change(|state| state.is_signalled = true);
    }

    fn end(&self) {
        self.change(|state| state.is_ending = true);
    }

    fn change(&self, change: impl FnOnce(&mut SignalState)) {
        change(&mut self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.1.notify_all();
    }

    /// Waits for a signal, or for a time; returns whether the thread must end.
    fn wait(&self, timeout: Duration) -> bool {
        let locked = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(locked, timeout, |state| !state.is_signalled && !state.is_ending);
        let (mut locked, _) = waited.unwrap_or_else(PoisonError::into_inner);
        locked.is_signalled = false;
        locked.is_ending
    }
}

/// The displayed state as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct PageState {
    head: Map<String, Value>,
    agents: BTreeMap<String, Map<String, Value>>,
}

/// The changes between two [`PageState`] states.
#[derive(Debug, Serialize)]
struct Step {
    head: Map<String, Value>,
    agents: BTreeMap<String, Map<String, Value>>,
    gone: Vec<String>,
}

#[derive(Default)]
struct Poller {
    page_state: Arc<PageState>,
    sparks: HashMap<String, Value>,
    sparks_at_ns: u64,
    rates: Rates,
    has_published: bool,
}

impl Poller {
    fn poll(&mut self, state: &State) {
        let now = now_ns();
        let outcome = if state.viewers() > 0 || !self.has_published {
            state.data.read(|index| self.read_state(index, now))
        } else {
            state.data.read(|index| Ok(self.rates.sample(index, now).map(|()| None)?))
        };
        match outcome {
            Ok(Some(page_state)) => self.publish(state, page_state),
            Ok(None) => {}
            Err(error) => state.trouble(&error),
        }
    }

    fn read_state(&mut self, index: &Connection, now_ns: u64) -> Result<Option<PageState>, Error> {
        self.rates.sample(index, now_ns)?;
        if now_ns.abs_diff(self.sparks_at_ns) >= SPARKLINE_INTERVAL_NS {
            self.sparks_at_ns = now_ns;
            let sparks = quality::read_sparklines(index, now_ns / 1_000_000_000, quality::Sides::Client);
            let sparks = sparks.map_err(|error| match error {
                QualityError::Index(error) => Error::Index(error),
                other => Error::Refused(other.to_string()),
            })?;
            self.sparks = sparks.agents.iter().map(|(agent, spark)| (agent.clone(), as_value(spark))).collect();
        }
        let all = agents(index, now_ns)?;
        let agents_left_out = all.len().saturating_sub(AGENTS_MAX);
        let agents = all.into_iter().take(AGENTS_MAX).map(|agent| self.line(agent)).collect();
        let one = |sql: &str| index.query_row(sql, [], |row| row.get::<_, i64>(0));
        let head = json!({
            "now_unix_ns": now_ns,
            "agents_left_out": agents_left_out,
            "alerts": as_value(&alerts::list(index)?),
            "refused": one("SELECT coalesce(sum(count), 0) FROM refused")?,
            "waiting_rows": one("SELECT coalesce(sum(rows), 0) FROM pending")?,
        });
        Ok(Some(PageState { head: object(head), agents }))
    }

    fn line(&self, agent: Agent) -> (String, Map<String, Value>) {
        let mut line = object(as_value(&agent));
        line.insert("rows_per_s".to_owned(), self.rates.of(&agent.name).map_or(Value::Null, Value::from));
        line.insert("hour".to_owned(), self.sparks.get(&agent.name).cloned().unwrap_or(Value::Null));
        (agent.name, line)
    }

    fn publish(&mut self, state: &State, page_state: PageState) {
        let step = self.has_published.then(|| as_value(&Step::between(&self.page_state, &page_state)).to_string());
        self.page_state = Arc::new(page_state);
        self.has_published = true;
        let snapshot = Arc::clone(&self.page_state);
        state.hub.publish(step.as_deref(), Box::new(move || as_value(&*snapshot).to_string()));
    }
}

impl Step {
    fn between(before: &PageState, after: &PageState) -> Step {
        let agents = after.agents.iter().filter_map(|(name, line)| {
            let changed = match before.agents.get(name) {
                Some(was) => changed(was, line),
                None => line.clone(),
            };
            (!changed.is_empty()).then(|| (name.clone(), changed))
        });
        Step {
            head: changed(&before.head, &after.head),
            agents: agents.collect(),
            gone: before.agents.keys().filter(|name| !after.agents.contains_key(*name)).cloned().collect(),
        }
    }
}

/// Fields that changed. The set of fields is always the same.
fn changed(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// Rows per second of each agent, over the last minute.
#[derive(Default)]
struct Rates {
    sampled_at_ns: u64,
    rows: HashMap<String, VecDeque<(u64, i64)>>,
}

impl Rates {
    fn sample(&mut self, index: &Connection, now_ns: u64) -> rusqlite::Result<()> {
        if now_ns.abs_diff(self.sampled_at_ns) < SAMPLE_INTERVAL_NS {
            return Ok(());
        }
        self.sampled_at_ns = now_ns;
        let mut statement = index.prepare_cached("SELECT name, rows FROM agents")?;
        let found = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
        let found = found.collect::<rusqlite::Result<HashMap<_, _>>>()?;
        self.rows.retain(|name, _| found.contains_key(name));
        for (name, rows) in found {
            let samples = self.rows.entry(name).or_default();
            samples.push_back((now_ns, rows));
            if samples.len() > SAMPLES {
                samples.pop_front();
            }
        }
        Ok(())
    }

    /// `None` until there are two samples.
    fn of(&self, agent: &str) -> Option<f64> {
        let samples = self.rows.get(agent)?;
        let ((from, before), (to, after)) = (samples.front()?, samples.back()?);
        let seconds = to.checked_sub(*from).filter(|ns| *ns > 0)? as f64 / 1e9;
        // Rounded to a tenth: more digits would change every time.
        Some(((after - before).max(0) as f64 / seconds * 10.0).round() / 10.0)
    }
}

fn as_value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Maximum agents on the page: some 4 MB for a new viewer. The API has all agents.
const AGENTS_MAX: usize = 2000;
/// Poll interval while there are viewers.
const UPDATE_INTERVAL: Duration = Duration::from_secs(2);
const SPARKLINE_INTERVAL_NS: u64 = 10_000_000_000;
const SAMPLE_INTERVAL_NS: u64 = 10_000_000_000;
/// Samples of a minute, including both ends.
const SAMPLES: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn page_state(agents: &[(&str, Value)]) -> PageState {
        let agents = agents.iter().map(|(name, line)| ((*name).to_owned(), object(line.clone()))).collect();
        PageState { head: object(json!({ "refused": 1 })), agents }
    }

    #[test]
    fn an_overview_update_has_only_changed_fields() {
        let before = page_state(&[("a", json!({ "rows": 1, "group": "" })), ("b", json!({ "rows": 2 }))]);
        let after = page_state(&[("a", json!({ "rows": 3, "group": "" })), ("c", json!({ "rows": 9 }))]);
        let step = as_value(&Step::between(&before, &after));
        assert_eq!(step, json!({ "head": {}, "agents": { "a": { "rows": 3 }, "c": { "rows": 9 } }, "gone": ["b"] }));
        assert_eq!(as_value(&Step::between(&after, &after))["agents"], json!({}));
    }

    #[test]
    fn overview_rates_cover_the_last_minute() {
        let mut rates = Rates::default();
        let samples = (0..10_i64).map(|at| (at as u64 * 10_000_000_000, at * at));
        let remaining: VecDeque<_> = samples.skip(3).collect();
        rates.rows.insert("a".into(), remaining);
        // From 3 to 9: 72 rows in a minute.
        assert_eq!((rates.of("a"), rates.of("b")), (Some(1.2), None));
        rates.rows.insert("a".into(), [(5, 7)].into());
        assert_eq!(rates.of("a"), None);
    }

    #[test]
    fn the_update_signal_wakes_and_ends_viewers() {
        let signal = UpdateSignal::default();
        signal.notify();
        assert!(!signal.wait(Duration::from_secs(600)), "the signal was set before the wait");
        let other = signal.clone();
        let ends = thread::spawn(move || other.end());
        assert!(signal.wait(Duration::from_secs(600)));
        ends.join().unwrap();
    }
}
