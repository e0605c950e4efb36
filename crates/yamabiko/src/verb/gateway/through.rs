//! `yamabiko gateway -- CMD`: runs any program behind the emulated gateway host.

use anyhow::{Result, ensure};
use gateway::emulation::{LinkFigures, Through, ThroughOutcome};
use units::format_duration;

use crate::args::Forwarding;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Runs the program and ends with its status.
pub fn run(arguments: &Forwarding) -> Result<Exit> {
    let result = &arguments.result;
    ensure!(
        !(result.json || result.print_plan || result.strict || result.html.is_some() || result.show.live.is_some()),
        "--json, --html, --live, --strict and --print-plan are not for -- CMD: what the program prints is the result"
    );
    let through = Through {
        lab: arguments.lab_of_command()?,
        server: arguments.lab.server.clone(),
        command: arguments.command.clone(),
    };
    let outcome = gateway::emulation::through(&through, |line| print_message(line))?;
    print_figures(&through, &outcome);
    Ok(Exit::Program(outcome.status))
}

/// Prints the gateway's figures and problems on stderr: stdout belongs to the program.
fn print_figures(through: &Through, outcome: &ThroughOutcome) {
    let used = &outcome.used;
    let limit = through.lab.share.map_or("unlimited".into(), |share| format!("{share} at most"));
    let pauses = outcome.facts.stall_lengths.map_or(String::new(), |pauses| {
        let [typical, rare] = pauses.map(format_duration);
        format!(", throttled for typically up to {typical} at a time, rarely for {rare}")
    });
    let [clients, server] = &outcome.links;
    let (up, down) = (clients.up.delivered, server.down.delivered);
    let lost: u64 = used.overflowed.iter().sum();
    let each = match (up + down).saturating_sub(lost) {
        0 => String::new(),
        packets => {
            let own =
                outcome.facts.host_ns_per_packet.zip(outcome.facts.host_ns_per_isolated_packet).map(|(many, alone)| {
                    format!(
                        " (the emulated network card alone takes {:.1} us in a batch, {:.1} us for a single packet)",
                        many / 1e3,
                        alone / 1e3
                    )
                });
            format!(
                ", {:.1} us per packet{}",
                used.host_process.as_secs_f64() * 1e6 / packets as f64,
                own.unwrap_or_default()
            )
        }
    };
    print_message(format_args!(
        "gateway: {:.2}% of a core used ({limit}{pauses}); {up} packets from the clients, {down} from the server{each}",
        used.cores() * 100.0,
    ));
    let [from_clients, from_server] = used.overflowed;
    if lost > 0 {
        print_message(format_args!(
            "gateway: the rings of the emulated network card overflowed: {from_clients} packets from the clients, {from_server} from the server"
        ));
    }
    print_link("the clients' link", clients);
    print_link("the server's link", server);
    if let Some(failure) = &outcome.failure {
        print_message(format_args!("yamabiko: do not trust this result: {failure}"));
    }
}

/// Prints the configured losses of a link, and faults of the emulation.
fn print_link(name: &str, link: &LinkFigures) {
    let (up, down) = (&link.up, &link.down);
    if up.queue_full + down.queue_full + up.lost + down.lost > 0 {
        print_message(format_args!(
            "{name}: of {} packets up {} were lost and {} found the queue full; of {} down {} and {}",
            up.packets, up.lost, up.queue_full, down.packets, down.lost, down.queue_full
        ));
    }
    if link.unintended_drops > 0 {
        print_message(format_args!(
            "yamabiko: do not trust this result: {name} dropped {} packets unintentionally",
            link.unintended_drops
        ));
    }
    if link.busy_share() > BUSY_MAX {
        print_message(format_args!(
            "yamabiko: do not trust this result: {name} was busy for {:.0}% of the time, so it may have been the limit",
            link.busy_share() * 100.0
        ));
    }
}

/// Busy share of a link's thread above which the link may have limited the gateway.
const BUSY_MAX: f64 = 0.95;
