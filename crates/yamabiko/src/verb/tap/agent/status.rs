//! `yamabiko tap agent status`: prints the status that an agent last wrote.

use std::fmt::Write as _;
use std::io::ErrorKind;

use agent::Status;
use agent::status::Connection;
use anyhow::{Context, Result, anyhow};
use broker::StreamAddress;
use report::figures::{bytes, count, duration, plain};
use sys::clock::realtime_ns;

use super::data;
use crate::args;
use crate::exit::Exit;
use crate::verb::bench::print;

/// Prints an agent's status. The exit status shows whether the agent runs.
pub fn run(arguments: &args::AgentStatus) -> Result<Exit> {
    let folder = data(arguments.data.as_deref())?;
    let (status, runs) = Status::read(&folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!(
                "no agent was ever started with {}; give the agent's folder with --data, or run this as the agent's user",
                folder.display()
            )
        }
        _ => anyhow::Error::from(error).context(format!("reading {}", folder.display())),
    })?;
    if arguments.json {
        print(&(serde_json::to_string_pretty(&status).context("writing the status")? + "\n"))?;
    } else {
        print(&page(&status, runs, realtime_ns()))?;
    }
    Ok(if runs { Exit::Success } else { Exit::Lacking })
}

fn page(status: &Status, runs: bool, now_ns: u64) -> String {
    let age = |at_ns: u64| duration(now_ns.saturating_sub(at_ns));
    let mut page = String::new();
    let mut line = |name: &str, text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "{name:<10}{}", plain(&text));
    };
    let process = if runs {
        format!("process {}, for {}", status.pid, age(status.started_unix_ns))
    } else {
        format!("it does not run; its last status is {} old", age(status.at_unix_ns))
    };
    line("agent", format!("{}, version {}, {process}", status.name, status.version));
    if runs && now_ns.saturating_sub(status.at_unix_ns) > STALE_NS {
        line(
            "",
            format!("it has written no status for {}: its disk may be full, or it is stuck", age(status.at_unix_ns)),
        );
    }
    let link = &status.link;
    let why = if link.why.is_empty() { String::new() } else { format!(": {}", link.why) };
    let state = format!("{} for {}{why}", link.state.words(), age(link.since_unix_ns));
    let to_nats = StreamAddress::is_meant(&status.manager);
    line(if to_nats { "stream" } else { "manager" }, format!("{}, {state}", status.manager));
    if link.state != Connection::NotTried && link.stored_unix_ns > 0 {
        line("", format!("it last stored data {} ago", age(link.stored_unix_ns)));
    }
    let spool = &status.spool;
    let (batches, rows) = (count(spool.batches), count(spool.rows));
    line(
        "spool",
        format!("{batches} batches with {rows} rows wait: {} of {}", bytes(spool.bytes), bytes(spool.bytes_max)),
    );
    let rows = &status.rows;
    let left_out =
        [(rows.filtered, "left out by the filter"), (rows.not_drawn, "not drawn"), (rows.dropped, "dropped")];
    let left_out: String =
        left_out.iter().filter(|(rows, _)| *rows > 0).map(|(rows, why)| format!(", {} {why}", count(*rows))).collect();
    line("rows", format!("{} made since it started, {} sent{left_out}", count(rows.made), count(rows.sent)));
    let gauges = &status.gauges;
    let (processes, open, in_flight) = (count(gauges.processes), count(gauges.open), count(gauges.in_flight));
    line("now", format!("{processes} processes, {open} connections open, {in_flight} exchanges in flight"));
    line("settings", settings(status));
    if let Some(off_ns) = status.clock_offset_ns {
        let which = if off_ns < 0 { "behind" } else { "ahead of" };
        let error = duration(status.clock_error_ns.unwrap_or_default().unsigned_abs());
        line(
            "clock",
            format!(
                "this machine's is {} {which} the manager's, give or take {error}",
                duration(off_ns.unsigned_abs())
            ),
        );
    }
    if to_nats {
        line("clock", "rows have this machine's own clock: over NATS it is compared with no other".to_owned());
    }
    for trouble in &status.troubles {
        line("trouble", format!("{}: {}", trouble.what, trouble.why));
    }
    line("folder", status.folder.clone());
    page
}

fn settings(status: &Status) -> String {
    let settings = &status.settings;
    let mut text = match settings.version {
        0 => "none from the manager: everything".to_owned(),
        version => format!("version {version}"),
    };
    for (what, list) in [("peers and ports", &settings.only), ("programs", &settings.programs)] {
        if !list.is_empty() {
            let _ = write!(text, ", {what} {}", list.join(" "));
        }
    }
    if settings.share < 1.0 {
        let _ = write!(text, ", {} of the connections", report::figures::share(settings.share));
    }
    if status.hashes_addresses {
        text.push_str(", addresses hashed");
    }
    text
}

/// Age from which a status is reported as old. An agent writes its status every second.
const STALE_NS: u64 = 15_000_000_000;

#[cfg(test)]
mod tests {
    use agent::status::{Link, Rows, Trouble};
    use tap_protocol::{Gauges, Settings, SpoolUsage};

    use super::*;

    fn status() -> Status {
        Status {
            format: Status::FORMAT.into(),
            at_unix_ns: 100_000_000_000,
            started_unix_ns: 40_000_000_000,
            version: "1".into(),
            pid: 7,
            name: "shop".into(),
            manager: "https://m".into(),
            folder: "/run/yamabiko-tap".into(),
            stream: "0".repeat(32),
            link: Link {
                state: Connection::Away,
                since_unix_ns: 90_000_000_000,
                why: "\u{1b}[2Jgone".into(),
                stored_unix_ns: 0,
            },
            spool: SpoolUsage { batches: 3, rows: 1_200, bytes: 12_288, bytes_max: 256_000_000, oldest: 9 },
            rows: Rows { made: 5_000, sent: 3_800, dropped: 7, ..Rows::default() },
            gauges: Gauges { processes: 2, open: 3, in_flight: 1 },
            settings: Settings { version: 4, only: vec!["443".into()], share: 0.5, ..Settings::default() },
            hashes_addresses: true,
            entries: 99,
            clock_offset_ns: Some(-120_000_000_000),
            clock_error_ns: Some(1_000_000),
            troubles: vec![Trouble { what: "the spool".into(), why: "no room".into() }],
        }
    }

    #[test]
    fn agent_status_lists_unsent_data_and_its_cause() {
        let page = page(&status(), true, 100_000_000_000);
        for part in [
            "agent     shop, version 1, process 7, for 60.0 s\n",
            "https://m, away for 10.0 s: \\u{1b}[2Jgone",
            "3 batches with 1,200 rows wait",
            "5,000 made since it started, 3,800 sent, 7 dropped",
            "version 4, peers and ports 443, 50.0 % of the connections, addresses hashed",
            "is 120 s behind the manager's, give or take 1.00 ms",
            "trouble   the spool: no room",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn agent_status_says_that_no_clock_is_compared_over_nats() {
        let status = Status { manager: "nats://h:4222/TAPS".into(), clock_offset_ns: None, ..status() };
        let page = page(&status, true, 100_000_000_000);
        assert!(page.contains("stream    nats://h:4222/TAPS, away") && page.contains("own clock"), "{page}");
    }

    #[test]
    fn agent_status_reports_ended_and_stuck_agents() {
        assert!(page(&status(), false, 160_000_000_000).contains("it does not run; its last status is 60.0 s old"));
        assert!(page(&status(), true, 160_000_000_000).contains("it has written no status for 60.0 s"));
    }
}
