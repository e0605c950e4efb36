//! Properties of this machine, and the placement on its cores.

use std::collections::BTreeMap;

use schema::document::Host;
use sys::accounting::{CpuTimes, HostFacts};
use sys::idle::Awake;
use sys::sched::Cores;

use crate::error::TestbedError;
use plan::{Idle, Placement};

/// Cores of each part of a run. `None`: any core that the kernel chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorePlan {
    /// Cores of generator and path.
    pub client: Option<Cores>,
    /// Cores of the server.
    pub server: Option<Cores>,
}

impl CorePlan {
    /// Splits the allowed cores: generator and path on the last, the recorder on the one before it if there are at
    /// least four, the server on the rest. With one core, or with placement float, nothing is pinned.
    ///
    /// With several shards each has its own core, as long as the server keeps half of them; further shards share.
    pub fn new(placement: Placement, allowed: &Cores, shards: u32) -> Self {
        let cores = allowed.list();
        if placement == Placement::Float || cores.len() < 2 {
            return CorePlan::default();
        }
        let recorder = usize::from(cores.len() >= 4);
        let ours = (shards.max(1) as usize + recorder).min((cores.len() / 2).max(1 + recorder));
        let (server, client) = cores.split_at(cores.len() - ours);
        CorePlan { client: Some(Cores::new(client.to_vec())), server: Some(Cores::new(server.to_vec())) }
    }

    /// Cores of the capture thread: the first core of generator and path, which it shares with the recorder. The loop
    /// has the last; if there is only one, the thread runs in the loop's pauses. `None` if nothing is pinned
    /// (docs/decisions/0011).
    pub fn watch_cores(&self) -> Option<Cores> {
        self.client.as_ref().and_then(|cores| cores.list().first().map(|&core| Cores::new(vec![core])))
    }

    /// The core of the loop with the path, which is that of the first shard.
    pub fn loop_core(&self) -> Option<Cores> {
        self.shard_core(0)
    }

    /// The core of a shard: the last is the first shard's, and so on downwards; the recorder's own core has no shard.
    pub fn shard_core(&self, shard: u32) -> Option<Cores> {
        let cores = self.client.as_ref()?.list();
        let loops = if cores.len() > 1 { &cores[1..] } else { cores };
        let from_last = shard as usize % loops.len().max(1);
        loops.len().checked_sub(1 + from_last).map(|at| Cores::new(vec![loops[at]]))
    }

    /// The cores of the first `shards` shards, as the document lists them.
    pub fn shard_cores(&self, shards: u32) -> Option<Cores> {
        let each = (0..shards.max(1)).map(|shard| self.shard_core(shard)).collect::<Option<Vec<_>>>()?;
        Some(Cores::new(each.iter().flat_map(|cores| cores.list().iter().copied()).collect()))
    }

    /// Whether no other shard shares this shard's core.
    pub fn is_own(&self, shard: u32, shards: u32) -> bool {
        let core = self.shard_core(shard);
        core.is_some() && (0..shards).filter(|&other| self.shard_core(other) == core).count() == 1
    }
}

/// Share of all cores' time that the hypervisor took between two readings.
pub fn steal_share(before: Option<&[(usize, CpuTimes)]>, after: Option<&[(usize, CpuTimes)]>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let (mut stolen, mut total) = (0.0, 0.0);
    for (core, times) in after {
        let (_, earlier) = before.iter().find(|(other, _)| other == core)?;
        let spent = times.since(earlier);
        stolen += spent.steal.as_secs_f64();
        total += (spent.busy() + spent.idle + spent.iowait).as_secs_f64();
    }
    (total > 0.0).then(|| stolen / total)
}

/// This machine's processors during a run: kept awake during its lifetime, if the plan configures it and the user may.
#[derive(Debug)]
pub struct Wakefulness {
    _awake: Option<Awake>,
    words: String,
}

impl Wakefulness {
    /// Applies the plan's setting from now on.
    pub fn of(idle: Idle) -> Self {
        let awake = match idle {
            Idle::Sleep => return Wakefulness { _awake: None, words: idle.name().to_owned() },
            Idle::Awake => Awake::prevent_sleep(),
        };
        match awake {
            Ok(awake) => Wakefulness { _awake: Some(awake), words: idle.name().to_owned() },
            Err(error) => {
                let message = error.to_string();
                // The rest of the message is the fix, which `doctor` shows.
                let why = message.split("; ").next().unwrap_or(&message);
                Wakefulness { _awake: None, words: format!("{} ({why})", Idle::Sleep.name()) }
            }
        }
    }

    /// The value in the document: `awake`, `sleep`, or `sleep` and why.
    pub fn words(&self) -> &str {
        &self.words
    }
}

/// The machine's properties.
///
/// # Errors
/// /proc or sched_getaffinity(2) fails.
pub fn facts(cores: &CorePlan, shards: u32) -> Result<Host, TestbedError> {
    let allowed = Cores::allowed().map_err(TestbedError::system("sched_getaffinity"))?;
    let facts = HostFacts::read().map_err(TestbedError::environment)?;
    Ok(Host {
        kernel: facts.kernel,
        cpu: facts.cpu_model,
        cores: allowed.list().len() as u32,
        memory_bytes: facts.memory_bytes,
        client_cores: cores.shard_cores(shards).map(|cores| cores.to_string()),
        server_cores: cores.server.as_ref().map(Cores::to_string),
        settings: BTreeMap::new(),
        steal_share: None,
        cpu_probe_ns: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processors_are_reported_as_awake_or_sleep() {
        assert_eq!(Wakefulness::of(Idle::Sleep).words(), "sleep");
        let awake = Wakefulness::of(Idle::Awake);
        assert!(awake.words() == "awake" || awake.words().starts_with("sleep ("), "{}", awake.words());
    }

    #[test]
    fn server_and_loop_never_share_a_core() {
        for (n, shards) in (2..10).flat_map(|n| (1..6).map(move |shards| (n, shards))) {
            let plan = CorePlan::new(Placement::Split, &Cores::new((0..n).collect()), shards);
            let server = plan.server.clone().unwrap();
            assert!(server.list().len() >= n / 2, "{n} cores, {shards} shards: {server}");
            for shard in 0..shards {
                let own = plan.shard_core(shard).unwrap();
                assert!(!server.list().contains(&own.list()[0]), "{n} cores, shard {shard} of {shards}");
            }
            let recorder = usize::from(n >= 4);
            let all_fit = (n / 2).max(1 + recorder) >= shards as usize + recorder;
            assert_eq!((0..shards).all(|shard| plan.is_own(shard, shards)), all_fit, "{n} cores, {shards} shards");
        }
        assert_eq!(CorePlan::new(Placement::Split, &Cores::new(vec![3]), 1), CorePlan::default());
        assert_eq!(CorePlan::new(Placement::Float, &Cores::new(vec![0, 1]), 1), CorePlan::default());
    }
}
