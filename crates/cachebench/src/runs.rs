//! Makes the plan of a point's run from the sweep's plan and a rate.

use std::net::SocketAddr;
use std::time::Duration;

use plan::{CacheWorkloadPlan, LoadPlan, OfferedRate, OriginPlan, PhasePlan, Plan, Proxy};
use polymix::{CacheWorkload, WorkloadPhase};
use stats::Rng;
use units::{Bytes, RequestRate};

use super::phases::{PointPhase, PolygraphSchedule};
use super::sweep_plan::{CachePlan, CachePosition, reverse_parts};

/// Host name of a cache in the testbed.
const SERVER: &str = "server";

/// Virtual users with a path, if the workload has no rate per client.
const PATH_CLIENTS: u32 = 100;
/// Size of the frozen working set, as a share of the requests of a plateau. PolyMix-3 and 4 state it: 45 % of the
/// requests times the share that fills caches. In PolyMix-2 it is all requests that are not repeats.
const WORKING_SET_SHARES: [(PolygraphSchedule, f64); 3] = [
    (PolygraphSchedule::Polymix2, 1.0 - 0.6875),
    (PolygraphSchedule::Polymix3, 0.45 * 0.75),
    (PolygraphSchedule::Polymix4, 0.45 * 0.8),
];
/// Length of a plateau.
const PLATEAU: Duration = Duration::from_secs(4 * 3600);

/// Target of the virtual users.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheTarget {
    /// `http://HOST:PORT/` of the origin, or of the reverse proxy.
    pub url: String,
    /// The forward proxy.
    pub proxy: Option<Proxy>,
    /// Host and port of the origin's TLS listener.
    pub secure: Option<String>,
}

/// A phase and its length at a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedPhase {
    /// The phase.
    pub phase: PointPhase,
    /// Length at this rate.
    pub lasts: Duration,
}

/// The phases of a point at a rate; may be empty.
pub fn phases(plan: &CachePlan, workload: &CacheWorkload, rate: RequestRate) -> Vec<TimedPhase> {
    let cache = &plan.cache;
    let phases = match cache.schedule {
        PolygraphSchedule::Constant => cache.phases.clone(),
        schedule => schedule.phases(cache.time_scale, workload.recurrence, cache.cache_size),
    };
    let lasts = |phase: &PointPhase| match (phase.duration, phase.fill) {
        (Some(duration), _) => duration,
        (None, fill) => fill_time(fill.unwrap_or_default(), phase, workload, rate),
    };
    phases.into_iter().map(|phase| TimedPhase { lasts: lasts(&phase), phase }).collect()
}

/// Load before the point if the workload has phases of its own, of which only the last is measured. Zero if the plan
/// has phases, which replace them.
pub fn lead_time(plan: &CachePlan, workload: &CacheWorkload) -> Duration {
    workload.phases.last().filter(|_| plan.cache.is_constant()).map_or(Duration::ZERO, |last| last.from)
}

/// Length of a point's load.
pub fn lasts(plan: &CachePlan, workload: &CacheWorkload, phases: &[TimedPhase]) -> Duration {
    if phases.is_empty() {
        lead_time(plan, workload).saturating_add(plan.cache.point)
    } else {
        phases.iter().map(|timed| timed.lasts).sum()
    }
}

/// World of the `index`-th point. The first has the configured one, so that it can find copies of an earlier sweep;
/// later worlds are derived from it, so that points find no copies of earlier points.
pub fn world(plan: &CachePlan, index: usize, drawn: u32) -> u32 {
    match plan.workload.world {
        _ if index == 0 || plan.cache.keep_world => plan.workload.world.unwrap_or(drawn),
        None => Rng::new(u64::from(drawn), index as u64).next() as u32,
        Some(world) => Rng::new(u64::from(world), index as u64).next() as u32,
    }
}

/// Time until this number of new cacheable bytes has been requested.
fn fill_time(bytes: Bytes, phase: &PointPhase, workload: &CacheWorkload, rate: RequestRate) -> Duration {
    let recurrence = phase.recurrence.map_or(workload.recurrence, |[from, to]| f64::midpoint(from, to));
    let a_second = rate.per_second() * phase.mean_load() * (1.0 - recurrence) * cacheable_bytes(workload);
    if a_second > 0.0 { Duration::from_secs_f64((bytes.0 as f64 / a_second).min(1e6)) } else { Duration::ZERO }
}

/// Mean cacheable bytes per request, embedded objects included.
fn cacheable_bytes(workload: &CacheWorkload) -> f64 {
    let (mut requests, mut bytes, mut shares) = (0.0, 0.0, 0.0);
    for kind in &workload.kinds {
        shares += kind.share;
        requests += kind.share;
        bytes += kind.share * kind.cacheable * kind.size.mean();
        if let Some(embeds) = &kind.embeds
            && let Some(embedded) = workload.kinds.iter().find(|other| other.name == embeds.kind)
        {
            let count = embeds.count.mean();
            requests += kind.share * count;
            bytes += kind.share * count * embedded.cacheable * embedded.size.mean();
        }
    }
    if shares > 0.0 { bytes / requests } else { 0.0 }
}

/// Limit of the working set at a rate, if set by the schedule and not by the workload.
fn working_set(plan: &CachePlan, workload: &CacheWorkload, rate: RequestRate) -> Option<u64> {
    let (_, share) = WORKING_SET_SHARES.into_iter().find(|(schedule, _)| *schedule == plan.cache.schedule)?;
    let objects = rate.per_second() * PLATEAU.as_secs_f64() * plan.cache.time_scale * share;
    workload.working_set.is_none().then_some(objects.round().max(1.0) as u64)
}

/// Number of virtual users at a rate.
pub fn clients(plan: &CachePlan, workload: &CacheWorkload, rate: RequestRate) -> u32 {
    // The origin needs one address of the path.
    let most = f64::from(path::AddressPlan::CLIENTS_MAX - 1);
    let default = match (workload.per_client_rate, &plan.path) {
        (Some(each), _) if each > 0.0 => (rate.per_second() / each).ceil().clamp(1.0, most) as u32,
        (_, Some(_)) => PATH_CLIENTS,
        _ => 1,
    };
    plan.cache.clients.unwrap_or(default)
}

/// The plan of the run at a rate. `name` is the name of the run.
pub fn plan(
    plan: &CachePlan,
    workload: &CacheWorkload,
    rate: RequestRate,
    name: String,
    world: u32,
    target: &CacheTarget,
    phases: &[TimedPhase],
) -> Plan {
    let cache = &plan.cache;
    let unmeasured = cache.point.mul_f64(cache.warmup.value());
    let warmup = if phases.is_empty() { lead_time(plan, workload).saturating_add(unmeasured) } else { Duration::ZERO };
    let mut point_workload =
        CacheWorkloadPlan { world: Some(world), secure: target.secure.clone(), ..plan.workload.clone() };
    if let Some(objects) = working_set(plan, workload, rate) {
        point_workload
            .set
            .insert("working_set".into(), toml::Value::Integer(i64::try_from(objects).unwrap_or(i64::MAX)));
    }
    if !phases.is_empty() {
        let workload_phases =
            toml::Value::try_from(to_workload_phases(phases)).expect("phases are tables of text and numbers");
        point_workload.set.insert("phases".into(), workload_phases);
    }
    let load = LoadPlan {
        proxy: target.proxy.clone(),
        rate: phases.is_empty().then_some(rate),
        arrivals: cache.arrivals,
        phases: phases.iter().map(|timed| load_phase(timed, rate)).collect(),
        clients: clients(plan, workload, rate),
        duration: phases.is_empty().then(|| cache.point.saturating_sub(unmeasured)),
        warmup,
        connect_timeout: cache.connect_timeout,
        timeout: cache.timeout,
        tls: cache.tls.clone(),
        cache_workload: Some(point_workload),
        ..LoadPlan::get(&target.url)
    };
    let mut made = Plan {
        name,
        seed: plan.seed,
        load,
        path: plan.path.clone(),
        server: plan.server.clone(),
        target: plan.target.clone(),
        watch: plan.watch,
        host: plan.host.clone(),
        ..Plan::default()
    };
    made.load.settle_phases();
    made.load.settle_tls();
    made
}

/// Checks the plan of every point before anything is started.
///
/// # Errors
/// One sentence.
pub fn check(sweep: &CachePlan, workload: &CacheWorkload, position: &CachePosition) -> Result<(), String> {
    sweep.check_workload(workload)?;
    for &rate in &sweep.cache.rates {
        let phases = phases(sweep, workload, rate);
        let clients = clients(sweep, workload, rate);
        // A placeholder: nothing connects to it.
        let (origin, position) = match &sweep.server {
            Some(_) => (sweep.origin.at(clients), in_testbed(position)),
            None => (SocketAddr::from(([127, 0, 0, 1], 1)), position.clone()),
        };
        let target = target(&position, &origin.to_string(), None);
        let mut made = plan(sweep, workload, rate, sweep.name.clone(), 0, &target, &phases);
        if sweep.server.is_some() {
            let command = Some("true".to_owned());
            made.origin = Some(OriginPlan { command, listen: Some(origin), ..sweep.origin.clone() });
        }
        made.check().map_err(|error| error.to_string())?;
    }
    single_origin(sweep, workload, position)
}

/// Rejects a reverse proxy in the testbed with varying numbers of clients: its origin has the address after the last
/// client.
fn single_origin(plan: &CachePlan, workload: &CacheWorkload, position: &CachePosition) -> Result<(), String> {
    if !matches!((position, &plan.server), (CachePosition::Reverse(_), Some(_))) {
        return Ok(());
    }
    let addresses: Vec<SocketAddr> =
        plan.cache.rates.iter().map(|&rate| plan.origin.at(clients(plan, workload, rate))).collect();
    let Some((first, other)) = addresses.first().zip(addresses.iter().find(|other| *other != &addresses[0])) else {
        return Ok(());
    };
    Err(format!(
        "the origin's address behind a reverse proxy of [server] follows the last client's, so that it differs between points \
         ({first}, {other}): set one number of clients for all points (--clients)"
    ))
}

/// The position of a cache in the testbed: its host is always `server`.
pub fn in_testbed(position: &CachePosition) -> CachePosition {
    match position {
        CachePosition::Forward(proxy) => CachePosition::Forward(Proxy { host: SERVER.into(), ..proxy.clone() }),
        CachePosition::Reverse(url) => CachePosition::Reverse(reverse_parts(url).map_or_else(
            || url.clone(),
            |(secure, authority)| {
                // Skip the brackets of an IPv6 address.
                let after = authority.rfind(']').map_or(authority, |at| &authority[at..]);
                let port = after.rsplit_once(':').map_or(String::new(), |(_, port)| format!(":{port}"));
                format!("http{}://{SERVER}{port}", if secure { "s" } else { "" })
            },
        )),
        CachePosition::Direct => CachePosition::Direct,
    }
}

/// Target of the virtual users, with the origin at `origin` and, for TLS, at `secure`.
pub fn target(position: &CachePosition, origin: &str, secure: Option<String>) -> CacheTarget {
    let plain = format!("http://{origin}/");
    match position {
        CachePosition::Forward(proxy) => CacheTarget { url: plain, proxy: Some(proxy.clone()), secure },
        CachePosition::Reverse(url) => {
            CacheTarget { url: format!("{}/", url.trim().trim_end_matches('/')), proxy: None, secure: None }
        }
        CachePosition::Direct => CacheTarget { url: plain, proxy: None, secure },
    }
}

fn load_phase(timed: &TimedPhase, rate: RequestRate) -> PhasePlan {
    let phase = &timed.phase;
    let at = |load: f64| OfferedRate::new(rate.per_second() * load);
    let ramp = phase.load_to.filter(|to| *to != phase.load);
    PhasePlan {
        name: Some(phase.name.clone()),
        kind: None,
        duration: timed.lasts,
        rate: if ramp.is_none() { at(phase.load) } else { None },
        from: ramp.and_then(|_| at(phase.load)),
        to: ramp.and_then(at),
    }
}

fn to_workload_phases(phases: &[TimedPhase]) -> Vec<WorkloadPhase> {
    let mut from = Duration::ZERO;
    let of = |timed: &TimedPhase| {
        let to = from + timed.lasts;
        let phase = &timed.phase;
        let made = WorkloadPhase {
            from,
            to,
            recurrence: phase.recurrence.map(|[at_first, at_last]| (at_first, at_last)),
            special: (phase.special[0], phase.special[1]),
            grows: phase.grows,
        };
        from = to;
        made
    };
    phases.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep_plan::SweepPlan;

    fn sweep(rest: &str) -> (CachePlan, CacheWorkload) {
        let plan = CachePlan::from_toml(&format!("[cache]\nproxy = \"127.0.0.1:3128\"\n{rest}"), "plan").unwrap();
        let workload = plan.workload.spec().unwrap();
        (plan, workload)
    }

    fn rate(per_second: f64) -> RequestRate {
        RequestRate::from_per_second(per_second).unwrap()
    }

    fn made(rest: &str, at: f64) -> Plan {
        let (sweep, workload) = sweep(rest);
        let target = target(&sweep.position().unwrap(), "127.0.0.1:8400", None);
        let phases = phases(&sweep, &workload, rate(at));
        let made = plan(&sweep, &workload, rate(at), "cache-5".into(), 7, &target, &phases);
        made.check().unwrap();
        // The stored plan is complete.
        assert_eq!(Plan::from_toml(&made.to_toml(), "made").unwrap().load.cache_workload, made.load.cache_workload);
        made
    }

    #[test]
    fn first_tenth_of_a_point_is_warm_up() {
        let plan = made("", 5.0);
        assert_eq!((plan.load.warmup, plan.load.duration), (Duration::from_secs(6), Some(Duration::from_secs(54))));
        assert_eq!(plan.load.clients, 1, "PolyMix-1 has one virtual user");
        assert_eq!(plan.load.url, "http://127.0.0.1:8400/");
        assert_eq!(plan.load.proxy.as_ref().unwrap().port, 3128);
        assert_eq!(plan.load.cache_workload.as_ref().unwrap().world, Some(7));
        assert!(plan.load.cache_workload.unwrap().set.is_empty());
    }

    #[test]
    fn number_of_virtual_users_follows_from_the_rate_per_client() {
        let plan = made("[workload]\nname = \"polymix-4\"\n", 50.0);
        assert_eq!(plan.load.clients, 125);
        assert_eq!(made("clients = 3\n[workload]\nname = \"polymix-4\"\n", 50.0).load.clients, 3);
        let (sweep, workload) = sweep("[path]\nrtt = \"1ms\"\n");
        assert_eq!(clients(&sweep, &workload, rate(5.0)), PATH_CLIENTS);
        let (sweep, workload) = super::tests::sweep("[workload]\nname = \"polymix-4\"\n");
        assert_eq!(
            clients(&sweep, &workload, rate(1e6)),
            path::AddressPlan::CLIENTS_MAX - 1,
            "one address is for the origin"
        );
    }

    #[test]
    fn schedule_sets_phases_of_load_and_workload() {
        let plan = made("schedule = \"polymix-4\"\ncache_size = \"1MB\"\n[workload]\nname = \"polymix-4\"\n", 50.0);
        let names: Vec<&str> = plan.load.phases.iter().filter_map(|phase| phase.name.as_deref()).collect();
        assert_eq!(names, ["framp", "fill", "fexit", "inc1", "top1", "dec1", "idle", "inc2", "top2", "dec2"]);
        assert_eq!((plan.load.rate, plan.load.warmup), (None, Duration::ZERO));
        let set = &plan.load.cache_workload.as_ref().unwrap().set;
        assert_eq!(set["phases"].as_array().unwrap().len(), names.len());
        // 0.45 x 80 % of 50/s in four minutes, a sixtieth of four hours.
        assert_eq!(set["working_set"].as_integer(), Some(4320));
        let spec = plan.load.cache_workload.unwrap().spec().unwrap();
        assert_eq!(spec.phases.last().unwrap().to, plan.load.duration.unwrap());
        assert!((spec.phases[1].recurrence.unwrap().0 - 0.0625).abs() < 1e-9, "low recurrence in the fill phase");
    }

    #[test]
    fn fill_time_depends_on_the_rate_and_not_on_the_time_scale() {
        let lasts = |scale: &str, at: f64| {
            let (sweep, workload) =
                sweep(&format!("schedule = \"polymix-3\"\ntime_scale = {scale}\ncache_size = \"10MB\"\n"));
            let phases = phases(&sweep, &workload, rate(at));
            phases.into_iter().find(|timed| timed.phase.name == "fill").unwrap().lasts.as_secs_f64()
        };
        assert_eq!(lasts("0.01", 50.0), lasts("1.0", 50.0));
        assert!((lasts("0.01", 50.0) / lasts("0.01", 100.0) - 2.0).abs() < 1e-6);
        // 20 MB of 50/s x 93.75 % new x 80 % cacheable x 13 KB.
        let expected_s = 20e6 / (50.0 * 0.9375 * 0.8 * CacheWorkload::polymix(1).kinds[0].size.mean());
        assert!((lasts("0.01", 50.0) / expected_s - 1.0).abs() < 0.01, "{} {expected_s}", lasts("0.01", 50.0));
    }

    #[test]
    fn ramps_and_pauses_become_load_phases() {
        let phase = "[[cache.phase]]\nname = \"a\"\nduration = \"5s\"\nload = 0.1\nload_to = 1.0\n\
                     [[cache.phase]]\nname = \"b\"\nduration = \"5s\"\nload = 0.0\n\
                     [[cache.phase]]\nname = \"c\"\nduration = \"5s\"\nmeasured = true\n";
        let plan = made(phase, 40.0);
        let rates: Vec<_> = plan.load.phases.iter().map(|phase| (phase.from, phase.to, phase.rate)).collect();
        let at = |rate: f64| OfferedRate::new(rate);
        assert_eq!(rates, [(at(4.0), at(40.0), None), (None, None, at(0.0)), (None, None, at(40.0))]);
    }

    #[test]
    fn only_the_last_phase_of_a_workload_with_phases_is_measured() {
        let plan = made("rates = [\"40/s\"]\n[workload]\nname = \"gateway-class\"\n", 40.0);
        let spec = plan.load.cache_workload.as_ref().unwrap().spec().unwrap();
        let class = spec.phases.last().unwrap();
        assert_eq!(class.recurrence, Some((1.0, 1.0)), "the class requests no new objects");
        let end = plan.load.warmup + plan.load.duration.unwrap();
        assert!(plan.load.warmup >= class.from && end <= class.to, "{:?} to {end:?}", plan.load.warmup);
        assert_eq!(plan.load.duration, Some(Duration::from_secs(54)), "the usual length");
        let (sweep, workload) = sweep("[workload]\nname = \"gateway-class\"\n");
        assert_eq!(lasts(&sweep, &workload, &[]), Duration::from_secs(120));
        // Phases of the plan replace those of the workload.
        let phase =
            "[[cache.phase]]\nname = \"a\"\nduration = \"5s\"\nmeasured = true\n[workload]\nname = \"gateway-class\"\n";
        assert_eq!(made(phase, 40.0).load.warmup, Duration::ZERO);
    }

    #[test]
    fn points_have_different_worlds_unless_keep_world_is_set() {
        let worlds = |rest: &str| {
            let (plan, _) = sweep(rest);
            (0..50).map(|index| world(&plan, index, 99)).collect::<Vec<_>>()
        };
        for (rest, first) in [("", 99), ("[workload]\nname = \"polymix-1\"\nworld = 7\n", 7)] {
            let these = worlds(rest);
            let different: std::collections::BTreeSet<u32> = these.iter().copied().collect();
            assert_eq!((these[0], different.len()), (first, 50));
            assert_eq!(worlds(rest), these, "a repeated sweep has the same worlds");
        }
        assert_eq!(worlds("keep_world = true\n[workload]\nname = \"polymix-1\"\nworld = 7\n"), [7; 50]);
        assert_eq!(worlds("keep_world = true\n"), [99; 50]);
    }

    #[test]
    fn contradictions_in_the_plan_of_a_point_are_rejected_before_start() {
        let refused = |text: &str| {
            let plan = CachePlan::from_toml(text, "plan").unwrap();
            check(&plan, &plan.workload.spec().unwrap(), &plan.position().unwrap()).unwrap_err()
        };
        let reverse = "[cache]\nreverse = \"https://h:1\"\n[origin]\nlisten = \"127.0.0.1:2\"\n";
        assert!(refused(&format!("{reverse}[host]\nengine = \"io_uring\"\n")).contains("io_uring"));
        assert!(
            refused(&format!("{reverse}[workload]\nname = \"modern-https\"\n")).contains("a reverse proxy sees all")
        );
        let forward = "[cache]\nproxy = \"h:1\"\n";
        assert!(refused(&format!("{forward}[watch]\nat = \"both\"\n")).contains("--watch"));
        assert!(refused(&format!("{forward}[server]\ncommand = \"x\"\n")).contains("path"));
        let lab = "[cache]\nreverse = \"http://127.0.0.1:80\"\n{}[server]\ncommand = \"x\"\n[path]\nrtt = \"1ms\"\n";
        let varying_clients = format!("{}[workload]\nname = \"polymix-4\"\n", lab.replace("{}", ""));
        assert!(refused(&varying_clients).contains("--clients"), "the origin's address would change");
        let fixed = CachePlan::from_toml(
            &format!("{}[workload]\nname = \"polymix-4\"\n", lab.replace("{}", "clients = 9\n")),
            "plan",
        )
        .unwrap();
        assert_eq!(check(&fixed, &fixed.workload.spec().unwrap(), &fixed.position().unwrap()), Ok(()));
    }

    #[test]
    fn reverse_proxy_in_the_testbed_has_the_host_name_server() {
        let of = |url: &str| in_testbed(&CachePosition::Reverse(url.into()));
        assert_eq!(of("http://127.0.0.1:8080/"), CachePosition::Reverse("http://server:8080".into()));
        assert_eq!(of("https://[::1]:8443"), CachePosition::Reverse("https://server:8443".into()));
        assert_eq!(of("http://[::1]"), CachePosition::Reverse("http://server".into()));
        assert_eq!(of("http://cache"), CachePosition::Reverse("http://server".into()));
    }

    #[test]
    fn reverse_proxy_with_https_gets_the_tls_settings() {
        let text = "[cache]\nreverse = \"https://127.0.0.1:443\"\n[cache.tls]\ninsecure = true\n[origin]\nlisten = \"127.0.0.1:2\"\n";
        let sweep = CachePlan::from_toml(text, "plan").unwrap();
        let workload = sweep.workload.spec().unwrap();
        let target = target(&sweep.position().unwrap(), "127.0.0.1:2", None);
        let made = plan(&sweep, &workload, rate(5.0), "x".into(), 7, &target, &[]);
        made.check().unwrap();
        assert!(made.load.secure() && made.load.tls.as_ref().unwrap().insecure);
        assert_eq!((made.load.url.as_str(), &made.load.proxy), ("https://127.0.0.1:443/", &None));
    }

    #[test]
    fn target_follows_the_position_of_the_cache() {
        let of = |position| target(&position, "127.0.0.1:8400", Some("127.0.0.1:8401".into()));
        let reverse = of(CachePosition::Reverse("http://127.0.0.1:80/".into()));
        assert_eq!(reverse, CacheTarget { url: "http://127.0.0.1:80/".into(), proxy: None, secure: None });
        let direct = of(CachePosition::Direct);
        assert_eq!((direct.url.as_str(), direct.secure.as_deref()), ("http://127.0.0.1:8400/", Some("127.0.0.1:8401")));
        assert!(CachePlan::new(SweepPlan { direct: true, ..SweepPlan::default() }).check().is_ok());
    }
}
