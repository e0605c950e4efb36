//! The lab of a run as a picture: the figures of each place, from the clients to the server.

use schema::WatchPart;
use schema::document::{Document, Path, Server};

use crate::figures::{count, duration, duration_f64, level, rate, share};
use crate::phrases::total;
use crate::plot::{Picture, Place, picture::cores};

/// The places that the run had. Figures are those of the document.
pub(super) fn picture(document: &Document) -> Picture {
    let (load, path, watch) = (document.load.as_ref(), document.path.as_ref(), document.watch.as_ref());
    let mut places = vec![clients(document)];
    places.extend(path.map(self::path));
    places.extend(watch.map(wire));
    places.push(server(document.server.as_ref(), document.run.duration_s));
    let gaps = places.len() - 1;
    let mut picture = Picture { places, ..Picture::new("Where the figures come from") };
    picture.about = match (load.is_some(), document.tap.is_some() || document.server.is_some()) {
        (true, _) => {
            "Requests go from the load to the server, and answers come back; each place says what it saw itself."
        }
        (false, true) => "Requests go to the server, and answers come back; each place says what it saw itself.",
        (false, false) => {
            "Requests go to the server, and answers come back; here only packets between them were looked at."
        }
    }
    .to_owned();
    picture.between = vec![[String::new(), String::new()]; gaps];
    if let Some(load) = load {
        picture.between[0] = [rate(load.offered_rate_per_s), rate(load.achieved_rate_per_s)];
    }
    if let Some(part) = watch {
        // The wire stands before the server: what came to its door, and what it gave back.
        picture.between[gaps - 1] = [rate(part.request_rate_per_s), rate(part.response_rate_per_s)];
    }
    // Of a load alone there is no place but its own.
    if path.is_none() && watch.is_none() && document.server.is_none() { Picture::default() } else { picture }
}

fn clients(document: &Document) -> Place {
    let Some(load) = &document.load else {
        let name = if document.tap.is_some() { "programs" } else { "clients" };
        return Place::new(name, "");
    };
    let kind = if load.loop_kind.is_empty() { String::new() } else { format!("{} loop", load.loop_kind) };
    let failed = total(&load.failed);
    let failed = match failed {
        0 => "none".to_owned(),
        failed => share(failed as f64 / load.offered_requests.max(1) as f64),
    };
    let (times, lag) = (&load.response_time_ns, &load.send_lag_ns);
    Place::new("load", kind)
        .line("offered", rate(load.offered_rate_per_s))
        .line("carried", rate(load.achieved_rate_per_s))
        .line("failed", failed)
        .line("in flight", most(load.in_flight.mean, load.in_flight.max))
        .line("connections", most(load.connections.mean, load.connections.max))
        .line("p50, p99", if times.count == 0 { String::new() } else { two(times.p50, times.p99) })
        .line("send lag p99", if lag.count == 0 { String::new() } else { duration(lag.p99) })
}

fn path(part: &Path) -> Place {
    let asked = &part.configured_rtt_ns;
    let got = part.measured_rtt_ns.as_ref().filter(|got| got.count > 0);
    let dropped = match total(&part.drops) {
        0 => "none".to_owned(),
        dropped => share(dropped as f64 / part.packets.max(1) as f64),
    };
    let late = &part.timing_error_isolated_ns;
    Place::new("path", format!("{}, {} clients", part.profile, count(part.clients)))
        .line("RTT asked", if asked.count == 0 { String::new() } else { two(asked.p50, asked.p99) })
        .line("RTT got", got.map(|got| two(got.p50, got.p99)).unwrap_or_default())
        .line("packets", count(part.packets))
        .line("dropped", dropped)
        .line("late p99", if late.count == 0 { String::new() } else { duration(late.p99) })
}

fn wire(part: &WatchPart) -> Place {
    let at = match part.capture_point.as_str() {
        "client" => "beside the client",
        "between" => "between both",
        _ => "at the server's door",
    };
    let (rtt, service) = (&part.handshake_rtt_ns, &part.service_time_ns);
    Place::new("wire", at)
        .line("arrived", rate(part.request_rate_per_s))
        .line("in process", most(part.connections.mean, part.connections.max))
        .line("in flight", most(part.in_flight.mean, part.in_flight.max))
        .line("RTT seen", if rtt.count == 0 { String::new() } else { two(rtt.p50, rtt.p99) })
        .line("served in", if service.count == 0 { String::new() } else { two(service.p50, service.p99) })
        .line("sent again", if part.retransmitted == 0 { "none".to_owned() } else { share(part.retransmit_share) })
}

fn server(part: Option<&Server>, seconds: f64) -> Place {
    let Some(part) = part else { return Place::new("server", "") };
    let used = part.cpu_user_s + part.cpu_system_s + part.cpu_receive_s.unwrap_or(0.0);
    let busy = if seconds > 0.0 { cores(used / seconds) } else { String::new() };
    let held = part.throttled_s.filter(|&held| held > 0.0).map(|held| duration_f64(held * 1e9));
    Place::new("server", part.command.clone())
        .line("CPU", busy)
        .line("a request", part.cpu_us_per_request.map(|us| duration_f64(us * 1e3)).unwrap_or_default())
        .line("of it receiving", part.cpu_receive_s.map(|receive| duration_f64(receive * 1e9)).unwrap_or_default())
        .line("held back", held.unwrap_or_default())
        .line("memory", crate::figures::bytes(part.rss_bytes_max))
}

/// Mean and largest of a level.
fn most(mean: f64, max: u64) -> String {
    format!("{}, most {}", level(mean), count(max))
}

/// Median and 99th percentile.
fn two(half: u64, most: u64) -> String {
    format!("{}, {}", duration(half), duration(most))
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
        picture(document).places.into_iter().map(|place| place.name).collect()
    }

    #[test]
    fn there_are_the_places_that_the_run_had() {
        let mut whole = document();
        assert_eq!(names(&whole), Vec::<String>::new(), "a load alone has no picture");
        whole.server = Some(Server { cpu_user_s: 4.5, rss_bytes_max: 1_000_000, ..Server::default() });
        assert_eq!(names(&whole), ["load", "server"]);
        (whole.path, whole.watch) = (Some(Path::default()), Some(WatchPart::default()));
        assert_eq!(names(&whole), ["load", "path", "wire", "server"]);
        let picture = picture(&whole);
        assert_eq!(picture.between[0], ["110.0/s", "109.8/s"]);
        assert_eq!(picture.between.len(), 3);
        assert!(picture.places[0].lines.contains(&["in flight".into(), "23.3, most 41".into()]));
        assert!(picture.places[3].lines.contains(&["CPU".into(), "45.0 % of a core".into()]));
        // What was not measured is absent, not zero.
        assert!(!picture.places[1].lines.iter().any(|[name, _]| name == "RTT asked"));
        whole.load = None;
        assert_eq!(names(&whole), ["clients", "path", "wire", "server"]);
    }
}
