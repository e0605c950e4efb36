//! What machine this is, and which of its cores are whose.

use std::collections::BTreeMap;

use schema::document::Host;
use sys::accounting::HostFacts;
use sys::idle::Awake;
use sys::sched::Cores;

use crate::error::LabError;
use plan::{Idle, Placement};

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
    ///
    /// With several `lanes` each has a core of its own, as long as the server keeps half of them; more lanes share.
    pub fn new(placement: Placement, allowed: &Cores, lanes: u32) -> Self {
        let cores = allowed.list();
        if placement == Placement::Float || cores.len() < 2 {
            return CorePlan::default();
        }
        let recorder = usize::from(cores.len() >= 4);
        let ours = (lanes.max(1) as usize + recorder).min((cores.len() / 2).max(1 + recorder));
        let (server, client) = cores.split_at(cores.len() - ours);
        CorePlan { client: Some(Cores::new(client.to_vec())), server: Some(Cores::new(server.to_vec())) }
    }

    /// Where the watching thread may run: on the first core of generator and path, which the recorder has too. The
    /// loop has the last; with one it is the same, and the thread runs in the loop's pauses. `None` where nobody is
    /// pinned (docs/decisions/0011).
    pub fn watch_cores(&self) -> Option<Cores> {
        self.client.as_ref().and_then(|cores| cores.list().first().map(|&core| Cores::new(vec![core])))
    }

    /// The one core of the loop that has the path, which is that of the first lane.
    pub fn loop_core(&self) -> Option<Cores> {
        self.lane_core(0)
    }

    /// The one core of a lane: the last is the first lane's, and so on down; the recorder's own is nobody's.
    pub fn lane_core(&self, lane: u32) -> Option<Cores> {
        let cores = self.client.as_ref()?.list();
        let loops = if cores.len() > 1 { &cores[1..] } else { cores };
        let from_last = lane as usize % loops.len().max(1);
        loops.len().checked_sub(1 + from_last).map(|at| Cores::new(vec![loops[at]]))
    }

    /// The cores of the first `lanes` lanes, as the document lists them.
    pub fn lane_cores(&self, lanes: u32) -> Option<Cores> {
        let each = (0..lanes.max(1)).map(|lane| self.lane_core(lane)).collect::<Option<Vec<_>>>()?;
        Some(Cores::new(each.iter().flat_map(|cores| cores.list().iter().copied()).collect()))
    }

    /// Whether no other lane has this lane's core.
    pub fn is_own(&self, lane: u32, lanes: u32) -> bool {
        let core = self.lane_core(lane);
        core.is_some() && (0..lanes).filter(|&other| self.lane_core(other) == core).count() == 1
    }
}

/// This machine's processors during a run: awake as long as this lives, where the plan wants that and it may be.
#[derive(Debug)]
pub struct Wakefulness {
    _held: Option<Awake>,
    words: String,
}

impl Wakefulness {
    /// As the plan has it, from now on.
    pub fn of(idle: Idle) -> Self {
        let held = match idle {
            Idle::Sleep => return Wakefulness { _held: None, words: idle.name().to_owned() },
            Idle::Awake => Awake::hold(),
        };
        match held {
            Ok(awake) => Wakefulness { _held: Some(awake), words: idle.name().to_owned() },
            Err(error) => {
                let said = error.to_string();
                // What follows is how to mend it, which `doctor` says.
                let why = said.split("; ").next().unwrap_or(&said);
                Wakefulness { _held: None, words: format!("{} ({why})", Idle::Sleep.name()) }
            }
        }
    }

    /// For the document: `awake`, `sleep`, or `sleep` and why.
    pub fn words(&self) -> &str {
        &self.words
    }
}

/// The machine's facts.
///
/// # Errors
/// /proc or sched_getaffinity(2) fails.
pub fn facts(cores: &CorePlan, lanes: u32) -> Result<Host, LabError> {
    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    let facts = HostFacts::read().map_err(LabError::environment)?;
    Ok(Host {
        kernel: facts.kernel,
        cpu: facts.cpu_model,
        cores: allowed.list().len() as u32,
        memory_bytes: facts.memory_bytes,
        client_cores: cores.lane_cores(lanes).map(|cores| cores.to_string()),
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
    fn what_processors_do_is_said() {
        assert_eq!(Wakefulness::of(Idle::Sleep).words(), "sleep");
        let asked = Wakefulness::of(Idle::Awake);
        assert!(asked.words() == "awake" || asked.words().starts_with("sleep ("), "{}", asked.words());
    }

    #[test]
    fn the_server_never_shares_a_core_with_the_loop() {
        for (n, lanes) in (2..10).flat_map(|n| (1..6).map(move |lanes| (n, lanes))) {
            let plan = CorePlan::new(Placement::Split, &Cores::new((0..n).collect()), lanes);
            let server = plan.server.clone().unwrap();
            assert!(server.list().len() >= n / 2, "{n} cores, {lanes} lanes: {server}");
            for lane in 0..lanes {
                let own = plan.lane_core(lane).unwrap();
                assert!(!server.list().contains(&own.list()[0]), "{n} cores, lane {lane} of {lanes}");
            }
            let recorder = usize::from(n >= 4);
            let room = (n / 2).max(1 + recorder) >= lanes as usize + recorder;
            assert_eq!((0..lanes).all(|lane| plan.is_own(lane, lanes)), room, "{n} cores, {lanes} lanes");
        }
        assert_eq!(CorePlan::new(Placement::Split, &Cores::new(vec![3]), 1), CorePlan::default());
        assert_eq!(CorePlan::new(Placement::Float, &Cores::new(vec![0, 1]), 1), CorePlan::default());
    }
}
