//! The leader of a trial of a search: who must be there already, and how long before the start it is set.

use std::time::Duration;

use super::{Leader, Phase, sentence};
use crate::message::Prepared;
use crate::{Identity, Now, READY_TIMEOUT, REJOIN_TIMEOUT, START_LEAD, TRIAL_START_LEAD};

/// The trial of a search.
#[derive(Debug)]
pub(super) struct OwnTrial {
    /// What this shard prepared.
    pub prepared: Prepared,
    /// Whether every member was in an earlier trial: it is there already, or lost.
    pub is_continued: bool,
}

impl Leader {
    /// The leader of a trial of a search, for which this shard prepared `prepared`. A lost member ends it.
    /// `is_continued`: every member was in an earlier trial.
    pub(crate) fn of_trial(identity: Identity, prepared: Prepared, is_continued: bool, now: Now) -> Self {
        Leader { trial: Some(OwnTrial { prepared, is_continued }), ..Leader::new(identity, true, now) }
    }

    /// Whether the trial has ended.
    pub(crate) fn is_resting(&self) -> bool {
        self.phase == Phase::Resting
    }

    /// Members of the earlier trials that have not announced themselves for this one, as a sentence.
    pub(super) fn not_rejoined(&self, now: Now) -> Option<String> {
        let since = self.began.max(self.connection_changed);
        let is_due = self.is_connected && now.monotonic.saturating_sub(since) > REJOIN_TIMEOUT;
        if !is_due || !self.trial.as_ref().is_some_and(|trial| trial.is_continued) {
            return None;
        }
        let absent = self.named(|member| member.instance.is_none());
        (!absent.is_empty()).then(|| format!("lost {} since the last trial", sentence(&absent)))
    }

    /// Time between the decision and the start. A trial was prepared once by every shard, which says how long it took.
    pub(super) fn start_lead(&self) -> Duration {
        let Some(trial) = &self.trial else { return START_LEAD };
        let own = Duration::from_millis(trial.prepared.took_ms).min(READY_TIMEOUT);
        TRIAL_START_LEAD + self.members.iter().map(|member| member.preparation).fold(own, Duration::max)
    }
}
