//! Path, server and host.

use schema::document::{Host, Path, Server};

use super::load::{counted, distributions};
use super::page::{Ink, Page};
use crate::figures::{bytes, count, duration_f64, share};
use crate::phrases::{late_wakeups, total};
use crate::server_figures;

pub(super) fn path(page: &mut Page, path: &Path) {
    page.blank();
    let from = if path.measured_rtt_source.is_empty() {
        String::new()
    } else {
        format!("; RTT measured from {}", path.measured_rtt_source)
    };
    page.entry("path", &format!("{}, {} clients{from}", path.profile, count(path.clients)));
    let drops = match total(&path.drops) {
        0 => "none dropped".to_owned(),
        dropped => format!(
            "{} dropped ({}; {} up, {} down): {}",
            count(dropped),
            share(dropped as f64 / path.packets.max(1) as f64),
            count(total(&path.up.drops)),
            count(total(&path.down.drops)),
            counted(&path.drops)
        ),
    };
    let irregularities: String = [
        ("duplicated", path.up.duplicated + path.down.duplicated),
        ("corrupted", path.up.corrupted + path.down.corrupted),
        ("reordered", path.up.reordered + path.down.reordered),
    ]
    .iter()
    .filter(|(_, packets)| *packets > 0)
    .map(|(what, packets)| format!("; {} {what}", count(*packets)))
    .collect();
    page.entry("packets", &format!("{} ({}), {drops}{irregularities}", count(path.packets), bytes(path.bytes)));
    let mut rows = vec![("configured RTT", &path.configured_rtt_ns)];
    rows.extend(path.measured_rtt_ns.as_ref().map(|q| ("measured RTT", q)));
    rows.extend(path.rtt_error_ns.as_ref().map(|q| ("RTT error", q)));
    rows.push(("timing error, isolated", &path.timing_error_isolated_ns));
    rows.push(("timing error, bursts", &path.timing_error_burst_ns));
    if let Some(capture) = &path.packet_capture {
        rows.push(("timing error, capture", &capture.timing_error_ns));
    }
    distributions(page, "", &rows);
    if let Some(text) = late_wakeups(path) {
        page.entry("", &text);
    }
}

pub(super) fn server(page: &mut Page, server: &Server) {
    page.blank();
    if !server.command.is_empty() {
        page.entry("server", &server.command);
    }
    let mut cpu = server_figures::each_request(server).map(|each| format!("{each} per request; ")).unwrap_or_default();
    cpu += &format!("user {}, system {}", seconds(server.cpu_user_s), seconds(server.cpu_system_s));
    match server_figures::receive(server) {
        Some(receive) => cpu += &format!(", receive processing {receive}"),
        None => cpu += "; receive processing not measured",
    }
    if !server.source.is_empty() {
        cpu += &format!(" (from {})", server.source);
    }
    page.entry("CPU", &cpu);
    if let Some(cores) = &server.cores {
        page.entry("", &format!("other processes on the server's cores used {}", server_figures::others(cores)));
        page.entry("", &format!("the server's threads waited for a core: {}", server_figures::waited(cores)));
    }
    if let Some(throttled) = server.throttled_s {
        let ink = if throttled > 0.0 { Ink::Doubtful } else { Ink::Plain };
        page.entry_in("", &format!("throttled by its CPU limit for {}", seconds(throttled)), ink);
    }
    let tcp = if server.tcp.is_empty() { String::new() } else { format!("; TCP {}", server.tcp) };
    page.entry("memory", &format!("{} peak{tcp}", bytes(server.rss_bytes_max)));
}

pub(super) fn host(page: &mut Page, host: &Host) {
    if host.kernel.is_empty() && host.cpu.is_empty() {
        return;
    }
    page.blank();
    let mut parts = vec![host.cpu.clone(), cores(host), bytes(host.memory_bytes), format!("Linux {}", host.kernel)];
    parts.extend(
        host.steal_share
            .filter(|&share| share > 0.0)
            .map(|stolen| format!("{} of CPU time stolen by the hypervisor", share(stolen))),
    );
    parts.extend(host.settings.iter().map(|(name, value)| format!("{} {value}", name.replace('_', " "))));
    parts.retain(|part| !part.is_empty());
    page.entry("host", &parts.join(", "));
}

fn cores(host: &Host) -> String {
    let unit = if host.cores == 1 { "core" } else { "cores" };
    match (&host.client_cores, &host.server_cores) {
        (Some(client), Some(server)) => {
            format!("{} {unit} (load and path on {client}, server on {server})", host.cores)
        }
        (Some(client), None) => format!("{} {unit} (load on {client})", host.cores),
        (None, Some(server)) => format!("{} {unit} (server on {server})", host.cores),
        (None, None) => format!("{} {unit}", host.cores),
    }
}

fn seconds(value: f64) -> String {
    duration_f64(value * 1e9)
}
