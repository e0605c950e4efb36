//! The testbed of a run as a diagram: the main figures at each node, from the clients to the server.

use schema::WatchPart;
use schema::document::{Document, Path, Server};

use crate::durations;
use crate::figures::{count, duration, duration_f64, level, rate, share};
use crate::phrases::total;
use crate::plot::{Diagram, Node, diagram::cores};

/// The nodes that the run had. Figures are those of the document.
pub(super) fn diagram(document: &Document) -> Diagram {
    let (load, path, watch) = (document.load.as_ref(), document.path.as_ref(), document.watch.as_ref());
    let mut nodes = vec![clients(document)];
    nodes.extend(path.map(self::path));
    nodes.extend(watch.map(wire));
    nodes.push(server(document.server.as_ref(), document.run.duration_s));
    let gaps = nodes.len() - 1;
    let mut diagram = Diagram { nodes, ..Diagram::new("Where the figures come from") };
    diagram.about = match (load.is_some(), document.tap.is_some() || document.server.is_some()) {
        (true, _) => {
            "Requests go from the load generator to the server, responses come back. Each node shows its own figures."
        }
        (false, true) => "Requests go to the server, responses come back. Each node shows its own figures.",
        (false, false) => {
            "Requests go to the server, responses come back. Only packets between clients and server were captured."
        }
    }
    .to_owned();
    diagram.between = vec![[String::new(), String::new()]; gaps];
    if let Some(load) = load {
        diagram.between[0] = [rate(load.offered_rate_per_s), rate(load.achieved_rate_per_s)];
    }
    if let Some(part) = watch.filter(|part| part.requests > 0) {
        // The wire is next to the server: requests that arrived, responses that left.
        diagram.between[gaps - 1] = [rate(part.request_rate_per_s), rate(part.response_rate_per_s)];
    }
    // A load alone has a single node: no diagram.
    if path.is_none() && watch.is_none() && document.server.is_none() { Diagram::default() } else { diagram }
}

fn clients(document: &Document) -> Node {
    let Some(load) = &document.load else {
        let name = if document.tap.is_some() { "programs" } else { "clients" };
        return Node::new(name, "");
    };
    let kind = if load.loop_kind.is_empty() { String::new() } else { format!("{} loop", load.loop_kind) };
    let failed = total(&load.failed);
    let failed = match failed {
        0 => "none".to_owned(),
        failed => share(failed as f64 / load.offered_requests.max(1) as f64),
    };
    let (times, lag) = (&load.response_time_ns, &load.send_lag_ns);
    Node::new("load", kind)
        .line("offered", rate(load.offered_rate_per_s))
        .line("achieved", rate(load.achieved_rate_per_s))
        .line("failed", failed)
        .line("in flight", mean_max(load.in_flight.mean, load.in_flight.max))
        .line("connections", mean_max(load.connections.mean, load.connections.max))
        .line("p50, p99", if times.count == 0 { String::new() } else { two(times.p50, times.p99) })
        .line("send lag p99", if lag.count == 0 { String::new() } else { duration(lag.p99) })
}

fn path(part: &Path) -> Node {
    let configured = &part.configured_rtt_ns;
    let measured = part.measured_rtt_ns.as_ref().filter(|q| q.count > 0);
    let dropped = match total(&part.drops) {
        0 => "none".to_owned(),
        dropped => share(dropped as f64 / part.packets.max(1) as f64),
    };
    let error = &part.timing_error_isolated_ns;
    Node::new("path", format!("{}, {} clients", part.profile, count(part.clients)))
        .line("configured RTT", if configured.count == 0 { String::new() } else { two(configured.p50, configured.p99) })
        .line("measured RTT", measured.map(|q| two(q.p50, q.p99)).unwrap_or_default())
        .line("packets", count(part.packets))
        .line("dropped", dropped)
        .line("timing error p99", if error.count == 0 { String::new() } else { duration(error.p99) })
}

/// Packets, and what was read of them.
fn wire(part: &WatchPart) -> Node {
    let at = match part.capture_point.as_str() {
        "client" => "at the client",
        "between" => "between client and server",
        _ => "at the server's end",
    };
    // What QUIC sends again cannot be told from what it sends.
    let retransmitted = match part.retransmitted {
        _ if part.quic.is_some() => String::new(),
        0 => "none".to_owned(),
        _ => share(part.retransmit_share),
    };
    let (rtt, service) = (&part.handshake_rtt_ns, &part.service_time_ns);
    // None may have been read.
    let of_requests = |text: String| if part.requests > 0 { text } else { String::new() };
    Node::new("wire", at)
        .line("arrived", of_requests(rate(part.request_rate_per_s)))
        .line("connections", mean_max(part.connections.mean, part.connections.max))
        .line("in flight", of_requests(mean_max(part.in_flight.mean, part.in_flight.max)))
        .line("handshake RTT", if rtt.count == 0 { String::new() } else { two(rtt.p50, rtt.p99) })
        .line("processing", if service.count == 0 { String::new() } else { two(service.p50, service.p99) })
        .line("retransmitted", retransmitted)
}

fn server(part: Option<&Server>, seconds: f64) -> Node {
    let Some(part) = part else { return Node::new("server", "") };
    let used = part.cpu_user_s + part.cpu_system_s + part.cpu_receive_s.unwrap_or(0.0);
    let busy = if seconds > 0.0 { cores(used / seconds) } else { String::new() };
    let throttled = part.throttled_s.filter(|&s| s > 0.0).map(|s| duration_f64(s * 1e9));
    Node::new("server", part.command.clone())
        .line("CPU", busy)
        .line("CPU per request", part.cpu_us_per_request.map(|us| duration_f64(us * 1e3)).unwrap_or_default())
        .line("receive processing", part.cpu_receive_s.map(|receive| duration_f64(receive * 1e9)).unwrap_or_default())
        .line("throttled", throttled.unwrap_or_default())
        .line("memory", crate::figures::bytes(part.rss_bytes_max))
}

/// Mean and maximum of a gauge.
fn mean_max(mean: f64, max: u64) -> String {
    format!("{}, max {}", level(mean), count(max))
}

/// Median and 99th percentile in one unit, which stands once: boxes are narrow.
fn two(median: u64, p99: u64) -> String {
    let both = durations::in_one_unit(&[median as f64, p99 as f64]);
    let median = both[0].split(' ').next().unwrap_or_default();
    format!("{median}, {}", both[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::document::{Level, Load, Run};
    use schema::{Quantiles, Validity};

    fn document() -> Document {
        Document {
            schema: String::new(),
            run: Run { duration_s: 10.0, ..Run::default() },
            validity: Validity::from_checks(Vec::new()),
            load: Some(Load {
                loop_kind: "open".into(),
                offered_rate_per_s: 110.0,
                achieved_rate_per_s: 109.8,
                response_time_ns: Quantiles { count: 5, p50: 95_000_000, p99: 1_600_000_000, ..Quantiles::default() },
                in_flight: Level { mean: 23.3, p50: 23, max: 41 },
                ..Load::default()
            }),
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: None,
        }
    }

    fn names(document: &Document) -> Vec<String> {
        diagram(document).nodes.into_iter().map(|node| node.name).collect()
    }

    #[test]
    fn diagram_has_a_node_for_each_part_of_the_run() {
        let mut whole = document();
        assert_eq!(names(&whole), Vec::<String>::new(), "a load alone has no diagram");
        whole.server = Some(Server { cpu_user_s: 4.5, rss_bytes_max: 1_000_000, ..Server::default() });
        assert_eq!(names(&whole), ["load", "server"]);
        (whole.path, whole.watch) = (Some(Path::default()), Some(WatchPart::default()));
        assert_eq!(names(&whole), ["load", "path", "wire", "server"]);
        let diagram = diagram(&whole);
        assert_eq!(diagram.between[0], ["110.0/s", "109.8/s"]);
        assert_eq!(diagram.between.len(), 3);
        assert!(diagram.nodes[0].lines.contains(&["in flight".into(), "23.3, max 41".into()]));
        assert!(diagram.nodes[3].lines.contains(&["CPU".into(), "45.0 % of a core".into()]));
        // A figure that was not measured is absent, not zero.
        assert!(!diagram.nodes[1].lines.iter().any(|[name, _]| name == "configured RTT"));
        whole.load = None;
        assert_eq!(names(&whole), ["clients", "path", "wire", "server"]);
    }
}
