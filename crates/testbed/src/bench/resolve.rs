//! First stage: the plan is checked, its files are read and names resolved. The machine is not changed yet.

use load::{LoadSpec, PhaseSpan, Target, Urls};
use path::{ClientPath, PathSpec};
use schema::document;

use super::destination::{self, Destination};
use super::{shard_part, spec};
use crate::drive::tls::Tls;
use crate::error::TestbedError;
use crate::{distances, offer};
use plan::{Engine, HttpVersion, Plan};

/// The plan with the contents of files and resolved names.
pub(super) struct Resolved {
    /// The plan, with settings from files written out.
    pub plan: Plan,
    /// The path's links; absent without a path.
    pub spec: Option<PathSpec>,
    /// The hosts and ports that requests go to.
    pub targets: Vec<Target>,
    /// Addresses to which connections are opened.
    pub destination: Destination,
    /// The destination as text.
    pub target: String,
    /// URLs with their own results. Collected in this stage, because that takes long for a log of a million requests,
    /// and the schedule has no time for it.
    pub urls: Urls,
    /// Phases with their own results.
    pub phases: Vec<PhaseSpan>,
    /// The replayed log or recording.
    pub recordings: (Option<document::Replay>, Option<document::Har>),
    /// Warnings to show before the result.
    pub notes: Vec<String>,
    /// The part of the load that this run makes, if the load has several.
    pub shard: Option<document::Shard>,
}

impl Resolved {
    /// Checks and reads the plan. `tapped`: this process was started under its own tap. The load engine's specification
    /// lacks its number of connections, which depends on the machine's limits.
    ///
    /// # Errors
    /// A plan that cannot be carried out, an unreadable file, or a name that cannot be resolved.
    pub fn of(plan: &Plan, tapped: bool) -> Result<(Self, LoadSpec), TestbedError> {
        plan.check()?;
        if plan.capacity.is_some() {
            return Err(TestbedError::plan(
                "this plan is a search for a capacity ([capacity]) of many runs: use yamabiko capacity, or run",
            ));
        }
        if plan.watch.tap && !tapped {
            return Err(TestbedError::plan(
                "tap (--tap, [watch] tap): only `bench` and `run` support a tap of their own load",
            ));
        }
        let mut offer = offer::of(plan)?;
        if plan.watch.tap {
            // io_uring bypasses the libc calls that the tap intercepts.
            offer.plan.host.engine = Engine::Epoll;
        }
        let workload = offer.workload.take().map_or_else(|| spec::workload(&offer.plan), Ok)?;
        let (targets, _) = workload.endpoints();
        offer.plan.load.settle_targets(&targets);
        let plan = offer.plan;
        plan.check_targets(&targets).map_err(TestbedError::Plan)?;
        let spec = plan.path.as_ref().map(|path| distances::spec(path, plan.load.clients)).transpose()?;
        if plan.load.http != HttpVersion::Http3 {
            spec.as_ref().map_or(Ok(()), distances::refuse_migration)?;
        }
        let shard = shard_part::of(&plan, spec.as_ref())?;
        let destination = destination::of(&plan, &targets)?;
        let target = destination::words(&plan, &targets, &destination.addresses);
        let urls = Urls::of(&workload);
        let load_spec = spec::load(&plan, workload, offer.arrivals);
        let resolved = Resolved {
            plan,
            spec,
            targets,
            destination,
            target,
            urls,
            phases: offer.phases,
            recordings: (offer.replay, offer.har),
            notes: offer.notes,
            shard,
        };
        Ok((resolved, load_spec))
    }

    /// Every client's path; empty without one.
    pub fn clients(&self) -> &[ClientPath] {
        self.spec.as_ref().map_or(&[], |spec| &spec.clients)
    }

    /// TLS for one loop, where the targets need it.
    ///
    /// # Errors
    /// A certificate or key that cannot be used.
    pub fn tls(&self) -> Result<Option<Tls>, TestbedError> {
        match (self.targets.iter().find(|target| target.secure), &self.plan.load.tls) {
            (Some(target), Some(tls)) => Tls::new(tls, &target.host).map(Some),
            _ => Ok(None),
        }
    }

    /// Each client's configured RTT in ns; absent without a path.
    pub fn rtts_ns(&self) -> Option<Vec<u64>> {
        self.spec.as_ref().map(|spec| spec.clients.iter().map(ClientPath::rtt_ns).collect())
    }
}
