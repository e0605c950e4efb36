//! Targets of connections: the addresses of a workload's hosts, and how a path reaches them.

use std::net::{IpAddr, SocketAddr};

use load::Target;

use crate::drive::endpoints::Endpoints;
use crate::error::TestbedError;
use crate::topology;
use crate::topology::target::{Reach, check_listening, in_testbed, resolve, through_path};
use plan::Plan;

/// Targets of connections.
pub(super) struct Destination {
    /// One entry for each of the workload's hosts and ports, in their order.
    pub endpoints: Vec<Endpoints>,
    /// Addresses and port of the first target; with a path, those of all targets. Empty with a Unix socket.
    pub addresses: Vec<SocketAddr>,
    /// How a path reaches a service that already runs.
    pub reaches: Vec<Reach>,
    /// Port of the first target.
    pub port: u16,
}

/// Resolves every target, or the proxy in front of them.
///
/// # Errors
/// A name that cannot be resolved; with a path a host other than the server under test, or another port of it.
pub(super) fn of(plan: &Plan, targets: &[Target]) -> Result<Destination, TestbedError> {
    let first = targets.first().expect("a workload has at least one request");
    if let Some(socket) = &plan.load.unix {
        let endpoints = targets.iter().map(|_| Endpoints::unix(socket.clone())).collect();
        return Ok(Destination { endpoints, addresses: Vec::new(), reaches: Vec::new(), port: first.port });
    }
    if let Some(proxy) = &plan.load.proxy {
        let (addresses, reaches) = reached(plan, &proxy.host, proxy.port)?;
        let endpoints = targets.iter().map(|_| Endpoints::new(addresses.clone())).collect();
        return Ok(Destination { endpoints, addresses, reaches, port: proxy.port });
    }
    // Two ports of a name, or http and https, are two targets of one host.
    let (addresses, reaches) = reached(plan, &first.host, first.port)?;
    let mut endpoints = vec![Endpoints::new(addresses.clone())];
    for target in &targets[1..] {
        if plan.path.is_some() && target.port != first.port {
            return Err(TestbedError::Plan(format!(
                "{} and {} are at different ports: a path reaches one port of the server under test",
                first.authority, target.authority
            )));
        }
        if plan.path.is_some() && !plan.target.addresses.is_empty() {
            // Addresses of --to apply to every name.
            endpoints.push(Endpoints::new(addresses.clone()));
            continue;
        }
        let (others, _) = reached(plan, &target.host, target.port)?;
        if plan.path.is_some() && (others.len() != addresses.len() || others.iter().any(|at| !addresses.contains(at))) {
            return Err(TestbedError::Plan(format!(
                "`{}` is another server than `{}`: a path reaches one server; request the others in separate \
                 runs",
                target.host, first.host
            )));
        }
        endpoints.push(Endpoints::new(others));
    }
    Ok(Destination { endpoints, addresses, reaches, port: first.port })
}

/// Targets of connections as text: every address of a name, because connections use them in turn.
pub(super) fn words(plan: &Plan, targets: &[Target], addresses: &[SocketAddr]) -> String {
    if let Some(socket) = &plan.load.unix {
        return socket.display().to_string();
    }
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let name = match (&plan.load.proxy, targets.first()) {
        (Some(proxy), _) => proxy.host.as_str(),
        (None, first) => first.map_or("", |target| target.host.as_str()),
    };
    let in_turn = if all.len() > 1 { " in turn" } else { "" };
    let all = all.join(", ");
    if name.parse::<IpAddr>().is_ok() { all } else { format!("{name} ({all}{in_turn})") }
}

/// The addresses of a host, and, for a path to a service that already runs, how it is reached.
fn reached(plan: &Plan, host: &str, port: u16) -> Result<(Vec<SocketAddr>, Vec<Reach>), TestbedError> {
    let with_port = |address: IpAddr| SocketAddr::new(address, port);
    if let Some(server) = &plan.server {
        let reaches = in_testbed(host, port, server, plan.target.family)?;
        return Ok((reaches.iter().map(|reach| with_port(reach.connect)).collect(), Vec::new()));
    }
    let addresses = resolve(host, port, &plan.target)?;
    if plan.path.is_none() {
        return Ok((addresses.into_iter().map(with_port).collect(), Vec::new()));
    }
    topology::require_host_privilege(host)?;
    let reaches = through_path(host, &addresses)?;
    for reach in &reaches {
        check_listening(reach, port)?;
    }
    Ok((reaches.iter().map(|reach| with_port(reach.connect)).collect(), reaches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::LoadPlan;

    fn plan(load: LoadPlan) -> Plan {
        Plan { load, ..Plan::from_toml("[load]\nurl = \"http://127.0.0.1/\"\nduration = \"1s\"\n", "test").unwrap() }
    }

    fn targets(urls: &[&str]) -> Vec<Target> {
        urls.iter().map(|url| Target::parse(url).unwrap()).collect()
    }

    #[test]
    fn every_host_and_port_is_resolved() {
        let plain = plan(LoadPlan::get(""));
        let mut found =
            of(&plain, &targets(&["http://127.0.0.1:81/", "http://127.0.0.2:82/", "http://[::1]/"])).unwrap();
        let first: Vec<String> =
            found.endpoints.iter_mut().map(|endpoints| endpoints.next_endpoint().ip().unwrap().to_string()).collect();
        assert_eq!(first, ["127.0.0.1", "127.0.0.2", "::1"]);
        assert_eq!((found.port, found.addresses.len(), found.reaches.len()), (81, 1, 0));
        assert!(of(&plain, &targets(&["http://127.0.0.1/", "http://no.such.host.invalid/"])).is_err());
    }

    #[test]
    fn a_proxy_replaces_all_targets() {
        let proxied = plan(LoadPlan { proxy: Some("127.0.0.9:3128".parse().unwrap()), ..LoadPlan::get("") });
        let mut found = of(&proxied, &targets(&["http://no.such.host.invalid/", "http://other.invalid/"])).unwrap();
        assert_eq!((found.endpoints.len(), found.port), (2, 3128));
        assert_eq!(found.endpoints[1].next_endpoint().ip().unwrap().to_string(), "127.0.0.9");
    }
}
