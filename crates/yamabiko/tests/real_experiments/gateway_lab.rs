//! The gateway testbed, checked with other programs: NAT, links, CPU limit, configuration of the gateway.

use std::fs;

use crate::support::leftovers::Leftovers;
use crate::support::servers::{PAGE, yamabiko_serve};
use crate::support::user::{Tun, User};
use crate::support::workspace::{Output, Workspace, str_of, wait_until};

/// Arguments of `gateway` with these options, for this program and its arguments.
fn gateway_arguments<'a>(options: &'a str, program: &'a str) -> Vec<&'a str> {
    ["gateway"].into_iter().chain(options.split_whitespace()).chain(["--"]).chain(program.split_whitespace()).collect()
}

/// The number before `words` in the report about the testbed.
fn number_before(output: &Output, words: &str) -> f64 {
    let (text, _) = output.stderr.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {output}"));
    text.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("no number before {words:?} in {output}"))
}

#[test]
fn only_nat_hides_the_client_address() {
    let workspace = Workspace::new();
    for (condition, seen) in [("nat", "198.19.0.2"), ("none", "198.19.0.1")] {
        let log = workspace.file(condition);
        let server = format!("{} --log {}", yamabiko_serve(&workspace), log.display());
        let page = workspace.file("page");
        let words =
            ["gateway", "--condition", condition, "--server", &server, "--", "curl", "-s", "-o", str_of(&page), PAGE];
        let curl = workspace.run(&words).success();
        assert_eq!((curl.stdout.as_str(), fs::metadata(&page).unwrap().len()), ("", 10 << 10), "{condition}");
        let line = fs::read_to_string(&log).unwrap();
        assert!(line.starts_with(&format!("{seen} ")), "{condition}: {line}");
        // stderr has one line of this program; on a busy machine it may mention other load.
        assert!(curl.stderr.starts_with("gateway: ") && curl.stderr.contains("(10% at most, "), "{curl}");
        assert!(
            number_before(&curl, "% of a core") > 0.0 && number_before(&curl, " packets from the clients") >= 5.0,
            "{curl}"
        );
    }
}

#[test]
fn a_gateway_program_sees_the_configured_testbed() {
    let workspace = Workspace::new();
    let mut leftovers = Leftovers::new(workspace.path());
    let setup = "ip route replace unreachable 198.18.0.1; (trap '' TERM HUP; sleep 1000) & true";
    let script =
        "echo $SERVER $GATEWAY; getent hosts server gateway; ping -c 1 -W 2 server; ping -q -c 1 gateway; exit 7";
    let mut command = workspace.command(&["gateway", "--setup", setup, "--", "sh", "-c", script]);
    command.env("VICTIM", workspace.path());
    let program = workspace.start_command(command);
    leftovers.note_networks(program.pid());
    let output = program.finish();
    assert_eq!(output.code, Some(7), "{output}");
    assert!(output.stdout.starts_with("198.18.0.1 198.18.255.1\n198.18.0.1"), "{output}");
    assert!(output.stdout.contains("From gateway (198.18.255.1) icmp_seq=1 Destination Host Unreachable"), "{output}");
    assert!(output.stdout.contains("1 packets transmitted, 1 received"), "{output}");
    wait_until("the testbed's processes have exited", || leftovers.processes().is_empty());

    let refused = workspace.run(&["gateway", "--setup", "echo no such rule; exit 3", "--", "true"]);
    refused.refused(1, &["--setup `echo no such rule; exit 3` ended with status 3; its output: no such rule"]);
    workspace.run(&["gateway", "--", "/no/such/program"]).refused(1, &["/no/such/program"]);
}

#[test]
fn the_cpu_limit_of_a_gateway_holds_under_load() {
    let workspace = Workspace::new();
    let arguments = ["gateway", "--gateway-cpu", "2%", "--server", "exec iperf3 -s -1", "--"];
    let flood = "iperf3 -c server -u -b 0 -l 16 -t 1 -J";
    let iperf3 = workspace.run(&[&arguments[..], &flood.split(' ').collect::<Vec<_>>()].concat()).success();
    // 2 % of the run's time, plus what the quota permits at the edges of a short run.
    let used = number_before(&iperf3, "% of a core used (2% at most, throttled for typically up to 49ms");
    assert!((0.5..2.8).contains(&used), "{iperf3}");
    // Packets that iperf3 could not send in time count as its own loss, not as a link's.
    assert!(number_before(&iperf3, " packets from the clients, 0 from the server") > 0.0, "{iperf3}");
    assert!(iperf3.stderr.contains("the rings of the emulated network card overflowed"), "{iperf3}");
    assert!(!iperf3.stderr.contains("found the queue full"), "{iperf3}");
}

#[test]
fn links_have_the_configured_delay_and_loss() {
    let workspace = Workspace::new();
    let options = "--condition nat --gateway-cpu none --link 100Mbit,loss=5%,rtt=20ms";
    let ping = workspace.run(&gateway_arguments(options, "ping -n -c 200 -i 0.004 -W 1 server")).success();
    let times: Vec<f64> =
        ping.stdout.lines().filter_map(|line| line.split_once(" time=")?.1.strip_suffix(" ms")?.parse().ok()).collect();
    // Each direction has two links.
    assert!(times.iter().all(|&time| time >= 39.9), "{times:?}");
    let lost = 200 - times.len();
    // 18.5 % of the packets, with a standard deviation of 5.5.
    assert!((10..65).contains(&lost), "{lost} of 200");
    let at = |link: &str| -> usize {
        let line = ping.stderr.lines().find(|line| line.starts_with(link)).unwrap_or_else(|| panic!("{ping}"));
        let numbers: Vec<usize> = line.split([' ', ';']).filter_map(|word| word.parse().ok()).collect();
        // Sent, lost and dropped by the full queue, in each direction.
        assert_eq!((numbers.len(), numbers[2], numbers[5]), (6, 0, 0), "{line}");
        numbers[1] + numbers[4]
    };
    assert_eq!(at("the clients' link") + at("the server's link"), lost, "{ping}");
}

#[test]
fn an_unprivileged_user_has_the_testbed_without_cpu_limit() {
    let user = User::new();
    let refused = user.run(Tun::ForAll, &gateway_arguments("", "true"));
    refused.refused(2, &["--gateway-cpu 10%: no control group can be created here: "]);
    let ping = user
        .run(Tun::ForAll, &gateway_arguments("--condition nat --gateway-cpu none", "ping -n -c 2 -i 0.1 server"))
        .success();
    assert!(ping.stdout.contains("2 received"), "{ping}");
    assert!(ping.stderr.contains("no control group can be created here"), "{ping}");
    let missing = user.run(Tun::Missing, &gateway_arguments("--gateway-cpu none", "true"));
    missing.refused(2, &["/dev/net/tun"]);
}
