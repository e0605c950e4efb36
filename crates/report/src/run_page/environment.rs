//! Sections of a run's page about path, server and host.

use schema::document::{Host, Path, PathDirection, Server};

use super::Sources;
use super::load::distributions;
use crate::figures::{bytes, count, duration_f64, share};
use crate::page::{Section, Table};
use crate::phrases::{by_frequency, late_wakeups, span, total};
use crate::plot::{Bars, Chart, Quantity, Series};
use crate::server_figures;

/// The result of a run that has only a path.
pub(super) fn answer(path: &Path) -> String {
    format!("{} wire packets over {}; {} dropped.", count(path.packets), path.profile, count(total(&path.drops)))
}

/// Configured and measured RTT, packets, drops.
pub(super) fn path(path: &Path, sources: &Sources) -> Section {
    let from = if path.measured_rtt_source.is_empty() {
        String::new()
    } else {
        format!(" RTT measured from {}.", path.measured_rtt_source)
    };
    let late = late_wakeups(path).map(|text| format!(" Timing error: {text}.")).unwrap_or_default();
    let mut rows = vec![("configured RTT, one per client", &path.configured_rtt_ns)];
    rows.extend(path.measured_rtt_ns.as_ref().map(|q| ("measured RTT", q)));
    rows.extend(path.rtt_error_ns.as_ref().map(|q| ("RTT error", q)));
    rows.push(("timing error, isolated packets", &path.timing_error_isolated_ns));
    rows.push(("timing error, bursts", &path.timing_error_burst_ns));
    rows.extend(
        path.packet_capture.as_ref().map(|capture| ("timing error, in the packet capture", &capture.timing_error_ns)),
    );
    Section::new("Path")
        .text(format!("{}, {} clients.{from}{late}", path.profile, count(path.clients)))
        .figure(rtt(sources))
        .figure(drops(path))
        .table(distributions(&rows))
        .table(directions(path))
}

/// Cumulative distributions of configured RTTs (by client) and measured RTTs (by connection).
fn rtt(sources: &Sources) -> Chart {
    let mut chart = Chart::cumulative("Round-trip time, configured and measured", "round-trip time");
    let mut about = Vec::new();
    if !sources.connect.is_empty() {
        chart = chart.series(Series::distribution("measured by the load", &sources.connect).color(0));
        about.push("Load: from connect to the established connection, each connection of the measured phase.");
    }
    if !sources.wire_rtt.is_empty() {
        chart = chart.series(Series::distribution("measured in packets", &sources.wire_rtt).color(1));
        about.push("Packets: handshakes in the capture.");
    }
    if !sources.configured_rtt_ns.is_empty() {
        chart = chart.series(Series::shares_of("configured", &sources.configured_rtt_ns).dashed().color(2));
        about.push("Configured: one value per client.");
    }
    chart.about(about.join(" "))
}

fn drops(path: &Path) -> Bars {
    let mut bars = Bars::new("Packets dropped by cause", Quantity::Count, &["up", "down"])
        .about("Up: from clients to the server.");
    for (cause, _) in by_frequency(&path.drops) {
        let of = |direction: &PathDirection| Some(direction.drops.get(cause).copied().unwrap_or(0) as f64);
        bars = bars.row(cause.replace('_', " "), &[of(&path.up), of(&path.down)]);
    }
    bars
}

fn directions(path: &Path) -> Table {
    let mut table = Table::new(&["packets", "accepted", "bytes", "delivered", "dropped", "in transit"]);
    for (name, direction) in [("up", &path.up), ("down", &path.down)] {
        let dropped = total(&direction.drops);
        let part = if dropped > 0 {
            format!(" ({})", share(dropped as f64 / direction.packets.max(1) as f64))
        } else {
            String::new()
        };
        table = table.row([
            name.to_owned(),
            count(direction.packets),
            bytes(direction.bytes),
            count(direction.delivered),
            format!("{}{part}", count(dropped)),
            count(direction.in_transit),
        ]);
    }
    table
}

/// The server's processes.
pub(super) fn server(server: &Server, sources: &Sources) -> Section {
    let mut table = Table::new(&[]).left(&[1]);
    if let Some(each) = server_figures::each_request(server) {
        table = table.row(["CPU per request".to_owned(), each]);
    }
    table = table
        .row(["CPU, user".to_owned(), seconds(server.cpu_user_s)])
        .row(["CPU, system".to_owned(), seconds(server.cpu_system_s)]);
    table = match server_figures::receive(server) {
        Some(receive) => table.row(["receive processing".to_owned(), receive]),
        None => table.row(["receive processing", "not measured"]),
    };
    if let Some(cores) = &server.cores {
        table = table
            .row(["other processes on the server's cores".to_owned(), server_figures::others(cores)])
            .row(["time that threads waited for a core".to_owned(), server_figures::waited(cores)]);
    }
    if let Some(throttled) = server.throttled_s {
        table = table.row(["throttled by the CPU limit for".to_owned(), seconds(throttled)]);
    }
    table = table.row(["peak memory".to_owned(), bytes(server.rss_bytes_max)]);
    if !server.tcp.is_empty() {
        table = table.row(["TCP".to_owned(), server.tcp.clone()]);
    }
    if !server.source.is_empty() {
        table = table.row(["source of CPU figures".to_owned(), server.source.clone()]);
    }
    Section::new("Server")
        .verbatim("", server.command.clone())
        .table(table)
        .figure(super::over_time::memory(&sources.server_series))
}

/// The host.
pub(super) fn host(host: &Host) -> Section {
    let section = Section::new("Host");
    if host.kernel.is_empty() && host.cpu.is_empty() {
        return section;
    }
    let mut table = Table::new(&[]).left(&[1]);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            table = std::mem::take(&mut table).row([name.to_owned(), value]);
        }
    };
    row("CPU", host.cpu.clone());
    row("cores", count(host.cores.into()));
    row("cores of load and path", host.client_cores.clone().unwrap_or_default());
    row("cores of the server", host.server_cores.clone().unwrap_or_default());
    row("memory", bytes(host.memory_bytes));
    row("kernel", format!("Linux {}", host.kernel));
    row(
        "CPU speed probe on the server's cores",
        host.cpu_probe_ns.map(|ns| duration_f64(ns as f64)).unwrap_or_default(),
    );
    row("CPU time stolen by the hypervisor", host.steal_share.map(share).unwrap_or_default());
    for (name, value) in &host.settings {
        row(&name.replace('_', " "), value.clone());
    }
    section.table(table)
}

fn seconds(seconds: f64) -> String {
    if seconds == 0.0 { "0 s".to_owned() } else { span(seconds) }
}
