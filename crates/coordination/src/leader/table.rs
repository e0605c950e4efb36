//! All shards at one time, as the leader was told: the table of its live page.

use std::time::Duration;

use schema::{RunPhase, ShardProgress, ShardState, ShardsProgress};

use super::member_state::{End, MemberState};
use super::{Leader, Phase};
use crate::Now;
use crate::message::Progress;

/// Age of a report after which its rates are no longer those of the present.
const RATE_AGE_MAX: Duration = Duration::from_secs(4);

/// A shard's reports, and the rates between the last two.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    last: Option<(Progress, Duration)>,
    /// Offered and achieved requests per second.
    rates: Option<(f64, f64)>,
}

impl Reports {
    /// Takes a report. One that is repeated, or older than the last one, changes nothing.
    pub fn take(&mut self, now: Duration, progress: Progress) {
        if progress == Progress::default() {
            return;
        }
        if let Some((last, _)) = self.last {
            if progress.at_ms <= last.at_ms {
                return;
            }
            let seconds = (progress.at_ms - last.at_ms) as f64 / 1e3;
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            self.rates = Some((rate(progress.offered, last.offered), rate(progress.completed, last.completed)));
        }
        self.last = Some((progress, now));
    }

    /// The last report; zero before the first.
    pub fn progress(&self) -> Progress {
        self.last.map_or(Progress::default(), |(progress, _)| progress)
    }

    /// Offered and achieved rate, if the last report is recent.
    fn rates(&self, now: Duration) -> Option<(f64, f64)> {
        let (_, taken) = self.last?;
        self.rates.filter(|_| now.saturating_sub(taken) <= RATE_AGE_MAX)
    }

    /// The figures of a shard whose load `runs`, or has ended.
    fn fill(&self, shard: ShardProgress, now: Duration, runs: bool) -> ShardProgress {
        let rates = self.rates(now).filter(|_| runs);
        let last = self.last.map(|(progress, _)| progress);
        ShardProgress {
            offered_per_s: rates.map(|(offered, _)| offered),
            achieved_per_s: rates.map(|(_, achieved)| achieved),
            errors: last.map(|progress| progress.failed),
            response_time: last.and_then(|progress| progress.response_time),
            ..shard
        }
    }

    /// The state of a load that has its start.
    fn state(&self) -> ShardState {
        match self.progress().phase {
            RunPhase::Starting => ShardState::Waiting,
            RunPhase::Warmup => ShardState::Warmup,
            RunPhase::Measured => ShardState::Measured,
            RunPhase::Drain | RunPhase::Done | RunPhase::Killed => ShardState::Drain,
        }
    }
}

impl Leader {
    /// All shards.
    pub(super) fn table(&self, now: Now) -> ShardsProgress {
        let members = (1..).zip(&self.members).map(|(index, member)| self.row(now.monotonic, index, member));
        ShardsProgress::of(std::iter::once(self.own_row(now.monotonic)).chain(members).collect())
    }

    fn own_row(&self, now: Duration) -> ShardProgress {
        let (state, why) = match (&self.own_failure, &self.phase) {
            (Some(why), _) => (ShardState::Failed, why.clone()),
            (None, _) if self.has_ended => (ShardState::Done, String::new()),
            (None, Phase::Gathering) => (ShardState::Ready, String::new()),
            (None, _) => (self.reports.state(), String::new()),
        };
        let runs = is_running(state);
        let host = self.identity.host.clone();
        self.reports.fill(ShardProgress { index: 0, host, state, why, ..ShardProgress::default() }, now, runs)
    }

    fn row(&self, now: Duration, index: u32, member: &MemberState) -> ShardProgress {
        let (state, why) = match &member.end {
            End::Known(Some(why)) => (ShardState::Failed, why.clone()),
            End::Known(None) => (ShardState::Done, String::new()),
            End::Fetching => (ShardState::Sending, String::new()),
            End::Open if member.instance.is_none() => (ShardState::Absent, String::new()),
            End::Open if member.is_lost => (ShardState::Lost, String::new()),
            End::Open if member.ready.is_none() => (ShardState::Preparing, String::new()),
            End::Open if self.phase == Phase::Gathering => (ShardState::Ready, String::new()),
            End::Open => (member.reports.state(), String::new()),
        };
        let shard = ShardProgress {
            index,
            host: member.host.clone(),
            state,
            why,
            clock: member.ready,
            silent_s: member.instance.map(|_| now.saturating_sub(member.heard).as_secs()),
            ..ShardProgress::default()
        };
        member.reports.fill(shard, now, is_running(state))
    }
}

fn is_running(state: ShardState) -> bool {
    matches!(state, ShardState::Warmup | ShardState::Measured | ShardState::Drain)
}
