//! TLS with real servers: cost and parameters of handshakes, and failures.

use std::path::PathBuf;
use std::process::Stdio;

use schema::RequestRecord;
use serde_json::{Value, json};

use crate::support::document::{
    assert_checks_passed, assert_checks_passed_or_disturbed, assert_packets_agree, check, count, disturbed, number,
};
use crate::support::tls::{Authority, TlsBehaviour, misbehaving_server, nginx};
use crate::support::workspace::{Workspace, str_of};

const PAGE: &str = "https://server:8443/10k.bin";
const MODERN: &str = "ssl_protocols TLSv1.2 TLSv1.3;";
const OLD: &str = "ssl_protocols TLSv1.2;";
/// Year in which certificates expire: far in the future.
const EXPIRY_YEAR: i32 = 4000;

fn rows(document: &Value) -> Vec<RequestRecord> {
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    let rows: Vec<RequestRecord> = store::read_requests(&dir).unwrap().map(Result::unwrap).collect();
    assert!(!rows.is_empty());
    rows
}

/// Runs `bench` of a page against a server of the testbed.
fn bench(workspace: &Workspace, url: &str, server: &str, options: &str) -> Value {
    let arguments: Vec<&str> =
        ["bench", url, "--server", server, "--json"].into_iter().chain(options.split_whitespace()).collect();
    serde_json::from_str(&workspace.run(&arguments).stdout).unwrap()
}

/// Asserts that every request of the run failed with `cause`, and that the run's text contains all `words`.
fn assert_all_failed(document: &Value, cause: &str, words: &[&str]) {
    let failed = document["load"]["failed"].as_object().unwrap();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [cause], "{}", document["load"]);
    assert_eq!(failed[cause], document["load"]["offered_requests"]);
    let why = document["load"]["tls"]["first_failure"].as_str().unwrap();
    let server_check = check(document, "server_answers")["why"].as_str().unwrap();
    for word in words {
        assert!(
            why.contains(word) && server_check.contains(word),
            "`{word}` is not in `{why}` or not in `{server_check}`"
        );
    }
}

/// One handshake per request over a path of 40 ms: TLS 1.3 takes one round trip more than TCP, TLS 1.2 two, a resumed
/// session one.
#[test]
fn tls_handshakes_take_the_expected_round_trips() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let cacert = format!("--cacert {}", str_of(&authority.file()));
    let load = "--rtt 40ms --clients 5 --rate 25/s --close --warmup 1s -d 3s";
    for (protocols, version, resumption, round_trips) in [
        (MODERN, "TLSv1.3", true, 1.0),
        (MODERN, "TLSv1.3", false, 1.0),
        (OLD, "TLSv1.2", true, 1.0),
        (OLD, "TLSv1.2", false, 2.0),
    ] {
        let server = nginx(&workspace, &[(8443, &certificate, protocols)]);
        let options = format!("{load} {cacert} {}", if resumption { "" } else { "--no-resumption" });
        let document = bench(&workspace, PAGE, &server, &options);
        let case = format!("{version}, resumption {resumption}: {}", document["load"]["tls"]);
        assert_eq!(count(&document, "load.completed"), 75, "{case}");

        let tls = &document["load"]["tls"];
        let (full, resumed) = (count(tls, "handshakes_full"), count(tls, "handshakes_resumed"));
        // Warm-up included. Each of five clients makes one complete handshake; its next one, 200 ms later, has a
        // ticket.
        assert_eq!(full + resumed, 100, "{case}");
        if resumption {
            assert!((5..=20).contains(&full), "{case}");
        } else {
            assert_eq!((resumed, &tls["resumed_share"]), (0, &json!(0.0)), "{case}");
        }
        assert_eq!(tls["version"], json!({ version: 100 }), "{case}");
        assert_eq!(tls["alpn"], json!({ "http/1.1": 100 }), "{case}");
        assert_eq!((&tls["server_name"], &tls["trust"]), (&json!("server"), &json!(str_of(&authority.file()))));
        assert!(tls.get("first_failure").is_none(), "{case}");

        // The handshake never takes less than the configured time; the excess depends on the machine.
        let configured_ns = round_trips * 40e6;
        let handshake = number(&document, "load.tls_handshake_ns.p50");
        assert_eq!(count(&document, "load.tls_handshake_ns.count"), 75, "one handshake per request: {case}");
        assert!(number(&document, "load.tls_handshake_ns.min") >= configured_ns * 0.999, "{case} {}", document["load"]);
        assert!(disturbed(&document) || handshake < configured_ns + 30e6, "{handshake} {case}");
        let connect = number(&document, "load.connect_ns.p50");
        assert!(disturbed(&document) || (40e6..60e6).contains(&connect), "TCP alone: {connect} {case}");
        for row in rows(&document) {
            let times = [row.started_at, row.connected_at, row.secured_at, row.sent_at, row.first_byte_at];
            assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{row:?}");
            assert!(row.tls_handshake_ns().unwrap() as f64 >= configured_ns * 0.999, "{row:?}");
        }

        assert_packets_agree(&document);
        assert_checks_passed(&document, &["conservation", "responses_whole", "wire_capture_drops"]);
        assert_checks_passed_or_disturbed(
            &document,
            &["littles_law_requests", "littles_law_connections", "rtt_as_configured"],
        );
        assert!(disturbed(&document) || document["validity"]["verdict"] == "valid", "{}", document["validity"]);
    }
}

/// A persistent connection makes one handshake; the rows show at which request.
#[test]
fn a_persistent_connection_makes_one_tls_handshake() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let server = nginx(&workspace, &[(8443, &authority.sign(&["server"], EXPIRY_YEAR), MODERN)]);
    let document = bench(&workspace, PAGE, &server, "-k -n 400 -c 4");
    assert_eq!((count(&document, "load.completed"), count(&document, "load.connections_opened")), (400, 4));
    assert_eq!(count(&document, "load.tls.handshakes_full"), 4);
    assert_eq!(document["load"]["tls"]["trust"], "nothing");
    let rows = rows(&document);
    assert_eq!(rows.iter().filter(|row| row.secured_at.is_some()).count(), 4);
    assert!(rows.iter().all(|row| row.connected_at.is_some() == row.secured_at.is_some()));
    // Bytes are those inside TLS: the page and its head, without records and handshakes.
    assert!(rows.iter().all(|row| (10_240..10_240 + 600).contains(&row.bytes_received)), "{:?}", rows[0]);
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert_eq!(store::read_histogram(&dir, "tls_handshake").unwrap().len(), 4);
    // The exit status depends on the verdict, which noise of the machine can change.
    let page = workspace.run(&["report", "last"]);
    assert!(page.stdout.contains("TLS handshake") && page.stdout.contains("TLSv1.3"), "{page}");
}

#[test]
fn invalid_certificates_and_versions_fail_with_their_cause() {
    let workspace = Workspace::new();
    let (authority, other_authority) = (Authority::new(&workspace, "authority"), Authority::new(&workspace, "other"));
    let (good, expired, other) = (
        authority.sign(&["server"], EXPIRY_YEAR),
        authority.sign(&["server"], 2021),
        authority.sign(&["shop.example"], 4000),
    );
    let mutual = format!("ssl_verify_client on; ssl_client_certificate {};", str_of(&other_authority.file()));
    let server = nginx(
        &workspace,
        &[
            (8443, &good, MODERN),
            (8444, &expired, MODERN),
            (8445, &other, MODERN),
            (8446, &good, OLD),
            (8447, &good, &mutual),
        ],
    );
    let url = |port: u16| format!("https://server:{port}/10k.bin");
    let run = |port: u16, options: &str| bench(&workspace, &url(port), &server, &format!("-n 3 -c 1 {options}"));
    let trusting = format!("--cacert {}", str_of(&authority.file()));

    let unknown = run(8443, &format!("--cacert {}", str_of(&other_authority.file())));
    assert_all_failed(&unknown, "tls_certificate", &["authority of the server", "--cacert", "-k"]);
    assert_all_failed(&run(8444, &trusting), "tls_certificate", &["expired"]);
    assert_all_failed(&run(8445, &trusting), "tls_certificate", &["another name", "shop.example"]);
    assert_all_failed(&run(8446, &format!("{trusting} --tls-version 1.3")), "tls_handshake", &["--tls-version"]);
    assert_all_failed(&run(8080, &trusting), "tls_handshake", &["not TLS"]);

    let completes =
        |document: &Value| assert_eq!(document["load"]["status"], json!({ "200": 3 }), "{}", document["load"]);
    completes(&run(8443, &trusting));
    completes(&run(8444, "-k"));
    completes(&run(8445, &format!("{trusting} --sni shop.example")));
    completes(&run(8446, &format!("{trusting} --tls-version 1.2")));
    // Without a client certificate nginx sends an error page; with one it sends the page.
    assert_eq!(run(8447, &trusting)["load"]["status"], json!({ "400": 3 }));
    let own = other_authority.sign(&["client"], EXPIRY_YEAR);
    completes(&run(8447, &format!("{trusting} --cert {} --key {}", str_of(&own.cert), str_of(&own.key))));
}

/// Without a path: servers that close the connection, do not speak TLS, or omit close_notify.
#[test]
fn tls_protocol_violations_fail_with_their_cause() {
    let workspace = Workspace::concurrent();
    let certificate = Authority::new(&workspace, "authority").sign(&["server"], EXPIRY_YEAR);
    let run = |behaviour| {
        let url = format!("https://{}/", misbehaving_server(&certificate, behaviour));
        let output = workspace.run(&["bench", &url, "-k", "-n", "3", "-c", "1", "--json"]);
        output.json()
    };
    assert_all_failed(&run(TlsBehaviour::ClosesInHandshake), "tls_handshake", &["closed the connection", "handshake"]);
    assert_all_failed(&run(TlsBehaviour::PlainHttp), "tls_handshake", &["not TLS"]);
    for (behaviour, expected) in [
        (TlsBehaviour::SendsCloseNotify, json!({})),
        (TlsBehaviour::OmitsCloseNotify, json!({ "tls_truncated": 3 })),
        (TlsBehaviour::OmitsCloseNotifyWithLength, json!({})),
    ] {
        let document = run(behaviour);
        assert_eq!(document["load"]["failed"], expected, "{behaviour:?}: {}", document["load"]);
        assert_eq!(count(&document, "load.tls.handshakes_full") + count(&document, "load.tls.handshakes_resumed"), 3);
        assert!(rows(&document).iter().all(|row| row.status == 200));
    }
}

#[test]
fn invalid_tls_options_are_refused_before_the_run() {
    let workspace = Workspace::concurrent();
    let empty = workspace.file("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let mut without_roots = workspace.command(&["bench", "https://127.0.0.1:1/", "-n", "1"]);
    without_roots.env("SSL_CERT_FILE", &empty).env_remove("SSL_CERT_DIR").stdin(Stdio::null());
    workspace.start_command(without_roots).finish().refused(2, &["root certificates", "--cacert", "-k"]);

    let run =
        |arguments: &str| workspace.run(&["bench"].into_iter().chain(arguments.split_whitespace()).collect::<Vec<_>>());
    run("http://127.0.0.1:1/ -k -n 1").refused(1, &["https://"]);
    run("https://127.0.0.1:1/ --cacert /no/such/file -n 1").refused(1, &["--cacert /no/such/file", "No such file"]);
    run("https://127.0.0.1:1/ -k --cacert x.pem -n 1").refused(1, &["leave one of the two out"]);
    assert!(run("https://127.0.0.1:1/ --alpn h2 -n 1").stderr.contains("HTTP/2"));
    assert_eq!(std::fs::read_dir(workspace.runs()).unwrap().count(), 0, "a refused run is not stored");

    // The plan is complete, and its printed form is equivalent.
    let options = "https://shop.example/ --sni other.example --tls-version 1.2 --alpn none --no-resumption -n 1";
    let printed = run(&format!("{options} --print-plan")).success().stdout;
    for line in ["[load.tls]", "sni = \"other.example\"", "version = \"1.2\"", "alpn = \"none\"", "resumption = false"]
    {
        assert!(printed.contains(line), "{printed}");
    }
    let plan = workspace.file("plan.toml");
    std::fs::write(&plan, &printed).unwrap();
    assert_eq!(workspace.run(&["run", str_of(&plan), "--print-plan"]).success().stdout, printed);
}
