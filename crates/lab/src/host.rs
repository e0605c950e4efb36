//! What machine this is, and which of its cores are whose.

use std::collections::BTreeMap;

use ledger::document::Host;
use sys::accounting::HostFacts;
use sys::sched::Cores;

use crate::error::LabError;
use crate::plan::Placement;

/// Which cores are whose. `None`: wherever the kernel puts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorePlan {
    /// Of generator and path.
    pub client: Option<Cores>,
    /// Of the server.
    pub server: Option<Cores>,
}

impl CorePlan {
    /// Splits the allowed cores: generator and path on the last, its recorder beside it from four cores up, the
    /// server on the rest. With one core, or when floating is asked, nobody is pinned.
    pub fn new(placement: Placement, allowed: &Cores) -> Self {
        let cores = allowed.list();
        if placement == Placement::Float || cores.len() < 2 {
            return CorePlan::default();
        }
        let ours = if cores.len() >= 4 { 2 } else { 1 };
        let (server, client) = cores.split_at(cores.len() - ours);
        CorePlan { client: Some(Cores::new(client.to_vec())), server: Some(Cores::new(server.to_vec())) }
    }

    /// Where the watching thread may run: on the first core of generator and path, which the recorder has too. The
    /// loop has the last; with one it is the same, and the thread runs in the loop's pauses. `None` where nobody is
    /// pinned (docs/decisions/0011).
    pub fn watch_cores(&self) -> Option<Cores> {
        self.client.as_ref().and_then(|cores| cores.list().first().map(|&core| Cores::new(vec![core])))
    }

    /// The one core of the loop.
    pub fn loop_core(&self) -> Option<Cores> {
        self.client.as_ref().and_then(|cores| cores.list().last().map(|&core| Cores::new(vec![core])))
    }
}

/// The machine's facts.
///
/// # Errors
/// /proc or sched_getaffinity(2) fails.
pub fn facts(cores: &CorePlan) -> Result<Host, LabError> {
    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    let facts = HostFacts::read().map_err(LabError::environment)?;
    Ok(Host {
        kernel: facts.kernel,
        cpu: facts.cpu_model,
        cores: allowed.list().len() as u32,
        memory_bytes: facts.memory_bytes,
        client_cores: cores.loop_core().map(|cores| cores.to_string()),
        server_cores: cores.server.as_ref().map(Cores::to_string),
        settings: BTreeMap::new(),
        steal_share: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_never_shares_a_core_with_the_loop() {
        for n in 2..10 {
            let plan = CorePlan::new(Placement::Split, &Cores::new((0..n).collect()));
            let ours = plan.loop_core().unwrap();
            assert!(!plan.server.unwrap().list().contains(&ours.list()[0]), "{n} cores");
        }
        assert_eq!(CorePlan::new(Placement::Split, &Cores::new(vec![3])), CorePlan::default());
        assert_eq!(CorePlan::new(Placement::Float, &Cores::new(vec![0, 1])), CorePlan::default());
    }
}
