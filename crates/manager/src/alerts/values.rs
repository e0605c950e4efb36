//! Values of a rule for a minute: one for each subject, or none.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::SUBJECTS_MAX;
use super::rule::{Limits, Metric, Rule};
use crate::quality::{By, QualityError, SumQuery, Tally, named_agents, sum_over};

/// The time of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationTime {
    /// End of the evaluated minute, s since 1970.
    pub end_s: u64,
    /// The manager's clock.
    pub now_ns: u64,
    /// When the manager started: an agent is not silent while the manager was stopped.
    pub started_ns: u64,
}

/// Losses of each agent with their times, as far back as rules need them.
pub type LossHistory = BTreeMap<String, Vec<(u64, u64)>>;

/// An agent's row of the index.
#[derive(Serialize, Deserialize)]
struct Agent {
    name: String,
    seen_ns: u64,
    told_ns: u64,
    lost: u64,
}

/// The value of each subject; `None`: there is no data.
///
/// # Errors
/// An error of SQLite; more rows than one query may read.
pub fn values(
    index: &Connection,
    rule: &Rule,
    limits: &Limits,
    time: EvaluationTime,
    losses: &mut LossHistory,
) -> Result<BTreeMap<String, Option<f64>>, QualityError> {
    let selected = named_agents(index, rule.agent.as_deref(), rule.group.as_deref())?;
    if rule.metric.is_of_agents() || rule.metric == Metric::Attempts {
        let agents = agents(index, selected.as_ref())?;
        if rule.metric == Metric::Attempts {
            return attempts(index, rule, limits, time, &agents);
        }
        return Ok(of_agents(rule.metric, limits, time, agents, losses));
    }
    let mut found: Vec<(String, Tally)> = sums(index, rule, limits, time)?.into_iter().collect();
    found.sort_by(|(a, x), (b, y)| y.sums.attempts.cmp(&x.sums.attempts).then_with(|| a.cmp(b)));
    let value = |tally: &Tally| {
        let sums = &tally.sums;
        if sums.attempts < rule.min_attempts.max(1) {
            return None;
        }
        match rule.metric {
            Metric::ErrorRatio => Some(sums.failed as f64 / sums.attempts as f64),
            Metric::Availability => (tally.tried > 0).then(|| tally.succeeded as f64 / tally.tried as f64),
            metric => sums.response.quantile(metric.quantile()?).map(|ns| ns as f64),
        }
    };
    let mut values: BTreeMap<String, Option<f64>> =
        found.iter().take(SUBJECTS_MAX).map(|(name, tally)| (name.clone(), value(tally))).collect();
    if rule.by == By::None {
        values.entry(String::new()).or_insert(None);
    }
    Ok(values)
}

fn sums(
    index: &Connection,
    rule: &Rule,
    limits: &Limits,
    time: EvaluationTime,
) -> Result<BTreeMap<String, Tally>, QualityError> {
    let sum_query = SumQuery {
        from_s: time.end_s.saturating_sub(limits.over_s),
        until_s: time.end_s,
        by: rule.by,
        sides: rule.side,
        agent: rule.agent.as_deref(),
        group: rule.group.as_deref(),
        program: rule.program.as_deref(),
        peer: rule.peer.as_deref(),
    };
    sum_over(index, &sum_query)
}

/// Attempts, including zero, of agents that have reported everything up to the end. For an agent that has not, the
/// number of attempts is unknown.
fn attempts(
    index: &Connection,
    rule: &Rule,
    limits: &Limits,
    time: EvaluationTime,
    agents: &[Agent],
) -> Result<BTreeMap<String, Option<f64>>, QualityError> {
    let has_reported = |agent: &Agent| agent.told_ns >= time.end_s.saturating_mul(1_000_000_000);
    let count = |tally: Option<&Tally>| tally.map_or(0.0, |tally| tally.sums.attempts as f64);
    let found = sums(index, rule, limits, time)?;
    let mut values: BTreeMap<String, Option<f64>> = BTreeMap::new();
    match rule.by {
        By::Agent => {
            for agent in agents.iter().take(SUBJECTS_MAX) {
                values.insert(agent.name.clone(), has_reported(agent).then(|| count(found.get(&agent.name))));
            }
        }
        By::None => {
            values.insert(String::new(), agents.iter().any(has_reported).then(|| count(found.get(""))));
        }
        // Programs, peers and groups without rows are unknown, so they have no zero.
        _ => {
            values.extend(found.iter().take(SUBJECTS_MAX).map(|(name, tally)| (name.clone(), Some(count(Some(tally))))))
        }
    }
    Ok(values)
}

fn of_agents(
    metric: Metric,
    limits: &Limits,
    time: EvaluationTime,
    agents: Vec<Agent>,
    losses: &mut LossHistory,
) -> BTreeMap<String, Option<f64>> {
    let names: BTreeSet<&String> = agents.iter().map(|agent| &agent.name).collect();
    losses.retain(|name, _| names.contains(name));
    let seconds = |since_ns: u64| time.now_ns.saturating_sub(since_ns) as f64 / 1e9;
    let mut values = BTreeMap::new();
    for agent in agents.into_iter().take(SUBJECTS_MAX) {
        let value = match metric {
            Metric::AgentSilent => (agent.seen_ns > 0).then(|| seconds(agent.seen_ns.max(time.started_ns))),
            Metric::AgentLag => (agent.told_ns > 0).then(|| seconds(agent.told_ns)),
            _ => Some(lost_in(losses.entry(agent.name.clone()).or_default(), limits, time.end_s, agent.lost) as f64),
        };
        values.insert(agent.name, value);
    }
    values
}

/// Losses within the rule's time: the total now less the total at its start. Keeps what later minutes need.
fn lost_in(history: &mut Vec<(u64, u64)>, limits: &Limits, end_s: u64, lost: u64) -> u64 {
    let begin_s = end_s.saturating_sub(limits.over_s);
    let interval_s = limits.over_s / LOSS_CHANGES_MAX;
    match history.last() {
        None => history.push((end_s, lost)),
        Some(&(at_s, before)) if before != lost && end_s >= at_s + interval_s => history.push((end_s, lost)),
        _ => {}
    }
    // The last total that is not younger than the start of the time is the total at its start.
    let first = history.iter().rposition(|(at_s, _)| *at_s <= begin_s).unwrap_or(0);
    history.drain(..first);
    lost.saturating_sub(history.first().map_or(lost, |(_, before)| *before))
}

/// Number of changes stored per rule time: its length is accurate to a twentieth.
const LOSS_CHANGES_MAX: u64 = 20;

fn agents(index: &Connection, selected: Option<&BTreeSet<String>>) -> rusqlite::Result<Vec<Agent>> {
    let mut query = index.prepare_cached(
        "SELECT name, last_seen_at, told_at, records_lost + rows_dropped + rows_missed FROM agents ORDER BY name",
    )?;
    let whole = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at).map(|value| value.max(0) as u64);
    let rows = query.query_map([], |row| {
        Ok(Agent { name: row.get(0)?, seen_ns: whole(row, 1)?, told_ns: whole(row, 2)?, lost: whole(row, 3)? })
    })?;
    let is_selected = |agent: &Agent| selected.is_none_or(|selected| selected.contains(&agent.name));
    rows.filter(|row| row.as_ref().map_or(true, is_selected)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_count_within_the_time_of_the_rule_only() {
        let limits = Limits { below: false, threshold: 0.0, ends_at: 0.0, over_s: 600, hold_s: 0, ends_after_s: 0 };
        let mut history = Vec::new();
        let mut at = |minute: u64, lost: u64| lost_in(&mut history, &limits, 60_000 + minute * 60, lost);
        // Losses before the first evaluation do not count.
        assert_eq!(at(0, 1000), 0);
        assert_eq!((at(1, 1000), at(2, 1010), at(3, 1010)), (0, 10, 10));
        assert_eq!((at(5, 1015), at(11, 1015), at(12, 1015), at(14, 1015), at(15, 1015)), (15, 15, 5, 5, 0));
        assert_eq!(at(100, 1016), 1);
        for minute in 101..400 {
            at(minute, 1016 + minute);
        }
        assert!(history.len() as u64 <= LOSS_CHANGES_MAX + 2, "{history:?}");
    }
}
