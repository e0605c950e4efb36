//! Plans of the sweeps.

use std::fs;
use std::time::Duration;

use plan::{ArrivalKind, CacheWorkloadPlan, PathPlan, Proxy, ServerPlan};
use units::{Probability, RequestRate};

use super::scale::Scale;
use super::{CacheExperiment, MeasurementContext, NAME, SchoolGatewayPart, TIMEOUT, TIMEOUT_FULL};
use cachebench::phases::PointPhase;
use cachebench::{CachePlan, SweepPlan};
use experiment::ExperimentError;
use experiment::programs::proxies::Sizes;
use experiment::programs::proxies::squid::Setup;

/// Share of a point that is warm-up: longer than the origin's think time, for short points.
const WARMUP: f64 = 0.25;
/// Least timeout of a complete response.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);
/// PolyMix-1's think time: mean and deviation in seconds.
const THINK_S: (f64, f64) = (3.0, 1.5);
/// The cache's port in the testbed.
const LISTEN: ([u8; 4], u16) = ([198, 18, 0, 1], 3128);
/// Clients of the paper's class.
const CLASS_CLIENTS: u32 = 40;
/// Phases of the class, in the paper's time: the teacher fetches 4 pages a second, then the last responses arrive.
const TEACHER_PHASE: Duration = Duration::from_secs(15);
const PAUSE_PHASE: Duration = Duration::from_secs(10);

impl MeasurementContext<'_> {
    pub(super) fn plan_of(
        &self,
        experiment: &CacheExperiment,
        scale: &Scale,
        rates: &[f64],
    ) -> Result<CachePlan, ExperimentError> {
        let (machine, factor) = (experiment.machine, scale.factor);
        let profile = self.folder.join(format!("card-{}.toml", experiment.interface.megabits()));
        fs::write(&profile, experiment.interface.profile(factor)).map_err(ExperimentError::file(&profile))?;
        let path = PathPlan { profile: Some(profile.display().to_string()), offload: false, ..PathPlan::default() };
        let plain: String =
            experiment.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plain = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        let sizes = Sizes { memory: machine.cache(), disk: None };
        let mut plan = self.plan(&format!("{NAME}-{plain}"), experiment.workload, factor, sizes, path)?;
        plan.cache.rates = at(rates, factor);
        if let Some(server) = &mut plan.server {
            server.cpu = Some(machine.share());
            server.memory = Some(machine.memory());
        }
        if experiment.part == SchoolGatewayPart::Class {
            self.set_class_phases(&mut plan, factor);
        }
        Ok(plan)
    }

    /// Common settings; the caller sets the rates.
    pub(super) fn plan(
        &self,
        name: &str,
        workload: &str,
        factor: f64,
        sizes: Sizes,
        path: PathPlan,
    ) -> Result<CachePlan, ExperimentError> {
        let setup = Setup { listen: LISTEN.into(), sizes, log: false };
        let command = self.squid.configure(self.folder, &setup)?;
        let (mean, deviation) = THINK_S;
        let think = polymix::Distribution::Normal { mean: mean / factor, sd: deviation / factor };
        let longest = if self.input.full { TIMEOUT_FULL } else { TIMEOUT };
        let timeout = longest.div_f64(factor).max(TIMEOUT_MIN);
        let proxy: Proxy = format!("server:{}", LISTEN.1)
            .parse()
            .map_err(|why| ExperimentError::Program { program: "the address of squid in the testbed", why })?;
        let cache = SweepPlan {
            proxy: Some(proxy),
            point: self.input.point,
            warmup: Probability::new(WARMUP).expect("a share"),
            arrivals: ArrivalKind::Poisson,
            cache_size: Some(sizes.memory),
            // A client of the class sends one request per second.
            client_rate: RequestRate::from_per_second(factor).unwrap_or(SweepPlan::default().client_rate),
            timeout,
            connect_timeout: timeout,
            ..SweepPlan::default()
        };
        let mut set = toml::Table::new();
        set.insert("think".into(), toml::Value::String(think.to_string()));
        Ok(CachePlan {
            name: name.to_owned(),
            seed: self.input.order.seed,
            workload: CacheWorkloadPlan { name: Some(workload.to_owned()), set, ..CacheWorkloadPlan::default() },
            path: Some(path),
            server: Some(ServerPlan {
                command,
                // A CPU limit of a few per cent slows the start.
                start_timeout: Duration::from_secs(60),
                ..ServerPlan::default()
            }),
            ..CachePlan::new(cache)
        })
    }

    /// The teacher, a pause, and then all clients.
    fn set_class_phases(&self, plan: &mut CachePlan, factor: f64) {
        let phase = |name: &str, lasts: Duration, load: f64| PointPhase {
            name: name.to_owned(),
            duration: Some(lasts),
            fill: None,
            load,
            load_to: None,
            recurrence: None,
            special: [1.0; 2],
            grows: true,
            measured: false,
        };
        plan.cache.arrivals = ArrivalKind::Constant;
        plan.cache.clients = Some(CLASS_CLIENTS);
        // The phases of the class have their own lengths.
        let none = SweepPlan::default();
        (plan.cache.point, plan.cache.warmup) = (none.point, none.warmup);
        plan.cache.phases = vec![
            PointPhase { recurrence: Some([0.0; 2]), ..phase("teacher", TEACHER_PHASE.div_f64(factor), 0.1) },
            phase("pause", PAUSE_PHASE.div_f64(factor), 0.0),
            PointPhase {
                recurrence: Some([1.0; 2]),
                grows: false,
                measured: true,
                ..phase("class", self.input.point, 1.0)
            },
        ];
    }
}

/// The paper's rates on this scale.
pub(super) fn at(rates: &[f64], factor: f64) -> Vec<RequestRate> {
    rates.iter().filter_map(|rate| RequestRate::from_per_second(rate * factor)).collect()
}

#[cfg(test)]
mod tests {
    use store::RunStore;
    use sys::signal::Interrupts;
    use testbed::Observer;

    use super::super::options::tests::input;
    use super::*;
    use crate::builder::DocumentBuilder;
    use experiment::Stage;
    use experiment::programs::proxies::Squid;

    #[test]
    fn every_sweep_plan_is_valid_and_scaled_by_the_factor() {
        let folder = tempfile::tempdir().unwrap();
        let run_store = RunStore::at(folder.path().join("runs"));
        let input = input(&SchoolGatewayPart::ALL);
        let interrupts = Interrupts::install().unwrap();
        let context = MeasurementContext {
            input: &input,
            run_store: &run_store,
            interrupts: &interrupts,
            stage: &mut Silent,
            folder: folder.path(),
            squid: Squid::at("/usr/sbin/squid"),
            builder: &mut DocumentBuilder::new(&run_store, NAME, &input.order, &mut Silent).unwrap(),
        };
        let scale = Scale::given(10.0);
        for experiment in input.experiments() {
            let plan = context.plan_of(&experiment, &scale, &input.rates_of(&experiment)).unwrap();
            plan.check().unwrap();
            assert_eq!(CachePlan::from_toml(&plan.to_toml(), "made").unwrap(), plan, "the plan reads back as stored");
            let workload = plan.workload.spec().unwrap();
            assert_eq!(
                workload.think,
                Some(polymix::Distribution::Normal { mean: 0.3, sd: 0.15 }),
                "{}",
                experiment.name()
            );
            assert_eq!(plan.cache.timeout, Duration::from_secs(3));
            assert_eq!(plan.cache.rates[0].per_second(), experiment.rates[0] * 10.0);
            let server = plan.server.unwrap();
            assert!(server.command.contains("squid -N -f") || server.command.contains("' -N -f"), "{}", server.command);
            assert!(plan.cache.cache_size.unwrap() < server.memory.unwrap(), "squid needs additional memory");
            assert_eq!(server.cpu, Some(experiment.machine.share()));
        }
    }

    struct Silent;

    impl Stage for Silent {
        fn begin(&mut self, _: &str) -> Box<dyn Observer> {
            unreachable!("no points")
        }
    }
}
