//! From the plan of a search to its rules, and from a requested trial to the plan of its run.

use std::path::Path;
use std::time::Duration;

use plan::slo::Slo;
use plan::{CapacityPlan, Find, Plan, TrialLoad, WatchAt};
use schema::Method;
use testbed::TestbedError;
use units::RequestRate;

use super::quantity::SearchQuantity;
use super::sequence::Rules;
use super::trial::{Purpose, TrialRequest};
use experiment::ExperimentError;
use experiment::programs::quoted;
use experiment::watchdog::ObjectiveLimits;

/// The `[capacity]` table of a plan, and its objective.
///
/// # Errors
/// The plan contradicts itself, or has no `[capacity]`.
pub fn of(plan: &Plan) -> Result<(&CapacityPlan, &Slo), ExperimentError> {
    plan.check().map_err(TestbedError::from)?;
    match (&plan.capacity, &plan.slo) {
        (Some(capacity), Some(slo)) => Ok((capacity, slo)),
        _ => Err(ExperimentError::Plan("the plan has no [capacity] table".into())),
    }
}

/// The rules of a search. `first`: first load, if known; `limit`: the generator's limit in requests per second, if
/// known.
pub fn rules(plan: &Plan, capacity: &CapacityPlan, slo: &Slo, first: Option<f64>, limit: Option<f64>) -> Rules {
    let given = plan.load.warmup;
    Rules {
        plan: capacity.clone(),
        quantity: SearchQuantity::of(plan, capacity, slo),
        warmup: (!given.is_zero()).then_some(given),
        first,
        requests_min: slo.requests_min(),
        can_limit: limit.is_none() && stand_in_port(plan).is_some(),
        generator_limit: limit,
        response_limit: slo.response_limit().unwrap_or_default(),
        shards: plan.shard.count(),
    }
}

/// The plan of trial `number`. `size`: response size in bytes, if known; `program`: path of this program.
pub fn of_trial(plan: &Plan, request: &TrialRequest, number: usize, size: f64, program: &Path) -> Plan {
    let rate =
        RequestRate::from_per_second(request.rate_per_s.clamp(1e-6, 1e9)).expect("clamped to what a rate may be");
    let load = match (request.find, request.purpose) {
        (Find::NewConnections, _) => TrialLoad::NewConnections(rate),
        (Find::Rate, _) | (_, Purpose::Guess | Purpose::Limit) => TrialLoad::Rate(rate),
        (Find::Users, _) => TrialLoad::Users(request.load as u32),
        (Find::Connections, _) => TrialLoad::Connections(request.load as u32, rate),
    };
    let mut trial = plan.of_trial(load, request.lasts);
    trial.load.warmup = request.warmup;
    trial.load.warmup_rises = trial.load.rate.is_some();
    if let Some(server) = trial.server.as_mut().filter(|server| server.cpu_measured.is_none()) {
        // The server starts and fills its caches without a limit; within a few percent of a core this may take longer
        // than any warm-up.
        server.cpu_measured = server.cpu.take();
    }
    // Each trial is a run with a seed of its own.
    trial.seed = plan.seed.wrapping_add(number as u64);
    trial.name = match request.purpose {
        Purpose::Long => format!("{}-search-{}", plan.name, request.search),
        other => format!("{}-{}", plan.name, other.name()),
    };
    if !request.purpose.is_stored() {
        trial.watch.at = Some(WatchAt::None);
    }
    match request.purpose {
        Purpose::Guess => {
            trial.load.rate = None;
            let connections = trial.load.connections.map_or(request.load as u32, |most| most.min(request.load as u32));
            trial.load.connections = Some(connections);
            trial.load.open_connections = None;
            trial.load.clients = clients_of_guess(trial.load.clients.min(connections), plan);
            trial.slo = None;
            if request.find == Find::Users {
                // Users without think time show the server's throughput.
                trial.load.clients = connections;
                let steps = trial.load.session.iter_mut().flat_map(|session| &mut session.steps);
                steps.for_each(|step| (step.think, step.at) = (None, None));
            }
        }
        Purpose::Limit => {
            if let (Some(server), Some(port)) = (&mut trial.server, stand_in_port(plan)) {
                let size = size.max(1.0) as u64;
                server.command = format!("exec {} serve --max {size}B --listen '[::]:{port}'", quoted(program));
                (server.cpu, server.cpu_measured, server.memory) = (None, None, None);
            }
        }
        _ => {}
    }
    trial
}

/// Clients of a closed loop, of at most `clients`: with a path and several machines, a multiple of their number.
fn clients_of_guess(clients: u32, plan: &Plan) -> u32 {
    let shards = plan.shard.count();
    if plan.path.is_some() && clients >= shards { clients / shards * shards } else { clients }
}

/// Limits that a trial must keep, for the guard that ends it early.
pub fn keep(request: &TrialRequest, slo: &Slo) -> ObjectiveLimits {
    let judged = matches!(request.purpose, Purpose::Short | Purpose::Long | Purpose::Confirmation);
    ObjectiveLimits {
        rate: request.rate_per_s,
        lasts: request.lasts,
        // A closed loop has no planned number of requests.
        errors: if judged { slo.errors_limit() } else { f64::INFINITY },
        tails: if judged { slo.tails().collect() } else { Vec::new() },
        // Overload trials measure the achieved rate, so late responses do not end them.
        drain_timeout: matches!(request.purpose, Purpose::Overload | Purpose::Limit | Purpose::Guess)
            .then(|| rest(slo)),
    }
}

/// The port at which `serve --max` can replace the server: if the plan requests one page over plain HTTP/1.
fn stand_in_port(plan: &Plan) -> Option<u16> {
    let load = &plan.load;
    let one_page = load.urls.is_none()
        && load.request.is_empty()
        && load.session.is_empty()
        && load.content.is_none()
        && load.har.is_none()
        && load.proxy.is_none()
        && load.unix.is_none()
        && load.expect.is_none()
        && load.http.is_http1()
        && load.method == Method::Get;
    if plan.server.is_none() || !one_page {
        return None;
    }
    let authority = load.url.strip_prefix("http://")?.split(['/', '?']).next()?;
    match authority.rsplit_once(':') {
        Some((_, port)) => port.parse().ok(),
        None => Some(80),
    }
}

/// Pause after a failed trial, in which a server that keeps running works off its backlog.
pub fn rest(slo: &Slo) -> Duration {
    Duration::from_secs(1) + slo.response_limit().unwrap_or_default() * 4
}

#[cfg(test)]
mod tests {
    use units::CpuShare;

    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::from_toml(text, "plan").unwrap()
    }

    const LAB: &str = "slo = \"p99 < 200ms, errors < 1%\"\n[load]\nurl = \"http://server:8080/x\"\n[path]\nrtt = \"0ms\"\n[server]\n\
                       command = \"nginx\"\ncpu = \"20%\"\n[capacity]\n";

    fn request(purpose: Purpose, load: f64) -> TrialRequest {
        let lasts = Duration::from_secs(10);
        let find = Find::Rate;
        let warmup = Duration::from_secs(2);
        TrialRequest {
            find,
            purpose,
            search: 1,
            load,
            rate_per_s: load,
            lasts,
            warmup,
            width: 0.02,
            generator_limit: None,
        }
    }

    #[test]
    fn trials_of_users_and_connections_are_valid_plans() {
        let with = |capacity: &str| plan(&LAB.replace("[capacity]\n", &format!("[capacity]\n{capacity}\n")));
        let users = with("find = \"users\"\nthink = \"7s\"");
        let connections = with("find = \"connections\"");
        let new = with("find = \"new-connections\"");
        let of = |plan: &Plan, purpose, load, rate_per_s| {
            let request =
                TrialRequest { find: plan.capacity.as_ref().unwrap().find, rate_per_s, ..request(purpose, load) };
            let trial = of_trial(plan, &request, 3, 1024.0, Path::new("/bin/yamabiko"));
            trial.check().unwrap_or_else(|error| panic!("{purpose:?}: {error}"));
            trial.load
        };
        let load = of(&users, Purpose::Long, 1400.0, 200.0);
        assert_eq!((load.connections, load.clients, load.rate, load.session.len()), (Some(1400), 1400, None, 1));
        // The generator's limit is a request rate, and the initial estimate is without think time.
        assert!(of(&users, Purpose::Limit, 4000.0, 4000.0).is_open());
        let guess = of(&users, Purpose::Guess, 16.0, 16.0);
        assert_eq!((guess.connections, guess.clients, guess.session.len()), (Some(16), 16, 0));
        let load = of(&connections, Purpose::Long, 5000.0, 83.0);
        assert_eq!((load.open_connections, load.rate.map(RequestRate::per_second)), (Some(5000), Some(83.0)));
        for purpose in [Purpose::Guess, Purpose::Limit, Purpose::Long] {
            assert!(of(&new, purpose, 16.0, 16.0).close, "{purpose:?}");
        }
    }

    #[test]
    fn every_trial_is_a_valid_plan() {
        let plan = plan(LAB);
        for purpose in [
            Purpose::Guess,
            Purpose::Limit,
            Purpose::Calibration,
            Purpose::Short,
            Purpose::Long,
            Purpose::Confirmation,
            Purpose::Overload,
        ] {
            let trial = of_trial(&plan, &request(purpose, 16.0), 3, 1024.0, Path::new("/bin/yamabiko"));
            trial.check().unwrap_or_else(|error| panic!("{purpose:?}: {error}"));
            assert_eq!((trial.seed, trial.capacity.is_none()), (4, true));
            assert_eq!(trial.load.is_open(), purpose != Purpose::Guess, "{purpose:?}");
            assert_eq!(trial.watch_at() == WatchAt::None, !purpose.is_stored(), "{purpose:?}");
        }
    }

    #[test]
    fn generator_trials_use_serve_max_without_cpu_limit() {
        let trial = of_trial(&plan(LAB), &request(Purpose::Limit, 1e4), 0, 612.7, Path::new("/bin/yama biko"));
        let server = trial.server.unwrap();
        assert_eq!(server.command, "exec '/bin/yama biko' serve --max 612B --listen '[::]:8080'");
        assert_eq!((server.cpu, server.cpu_measured), (None, None));
    }

    #[test]
    fn cpu_limit_applies_after_the_servers_start() {
        let of = |more: &str| {
            let plan = plan(&LAB.replace("cpu = \"20%\"\n", more));
            let server =
                of_trial(&plan, &request(Purpose::Long, 16.0), 0, 1024.0, Path::new("/bin/yamabiko")).server.unwrap();
            (server.cpu.map(CpuShare::cores), server.cpu_measured.map(CpuShare::cores))
        };
        assert_eq!(of("cpu = \"6%\"\n"), (None, Some(0.06)));
        // A plan with both CPU limits stays unchanged.
        assert_eq!(of("cpu = \"50%\"\ncpu_measured = \"6%\"\n"), (Some(0.5), Some(0.06)));
        assert_eq!(of(""), (None, None));
    }

    #[test]
    fn serve_max_replaces_only_one_page_over_plain_http() {
        assert_eq!(stand_in_port(&plan(LAB)), Some(8080));
        assert_eq!(stand_in_port(&plan(&LAB.replace(":8080", ""))), Some(80));
        assert_eq!(stand_in_port(&plan(&LAB.replace("http:", "https:"))), None);
        let elsewhere = "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://127.0.0.1:8080/x\"\n[capacity]\n";
        assert_eq!(stand_in_port(&plan(elsewhere)), None);
    }

    #[test]
    fn only_trials_with_an_objective_end_early() {
        let slo: Slo = "p99 < 200ms, errors < 1%".parse().unwrap();
        let stored = keep(&request(Purpose::Short, 50.0), &slo);
        assert_eq!((stored.errors, stored.tails.as_slice()), (0.01, &[(0.01, Duration::from_millis(200))][..]));
        let overload = keep(&request(Purpose::Overload, 50.0), &slo);
        assert!(overload.tails.is_empty() && overload.errors == f64::INFINITY);
    }
}
