//! Warnings printed before a run begins.

use path::ClientPath;

use crate::topology::Topology;
use plan::Plan;

/// One sentence for each part of the plan that may not have the intended effect.
pub(super) fn notes(
    plan: &Plan,
    topology: &Option<Topology>,
    clients: &[ClientPath],
    connections_max: u32,
) -> Vec<String> {
    let mut notes = topology.as_ref().map(|topology| topology.notes.clone()).unwrap_or_default();
    if !plan.load.is_open() && plan.load.clients > connections_max && !plan.load.close {
        notes.push(format!(
            "only {connections_max} of {} clients are used: a closed loop has one client per connection",
            plan.load.clients
        ));
    }
    let cap = plan.load.connections.or(plan.load.open_connections);
    if let (Some(cap), true, false) = (cap, plan.load.is_open(), plan.load.close)
        && cap < plan.load.clients
    {
        notes.push(format!(
            "fewer connections ({cap}) than clients ({}): a client's connection is closed to open another's, \
             so few connections are persistent; raise -c or lower --clients unless this is intended",
            plan.load.clients
        ));
    }
    let cut = |link: &path::LinkSpec| link.jitter() > link.delay();
    let clients_cut = clients.iter().filter(|client| cut(&client.up) || cut(&client.down)).count();
    if clients_cut > 0 {
        notes.push(format!(
            "{clients_cut} of {} clients have a delay shorter than its jitter: their jitter is cut to the delay",
            clients.len()
        ));
    }
    if let (Some(path), Some(topology)) = (&plan.path, topology)
        && path.effects.iter().any(|effect| effect.expected().dropped > 0.0)
        && topology.tcp.contains("bbr")
    {
        notes.push(
            "the server's congestion control is bbr, which hides packet loss; most servers use cubic (--server-tcp cc=cubic)"
                .into(),
        );
    }
    notes
}
