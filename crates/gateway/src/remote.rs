//! Measures a real gateway.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use crate::tester::{PORT, Secret, Session};
use sys::sandbox::TiedProcess;
use sys::signal::Interrupts;

use super::GatewayPlan;
use super::checks;
use super::document::condition_of;
use super::gateway_under_test::RealGatewayUnderTest;
use super::labs::MeasuredCondition;
use super::load::Load;
use super::trials::{ConditionMeasurement, Observations};
use experiment::ExperimentError;
use experiment::Order;
use experiment::programs::quoted;

/// Time of proxy load before the first trial.
const LOAD_AHEAD: Duration = Duration::from_secs(2);
/// Timeout for the load to end and print its result.
const LOAD_STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// Resolves the address of a server, `ADDRESS[:PORT]` or a name.
///
/// # Errors
/// An invalid address, or a name without address.
pub(super) fn address(typed: &str) -> Result<SocketAddr, ExperimentError> {
    let wrong = |why: String| ExperimentError::Plan(format!("{typed}: {why}; expected ADDRESS or ADDRESS:PORT"));
    let bare = typed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(typed);
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        return Ok(SocketAddr::new(address, PORT));
    }
    let found = match typed.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse::<u16>().map_err(|_| wrong(format!("`{port}` is not a valid port")))?;
            (host.trim_matches(['[', ']']), port).to_socket_addrs()
        }
        None => (typed, PORT).to_socket_addrs(),
    };
    let mut found = found.map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address".into()))
}

/// Measures the gateway.
pub(super) fn measure(
    plan: &GatewayPlan,
    server: SocketAddr,
    secret: &Secret,
    order: &Order,
    folder: &Path,
    interrupts: &Interrupts,
    tell: &mut dyn FnMut(&str),
) -> Result<MeasuredCondition, ExperimentError> {
    let session = Session::open(server, secret, None)?;
    let there = session.server().clone();
    let load = match (&plan.proxy, plan.origin_at) {
        (Some(proxy), Some(origin)) => {
            let lasts = super::time(plan) * 2 + Duration::from_secs(600);
            Some(Load::prepare(plan.load, proxy, origin, lasts, order, folder)?)
        }
        _ => None,
    };
    let mut loading = load.as_ref().map(start).transpose()?;
    if loading.is_some() {
        interrupts.wait(LOAD_AHEAD);
    }
    let go_on = || interrupts.count() == 0;
    let mut gateway_under_test =
        RealGatewayUnderTest { session, stat: plan.gateway_stat.as_deref(), stat_failed: None };
    let measuring = ConditionMeasurement {
        plan,
        link: None,
        gateway_under_test: &mut gateway_under_test,
        go_on: &go_on,
        tell,
        observations: Observations::default(),
    };
    let began = sys::clock::monotonic_ns();
    let observations = measuring.all();
    let name = plan.label.as_deref().unwrap_or(super::gateway_plan::UNLABELED);
    let mut condition = condition_of(name, None, &observations, plan, 0.0);
    let mut checks = checks::checks(&observations, &condition, None);
    let here = env!("CARGO_PKG_VERSION");
    checks.push(checks::both_ends_one_version(here, &there.version));
    if let Some(why) = &gateway_under_test.stat_failed {
        checks.push(checks::gateway_stat_failed(why));
    }
    if let (Some(load), Some(mut load_process)) = (&load, loading.take()) {
        let ended = load_process.try_exit()?.is_some();
        load_process.stop(LOAD_STOP_TIMEOUT);
        let lasted = Duration::from_nanos(sys::clock::monotonic_ns() - began) + LOAD_AHEAD;
        let proxy_load = match ended {
            true => Err("the load of the proxy ended before the gateway was measured".to_owned()),
            false => load.proxy_load(lasted),
        };
        checks.push(checks::proxy_loaded(proxy_load.as_ref().map_err(String::as_str)));
        condition.proxy = proxy_load.ok();
    }
    Ok(MeasuredCondition { condition, checks, facts: None, observations })
}

/// Starts the load of the proxy; it ends with this process.
fn start(load: &Load) -> Result<TiedProcess, ExperimentError> {
    drop(load.stdout()?);
    let words: Vec<String> = load.argv.iter().map(|word| quoted(Path::new(word))).collect();
    let script = format!("exec {} >{}", words.join(" "), quoted(load.output()));
    Ok(TiedProcess::start(&["/bin/sh", "-c", &script].map(Into::into), &[], None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_address_is_parsed_with_and_without_port() {
        let of = |typed: &str| address(typed).map(|address| address.to_string());
        assert_eq!(of("192.0.2.7").unwrap(), "192.0.2.7:7021");
        assert_eq!(of("192.0.2.7:99").unwrap(), "192.0.2.7:99");
        assert_eq!(of("2001:db8::7").unwrap(), "[2001:db8::7]:7021");
        assert_eq!(of("[2001:db8::7]").unwrap(), "[2001:db8::7]:7021");
        assert_eq!(of("[2001:db8::7]:99").unwrap(), "[2001:db8::7]:99");
        assert!(of("localhost").is_ok());
        for wrong in ["192.0.2.7:", "192.0.2.7:port", "192.0.2.7:70000"] {
            assert!(matches!(address(wrong), Err(ExperimentError::Plan(_))), "{wrong}");
        }
    }
}
