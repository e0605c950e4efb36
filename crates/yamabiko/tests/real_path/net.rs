//! Other programs at the clients' end of a path measure the configured figures.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::support::servers::{PAGE, net, nginx, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of};

#[test]
fn ping_measures_the_configured_rtt() {
    let workspace = Workspace::new();
    let ping = workspace.run(&net("--rtt 48ms", "ping -n -c 10 -i 0.05 server")).success();
    let mut times: Vec<f64> = times_ms(&ping.stdout);
    assert_eq!(times.len(), 10, "{ping}");
    times.sort_by(f64::total_cmp);
    // The fastest of ten: a busy machine delays some of them.
    assert!((47.98..50.0).contains(&times[0]), "{times:?}");
    assert!(ping.stdout.contains("(198.18.0.1)"), "`server` is a name: {ping}");
}

#[test]
fn ping_measures_the_configured_loss() {
    let workspace = Workspace::new();
    let report = workspace.file("net.json");
    let options = format!("--rtt 2ms --loss 5% --json {}", report.display());
    let ping = workspace.run(&net(&options, "ping -n -q -c 400 -i 0.004 -W 1 server"));
    assert_eq!(ping.code, Some(0), "some replies arrive: {ping}");
    let numbers = |word: &str| -> u64 {
        let before = ping.stdout.split(word).next().unwrap().trim_end();
        before.rsplit([' ', '\n']).next().unwrap().parse().unwrap()
    };
    let (sent, received) = (numbers("packets transmitted"), numbers("received"));
    assert_eq!(sent, 400);
    // 5 % up and 5 % down: 9.75 % of the pings, with a standard deviation of 1.5 %.
    let lost = (sent - received) as f64 / sent as f64;
    assert!((0.0975 - 0.06..0.0975 + 0.06).contains(&lost), "{ping}");
    // Each lost ping was dropped once, by the configured cause.
    let path = &json_of(&report)["path"];
    assert_eq!(path["drops"], serde_json::json!({ "loss": sent - received }), "{path}");
    let [isolated, own] = ["timing_error_isolated_ns", "timing_error_own_ns"].map(|key| &path[key]);
    assert_eq!(own["count"], isolated["count"], "{path}");
    assert!(own["p99"].as_u64() <= isolated["p99"].as_u64() && own["max"].as_u64() <= isolated["max"].as_u64());
    // The machine's part, which every kernel with CONFIG_SCHED_INFO measures.
    assert!(path["late_wakeups_ns"].is_u64() && path["run_queue_wait_ns"].is_u64(), "{path}");
    assert_eq!(path["up"]["packets"], 400);
}

#[test]
fn curl_wrk_and_httperf_run_unmodified_across_the_path() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let net = |program: &str| {
        let options = ["net", "--rtt", "20ms", "--server", &server, "--"];
        workspace.run(&[&options[..], &program.split(' ').collect::<Vec<_>>()].concat())
    };

    let page = workspace.file("page");
    let write_out = "%{http_code},%{time_connect},%{local_ip}";
    let curl = net(&format!("curl -s -o {} -w {write_out} {PAGE}", page.display()));
    let values: Vec<&str> = curl.stdout.split(',').collect();
    assert_eq!((curl.code, values[0], values[2]), (Some(0), "200", "198.19.0.1"), "{curl}");
    let connect_s: f64 = values[1].parse().unwrap();
    assert!((0.020..0.040).contains(&connect_s), "{curl}");
    assert_eq!(fs::read(&page).unwrap(), fs::read(workspace.www().join("10k.bin")).unwrap());

    let wrk = net(&format!("wrk -t1 -c8 -d1s {PAGE}")).success();
    let rate: f64 = word_after(&wrk.stdout, "Requests/sec:").parse().unwrap();
    // Eight concurrent requests of 20 ms each: at most 400/s.
    assert!((100.0..401.0).contains(&rate), "{wrk}");
    assert!(!wrk.stdout.contains("Socket errors") && !wrk.stdout.contains("Non-2xx"), "{wrk}");

    let httperf = net("httperf --hog --server server --port 8080 --uri /10k.bin --num-conns 100 --rate 100").success();
    let connect_ms: f64 = word_after(&httperf.stdout, "Connection time [ms]: connect").parse().unwrap();
    assert!((20.0..40.0).contains(&connect_ms), "{httperf}");
    assert!(httperf.stdout.contains("Errors: total 0 "), "{httperf}");
    assert!(httperf.stdout.contains("2xx=100 "), "{httperf}");
}

/// An unmodified browser: its network service, resolver and helper processes run in the sandbox.
#[test]
fn a_browser_loads_a_page_across_the_path() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    fs::write(workspace.www().join("page.html"), "<html><body><p>an echo from far away</p></body></html>").unwrap();
    let profile = format!("--user-data-dir={}", workspace.file("browser").display());
    let url = PAGE.replace("10k.bin", "page.html");
    let mut arguments = vec!["net", "--rtt", "48ms", "--server", &server, "--", "chromium", "--headless"];
    arguments.extend("--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync".split(' '));
    arguments.extend(["--disable-background-networking", "--disable-component-update", &profile, "--dump-dom", &url]);
    let browser = workspace.run(&arguments).success();
    assert!(browser.stdout.contains("an echo from far away"), "{browser}");
}

#[test]
fn iperf3_measures_the_configured_rate() {
    let workspace = Workspace::new();
    let mut arguments = vec!["net", "--server", "exec iperf3 -s", "--server-tcp", "cc=cubic"];
    arguments.extend("--rtt 20ms --down 10Mbit -- iperf3 -c server -R -t 4 -O 1 -J".split(' '));
    let iperf3 = workspace.run(&arguments).success();
    let received = received_mbit_per_s(&iperf3.json());
    assert!((9.4..10.0).contains(&received), "{received} Mbit/s");
}

/// If the link rate is the bottleneck, twenty clients use all of it, with and without segmentation offload.
#[test]
fn segmentation_offload_does_not_change_the_rate() {
    let workspace = Workspace::new();
    let [with, without] = totals_mbit_per_s(&workspace, "20ms", "1Mbit", 8);
    // 1448 of 1500 bytes are data; at this rate losses cost less than the variation of a short run.
    let full = f64::from(FLOWS) * 1448.0 / 1500.0;
    assert!((with / full - 1.0).abs() < 0.05 && (without / full - 1.0).abs() < 0.05, "of {full}: {with}, {without}");
    assert!((with / without - 1.0).abs() < 0.05, "with offload {with}, without {without} Mbit/s");
}

/// If loss is the bottleneck, it must apply to packets on the wire: dropping complete offloaded packets would give 28 %
/// more. The sum of twenty flows of some seconds varies by about 3 %.
#[test]
fn segmentation_offload_does_not_change_the_loss() {
    let workspace = Workspace::new();
    let [with, without] = totals_mbit_per_s(&workspace, "40ms", "10Mbit", 8);
    assert!((with / without - 1.0).abs() < 0.12, "with offload {with}, without {without} Mbit/s");
    // Mathis and others (1997): at most MSS / RTT * sqrt(1.5 / p), 3.5 Mbit/s here; timeouts after double losses take a
    // quarter of it (PFTK). Without loss each flow would get 9.6 Mbit/s.
    let mean = (with + without) / 2.0 / f64::from(FLOWS);
    assert!((2.2..3.5).contains(&mean), "{mean} Mbit/s per client");
}

/// Twenty concurrent clients, each with its own access link and 1 % of loss in each direction: their total throughput
/// with and without offload, by iperf3. Both runs are concurrent: they share only the machine.
fn totals_mbit_per_s(workspace: &Workspace, rtt: &str, down: &str, seconds: u32) -> [f64; 2] {
    let running = [(&[][..], "with"), (&["--no-offload"][..], "without")].map(|(more, name)| {
        let results = workspace.file(name);
        fs::create_dir(&results).unwrap();
        let script = workspace.file(&format!("{name}.sh"));
        fs::write(&script, clients_script(str_of(&results), seconds)).unwrap();
        let server = format!("for i in $(seq {FLOWS}); do iperf3 -s -p $((5200 + i)) & done; wait");
        let clients = FLOWS.to_string();
        let arguments = [
            &["net", "--rtt", rtt, "--down", down, "--loss", "1%", "--clients", &clients][..],
            &["--server", &server, "--server-tcp", "cc=cubic"],
            more,
            &["--", "/bin/sh", str_of(&script)],
        ];
        (workspace.start(&arguments.concat()), results)
    });
    let totals = running.map(|(net, results)| {
        net.finish().success();
        (1..=FLOWS).map(|i| received_mbit_per_s(&json_of(&results.join(i.to_string())))).sum()
    });
    println!("{FLOWS} clients of {down}: {:.3} Mbit/s with offload, {:.3} without", totals[0], totals[1]);
    totals
}

#[test]
fn net_exits_with_the_status_of_the_program() {
    let workspace = Workspace::concurrent_as_root();
    assert_eq!(workspace.run(&["net", "--", "sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(workspace.run(&["net", "--", "true"]).code, Some(0));
    assert_eq!(workspace.run(&["net", "--", "sh", "-c", "kill -9 $$"]).code, Some(137));
    let output = workspace.run(&["net", "--rtt", "1ms", "--", "sh", "-c", "echo out; echo err >&2"]).success();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn net_starts_a_shell_without_a_program() {
    let workspace = Workspace::concurrent_as_root();
    for shell in [Some("/bin/sh"), None] {
        let mut command = workspace.command(&["net", "--rtt", "3ms"]);
        match shell {
            Some(shell) => command.env("SHELL", shell),
            None => command.env_remove("SHELL"),
        };
        let (input, mut typed) = std::io::pipe().unwrap();
        command.stdin(Stdio::from(input));
        let running = workspace.start_command(command);
        typed.write_all(b"getent hosts server\ncat /proc/net/dev\nexit 3\n").unwrap();
        drop(typed);
        let output = running.finish();
        assert_eq!(output.code, Some(3), "{output}");
        assert!(output.stdout.starts_with("198.18.0.1"), "{output}");
        assert!(output.stdout.contains("c0:"), "the shell runs at the clients' end: {output}");
    }
}

#[test]
fn net_reports_an_unrunnable_program_in_one_line() {
    let workspace = Workspace::concurrent_as_root();
    workspace.run(&["net", "--", "no-such-program"]).refused(1, &["no-such-program"]);
    let server = yamabiko_serve(&workspace);
    workspace.run(&["net", "--server", &server, "--", "/no/such/program"]).refused(1, &["/no/such/program"]);
    workspace.run(&["net", "--server", "exit 5", "--", "true"]).refused(1, &["server", "exit status 5"]);
    workspace.run(&["net", "--path", "no-such-profile", "--", "true"]).refused(1, &["no-such-profile"]);
    workspace.run(&["net", "--server-tcp", "cc=no-such", "--", "true"]).refused(2, &["cc=no-such", "cubic"]);
}

/// Starts all flows concurrently, each from its own client address to its own server.
fn clients_script(results: &str, seconds: u32) -> String {
    format!(
        "for i in $(seq {FLOWS}); do\n\
         iperf3 -c server -p $((5200 + i)) -B 198.19.0.$i -R -t {seconds} -O 1 -J > {results}/$i &\n\
         done\nwait\n"
    )
}

fn received_mbit_per_s(document: &Value) -> f64 {
    let rate = &document["end"]["sum_received"]["bits_per_second"];
    rate.as_f64().unwrap_or_else(|| panic!("{document}")) / 1e6
}

fn json_of(file: &std::path::Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}: {text}", file.display()))
}

/// The word that follows these words.
fn word_after<'a>(text: &'a str, words: &str) -> &'a str {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("no `{words}` in {text}")).1;
    rest.split_whitespace().next().unwrap()
}

/// The values that ping prints after `time=`.
fn times_ms(text: &str) -> Vec<f64> {
    text.split("time=").skip(1).map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

const FLOWS: u32 = 20;
