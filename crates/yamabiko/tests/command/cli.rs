//! Invalid input: one clear line that names the fault, status 1 (2 if the machine is at fault), nothing on stdout, and
//! an empty run store.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use crate::support::document::{check, number};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

/// A URL without a server. The refused commands never send a request.
const URL: &str = "http://127.0.0.1:9/";

/// Arguments after `bench`, and words that the error message must contain.
type Refusal<'a> = (&'a [&'a str], &'a [&'a str]);

fn refuse(workspace: &Workspace, refusals: &[Refusal<'_>]) {
    for (arguments, words) in refusals {
        let arguments: Vec<&str> = ["bench"].iter().chain(*arguments).copied().collect();
        workspace.run(&arguments).refused(1, words);
    }
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "the run store is empty");
}

#[test]
fn unknown_flags_are_refused_with_a_suggestion() {
    let workspace = Workspace::concurrent();
    refuse(
        &workspace,
        &[
            (&["--frob", URL], &["unexpected argument '--frob'", "yamabiko bench --help"]),
            (&["--rat", "110/s", URL], &["'--rat'", "'--rate'"]),
            (&[], &["<URL>", "yamabiko bench --help"]),
            (&[URL, "another"], &["`another`", "did you mean http://another"]),
            (&[URL, "--server-cpu", "50%"], &["--server <COMMAND>"]),
            (&[URL, "-m", "BREW"], &["'BREW'", "GET, HEAD, POST"]),
            (&[URL, "--arrivals", "often"], &["'often'", "constant, poisson"]),
        ],
    );
    workspace.run(&["frobnicate"]).refused(1, &["'frobnicate'", "yamabiko --help"]);
}

#[test]
fn quantities_without_unit_or_out_of_range_are_refused() {
    let workspace = Workspace::concurrent();
    refuse(
        &workspace,
        &[
            (&[URL, "--rate", "110"], &["--rate", "`110` has no unit", "110/s"]),
            (&[URL, "--rate", "110/parsec"], &["`/parsec`", "is not a known unit"]),
            (&[URL, "--rate", "0/s"], &["out of range", "above 0"]),
            (&[URL, "--rate", "-5/s"], &["`-5/s` is out of range"]),
            (&[URL, "--rtt", "48"], &["--rtt", "`48` has no unit", "48ms"]),
            (&[URL, "--rtt", "-48ms"], &["`-48ms` is out of range"]),
            (&[URL, "--jitter=-1ms"], &["`-1ms` is out of range"]),
            (&[URL, "--loss", "1.5"], &["--loss", "from 0 to 1"]),
            (&[URL, "--loss", "101%"], &["--loss", "from 0 to 1"]),
            (&[URL, "--loss", "-1%"], &["--loss", "from 0 to 1"]),
            (&[URL, "--down", "10MB"], &["--down", "`MB`", "10Mbit"]),
            (&[URL, "--queue", "64"], &["--queue", "no unit", "64KB"]),
            (&[URL, "-d", "10"], &["--duration", "no unit"]),
            (&[URL, "-n", "ten"], &["--requests", "a number is whole"]),
            (&[URL, "-n", "-5"], &["--requests", "a number is whole"]),
            (&[URL, "-c", "-5"], &["--connections", "-5"]),
            (&[URL, "--server", "true", "--server-cpu", "50"], &["--server-cpu", "no unit", "50%"]),
            (&[URL, "--server", "true", "--server-tcp", "iw=2"], &["`iw=2`", "initcwnd=2,cc=reno"]),
            (&[URL, "--server", "true", "--server-tcp", "initcwnd=0"], &["1 to 1000"]),
        ],
    );
}

#[test]
fn contradictory_options_are_refused() {
    let workspace = Workspace::concurrent();
    refuse(
        &workspace,
        &[
            (&[URL, "-n", "0"], &["expected -n and -d above 0"]),
            (&[URL, "-d", "0s"], &["expected -n and -d above 0"]),
            (&[URL, "-c", "0"], &["connections = 0", "at least one"]),
            (&[URL, "--clients", "0"], &["clients = 0", "expected 1 to 65534"]),
            (&[URL, "--clients", "65535"], &["clients = 65535", "expected 1 to 65534"]),
            (&[URL, "--timeout", "0s"], &["a timeout of 0 fails every request"]),
            (&[URL, "--arrivals", "poisson"], &["poisson", "needs a rate"]),
            (&[URL, "--name", "a b"], &["`a b`", "letters, digits"]),
            (&[URL, "--path", "none", "--rtt", "48ms"], &["--path none", "--rtt"]),
            (&[URL, "--path", "none", "--no-offload"], &["--path none", "--no-offload"]),
            (&[URL, "--path", "none", "--server", "true"], &["--path none", "--rtt 0ms"]),
            (&[URL, "--queue", "64KB"], &["queue", "rate", "up or down"]),
            (&["http://server/", "--server", "true", "--jitter", "1ms"], &["jitter = 1ms", "half of rtt"]),
            (&[URL, "--server-tcp", "cc=reno"], &["--server-tcp", "--server"]),
            (&["http://server/", "--server", " "], &["--server", "empty"]),
            (&[URL, "-m", "POST"], &["POST", "--body"]),
            (&[URL, "--body", "/no/such/file"], &["--body /no/such/file", "No such file"]),
            (&[URL, "--body", "/"], &["--body /", "directory"]),
            (&[URL, "--body", "paylod.json"], &["--body", "paylod.json", "No such file"]),
            (&[URL, "--body", "@"], &["--body", "@"]),
            (&[URL, "--loss", "1"], &["--loss", "1% or 100%?"]),
            (&[URL, "--corrupt", "1"], &["--corrupt", "1% or 100%?"]),
            (&[URL, "--slo", "errors < 1"], &["--slo", "1% or 100%?"]),
            (&[URL, "-n", "1.5"], &["--requests", "10k"]),
            (&[URL, "-d", "30s1m"], &["--duration", "1m30s"]),
            (&[URL, "-H", "no colon"], &["`no colon`", "no colon;", "Accept: text/html"]),
            (&[URL, "-H", "a: b\r\nc: d"], &["control character"]),
            (&[URL, "--slo", "p99"], &["--slo", "no `<`", "p99 < 200ms"]),
            (&[URL, "--slo", "p98 < 1ms"], &["`p98`", "p99.9"]),
            (&[URL, "--slo", "p99 < 200"], &["no unit"]),
            (&[URL, "--slo", "errors < 2"], &["from 0 to 1"]),
            (&[URL, "--slo", ""], &["objective is empty"]),
        ],
    );
}

#[test]
fn invalid_urls_are_refused() {
    let workspace = Workspace::concurrent();
    refuse(
        &workspace,
        &[
            (&["http://127.0.0.1/", "-k"], &["TLS", "https://"]),
            (&["https://127.0.0.1/", "-k", "--cacert", "ca.pem"], &["leave one of the two out"]),
            (&["127.0.0.1/"], &["did you mean http://127.0.0.1/"]),
            (&["http://"], &["names no host"]),
            (&["http://127.0.0.1:99999/"], &["1 to 65535"]),
            (&["http://127.0.0.1/a b"], &["%20"]),
            (&["ftp://127.0.0.1/"], &["`ftp`", "http://"]),
            (&["http://no.such.host.invalid/"], &["`no.such.host.invalid`", "check the name"]),
            (&["http://server/"], &["`server`", "--server"]),
            (&["http://localhost:80/", "--server", "true"], &["must be `server`", "not `localhost`"]),
        ],
    );
}

#[test]
fn invalid_plan_files_are_refused_with_line_and_key() {
    let workspace = Workspace::concurrent();
    let load = "[load]\nurl = \"http://server/\"\nduration = \"1s\"\n";
    let cases = [
        (format!("frob = 1\n{load}"), &["plan.toml:1", "`frob`", "`seed`"][..]),
        (format!("{load}speed = 1\n"), &["plan.toml:4", "`speed`", "`rate`"]),
        (format!("{load}[path]\nrtt = \"1ms\"\nlength = 1\n"), &["plan.toml:6", "`length`"]),
        (format!("{load}rate = 110\n"), &["plan.toml:4", "110/s"]),
        (format!("{load}rate = \"110\"\n"), &["plan.toml:4", "`110` has no unit"]),
        (format!("{load}timeout = \"-1s\"\n"), &["plan.toml:4", "out of range"]),
        (format!("{load}[path]\nloss = 2.0\n"), &["plan.toml:5", "from 0 to 1"]),
        (format!("slo = \"p99\"\n{load}"), &["plan.toml:1", "no `<`"]),
        (load.replace("duration = \"1s\"", ""), &["give requests (-n) or duration (-d)"]),
        (load.replace("\"http", "http"), &["plan.toml:2"]),
        (format!("{load}[path]\nrtt = \"48ms\"\n"), &["`server`", "--server"]),
        (format!("{load}[server]\ncommand = \"true\"\n"), &["a server of the testbed needs a path"]),
        (format!("{load}[path]\n[server]\ncommand = \"\"\n"), &["command", "empty"]),
        (String::new(), &["`load`"]),
    ];
    for (text, words) in &cases {
        fs::write(workspace.path().join("plan.toml"), text).unwrap();
        workspace.run(&["run", "plan.toml"]).refused(1, words);
    }
    workspace
        .run(&["run", "/no/such/plan.toml"])
        .refused(1, &["cannot read the plan /no/such/plan.toml", "No such file"]);
    fs::write(workspace.path().join("plan.toml"), b"\xff\xfe").unwrap();
    workspace.run(&["run", "plan.toml"]).refused(1, &["plan.toml", "UTF-8"]);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn invalid_profiles_are_refused() {
    let workspace = Workspace::concurrent();
    let class = "[[clients]]\nshare = 1.0\nrtt = \"48ms\"\n";
    let cases = [
        (
            "name = \"x\"\n[[clients]]\nshare = 0.7\nrtt = \"48ms\"\n".to_owned(),
            &["p.toml", "add to 0.7, not to 1"][..],
        ),
        (format!("name = \"x\"\nfrob = 1\n{class}"), &["p.toml:2", "`frob`"]),
        (format!("name = \"x\"\n{class}").replace("48ms", "-48ms"), &["p.toml:4", "`-48ms` is out of range"]),
        (format!("name = \"x\"\n{class}").replace("48ms", "48"), &["p.toml:4", "no unit"]),
        (format!("name = \"x\"\n{class}[shared]\ndown = {{ delay = \"1ms\" }}\n"), &["[shared]", "no delay"]),
        (
            format!("name = \"x\"\n{class}down = {{ rate = {{ trace = \"no.trace\" }} }}\n"),
            &["no.trace", "No such file"],
        ),
        (
            format!("name = \"x\"\n{class}[[changes]]\nat = \"1s\"\nclients = \"far\"\noutage = true\n"),
            &["[[changes]] number 1", "`far`"],
        ),
        (format!("name = \"x\"\n{class}up = {{ queue = \"64KB\" }}\n"), &["queue without a rate"]),
        (format!("name = \"x\"\n{class}up = {{ loss = 1.5 }}\n"), &["p.toml:5", "from 0 to 1"]),
        (
            format!("name = \"x\"\n{}", class.replace("\"48ms\"", "{ quantiles = \"no.csv\" }")),
            &["no.csv", "No such file"],
        ),
        ("name = \"x\"\n".to_owned(), &["`clients`"]),
    ];
    for (text, words) in &cases {
        fs::write(workspace.path().join("p.toml"), text).unwrap();
        workspace.run(&["profile", "show", "p.toml"]).refused(1, words);
        refuse(&workspace, &[(&["http://server/", "--server", "true", "--path", "p.toml"], words)]);
    }
    let missing = &["`no-such-profile`", "No such file", "yamabiko profile list"];
    workspace.run(&["profile", "show", "no-such-profile"]).refused(1, missing);
    refuse(&workspace, &[(&["http://server/", "--server", "true", "--path", "no-such-profile"], missing)]);
    workspace.run(&["profile", "show", "lan", "--clients", "0"]).refused(1, &["--clients 0", "expected 1 to 65534"]);
    workspace.run(&["profile", "show", "p.toml", "--source"]).refused(1, &["`p.toml`", "profile list"]);
    workspace.run(&["profile", "check"]).refused(1, &["nothing to check"]);

    let list = workspace.run(&["profile", "list", "--json"]).success().json();
    let shown = workspace.run(&["profile", "list"]).success();
    for profile in list["profiles"].as_array().unwrap() {
        let name = profile["name"].as_str().unwrap();
        assert!(shown.stdout.contains(&format!("  {name} ")), "{shown}");
        let document = workspace.run(&["profile", "show", name, "--json"]).success().json();
        assert_eq!((&document["name"], &document["clients"]), (&profile["name"], &serde_json::json!(100)));
        assert!(workspace.run(&["profile", "show", name]).success().stdout.contains(name));
        assert!(workspace.run(&["profile", "show", name, "--source"]).success().stdout.contains("[[clients]]"));
    }
}

/// Every effect option appears in the printed plan, and the plan reads back as the same.
#[test]
fn effects_are_printed_in_the_plan() {
    let workspace = Workspace::concurrent();
    let effects = "--rtt 48ms --jitter 2ms --loss ge:1%,30% --corrupt 0.1% --duplicate 1% --reorder 1%,5ms \
                   --up 1Mbit --down trace:cell.trace --queue 64KB --aqm codel:6ms";
    let bench = ["bench", "http://server/", "--server", "true", "--print-plan", "--change", "10s for 3s: outage"];
    let words: Vec<&str> = bench.into_iter().chain(effects.split_whitespace()).collect();
    fs::write(workspace.path().join("cell.trace"), "1\n").unwrap();
    let plan = workspace.run(&words).success();
    for line in [
        "loss = \"ge:0.01,0.3,100%,0\"",
        "corrupt = 0.001",
        "duplicate = 0.01",
        "reorder = \"0.01,5ms\"",
        "up = \"1Mbit\"",
        "down = \"trace:cell.trace\"",
        "queue = \"64KB\"",
        "aqm = \"codel:6ms,100ms\"",
        "[[path.changes]]",
        "for = \"3s\"",
        "outage = true",
    ] {
        assert!(plan.stdout.lines().any(|printed| printed == line), "{line}: {plan}");
    }
    fs::write(workspace.path().join("effects.toml"), &plan.stdout).unwrap();
    let again = workspace.run(&["run", "effects.toml", "--print-plan"]).success();
    assert_eq!(again.stdout, plan.stdout);
    let url = "http://server/";
    refuse(
        &workspace,
        &[
            (&[url, "--server", "true", "--loss", "ge:1%"], &["from 2 to 4"]),
            (&[url, "--server", "true", "--aqm", "codel"], &["needs a link rate"]),
            (&[url, "--server", "true", "--down", "1Mbit", "--aqm", "red"], &["codel[:TARGET"]),
            (&[url, "--server", "true", "--change", "10s outage"], &["a colon is missing"]),
            (&[url, "--server", "true", "--change", "10s in far: outage"], &["no class `far`"]),
            (&[url, "--path", "none", "--change", "10s: outage"], &["--change needs one"]),
        ],
    );
}

#[test]
fn an_unusable_run_store_is_refused() {
    let workspace = Workspace::concurrent();
    workspace.run(&["report"]).refused(1, &["no run in", "yamabiko demo"]);
    workspace.run(&["report", "no-such-run"]).refused(1, &["no run `no-such-run`", "yamabiko runs"]);
    let empty = workspace.run(&["runs"]).success();
    assert!(empty.stdout.contains("none yet") && empty.stderr.is_empty(), "{empty}");
    assert_eq!(workspace.run(&["runs", "--json"]).success().json()["runs"], serde_json::json!([]));

    let with_store = |store: &str, arguments: &[&str]| -> Output {
        let mut command = Command::new("/usr/bin/env");
        command.arg(format!("YAMABIKO_RUNS={store}")).arg(yamabiko()).args(arguments);
        workspace.start_command(command).finish()
    };
    for store in ["/proc/no-such-folder", "/dev/null"] {
        with_store(store, &["bench", URL, "-n", "1"]).refused(2, &[store, "set YAMABIKO_RUNS to a folder"]);
    }
    with_store("/dev/null", &["runs"]).refused(2, &["/dev/null", "set YAMABIKO_RUNS to a folder"]);
}

#[test]
fn too_few_descriptors_are_reported_before_the_run() {
    let workspace = Workspace::concurrent();
    let limited = |limit: u32, arguments: &[&str]| -> Output {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\"")).arg(yamabiko()).args(arguments);
        workspace.start_command(command).finish()
    };
    // 72 connections per process, and at most 64 processes.
    limited(200, &["bench", URL, "-c", "5000"]).refused(2, &["-c 5000", "200 open files", "ulimit -n"]);
    limited(100, &["bench", URL]).refused(2, &["100 open files", "ulimit -n"]);
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn serve_refuses_an_unusable_folder() {
    let workspace = Workspace::concurrent();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let www = workspace.www();
    let www = str_of(&www);
    workspace.run(&["serve", www, "--listen", &address]).refused(2, &[&address, "already in use", "choose another"]);
    workspace.run(&["serve", "/no/such/folder"]).refused(1, &["/no/such/folder", "No such file"]);
    workspace.run(&["serve", "/dev/null"]).refused(1, &["/dev/null", "Not a directory"]);
    workspace.run(&["serve", www, "--listen", "8080"]).refused(1, &["--listen", "127.0.0.1:8080"]);
    workspace.run(&["serve", www, "--threads", "0"]).refused(1, &["--threads", "1 to 1024"]);
}

#[test]
fn help_and_version_are_printed() {
    let workspace = Workspace::concurrent();
    for verb in ["demo", "bench", "run", "net", "profile", "serve", "runs", "report"] {
        let help = workspace.run(&[verb, "--help"]).success();
        assert!(help.stdout.contains(&format!("Usage: yamabiko {verb}")) && help.stderr.is_empty(), "{help}");
    }
    let help = workspace.run(&["--help"]).success();
    assert!(help.stdout.contains("far away") && help.stdout.contains("Exit status"), "{help}");
    let version = workspace.run(&["--version"]).success();
    assert_eq!(version.stdout, format!("yamabiko {}\n", env!("CARGO_PKG_VERSION")));
    // Without arguments the usage is printed instead of a one-line error.
    let nothing = workspace.run(&[]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("Usage:") && nothing.stdout.is_empty(), "{nothing}");
}

/// `net` refuses the same options of server, path and capture as `bench`.
#[test]
fn net_refuses_what_bench_refuses() {
    let workspace = Workspace::concurrent();
    for (options, words) in [
        (&["--server", "true", "--server-addresses", "0"][..], &["--server-addresses", "1 to 250"][..]),
        (&["--server", "true", "--server-name", "a b"], &["--server-name", "not a valid host name"]),
        (&["--rtt", "10ms", "--queue", "64KB"], &["queue limit", "rate"]),
        (&["--watch-snaplen", "1B"], &["--watch-snaplen"]),
    ] {
        workspace.run(&[&["net"], options, &["--", "true"]].concat()).refused(1, words);
    }
}

/// The output of `--print-plan` reads back as the same plan, which prints the same output.
#[test]
fn a_printed_plan_reads_back() {
    let workspace = Workspace::concurrent();
    let body = workspace.path().join("body");
    fs::write(&body, "a body").unwrap();
    // Arguments are separated by bars.
    let plans = [
        "http://server:8080/a?b=c&d='e'|--server|exec my-server --root '/a b' \"$HOME\"|--server-cpu|37.5%|--server-tcp|\
         initcwnd=2,cc=reno|--server-start-timeout|1500ms|--path|koshien-2001|--rtt|48.5ms|--jitter|250us|--loss|\
         0.1%|--up|512kbit|--down|8Mbit|--queue|100ms|--no-offload|-r|6000/m|--arrivals|poisson|-c|1000|-n|100000|-d|\
         1m|--warmup|2s|--clients|1000|--close|-m|POST|--body|body|-H|Accept: \"text\"|-H|X: \\|--http|1.0|--timeout|\
         12s|--connect-timeout|3s|--wait|spin|--placement|float|--slo|p99.9 <= 200ms, errors < 0.1%|--seed|\
         9223372036854775807|--name|all_of-it",
        "http://127.0.0.1:8080/|-r|33333.333/s|-d|1ns",
        "http://127.0.0.1:8080/|-c|10k|-n|1.5M|--timeout|1m30s|--body|{\"a\": {1}}|--loss|100%",
        "http://127.0.0.1:8080/a|http://127.0.0.1:8080/b|--body|@body|-m|put",
        "http://127.0.0.1:8080/a|http://127.0.0.1:8080/b|--body|{text}",
        URL,
        "http://server/|--server|true|--queue|64KB|--up|1.5Mbit",
    ];
    for plan in plans {
        let arguments: Vec<&str> = ["bench", "--print-plan"].into_iter().chain(plan.split('|')).collect();
        let printed = workspace.run(&arguments).success();
        assert!(printed.stderr.is_empty(), "{printed}");
        fs::write(workspace.path().join("printed.toml"), &printed.stdout).unwrap();
        let again = workspace.run(&["run", "printed.toml", "--print-plan"]).success();
        assert_eq!(again.stdout, printed.stdout);
    }
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn a_run_whose_connections_are_all_refused_ends_early_and_names_the_address() {
    let workspace = Workspace::concurrent();
    for load in [&["-c", "4"][..], &["--rate", "100/s"]] {
        let output = workspace.run(&[&["bench", URL, "-d", "10m", "--json", "--no-save"][..], load].concat());
        assert_eq!(output.code, Some(3), "{output}");
        let document = output.json();
        let server_check = check(&document, "server_answers");
        let why = server_check["why"].as_str().unwrap();
        assert!(why.starts_with("nothing listens on 127.0.0.1:9: the first "), "{why}");
        assert!(number(&document, "run.duration_s") < 300.0, "{document}");
        assert_eq!(document["run"]["host"]["settings"]["target"], "127.0.0.1:9");
    }
}
