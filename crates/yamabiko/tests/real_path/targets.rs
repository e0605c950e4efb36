//! Every kind of target: a server of the testbed, a service of this host on any address, another host; over IPv4 and
//! IPv6, for `bench` and `net`. "This host" and the other one are network namespaces of the test.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::support::document::{assert_checks_passed, check, count, disturbed, number};
use crate::support::host::{Hosts, LAN, LAN_V6, REMOTE, REMOTE_V6};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

const OPTIONS: &str = "--rtt 30ms --clients 20 --rate 100/s --close --warmup 300ms -d 1s --watch both --json --no-save";

/// Asserts that a run with [`OPTIONS`] is like one against a server of the testbed: every request got a response and is
/// in the capture, handshake RTTs match the configuration, and every packet was found at both ends of the path.
fn assert_complete_run(output: &Output) -> Value {
    output.assert_measured();
    let document = output.json();
    assert_eq!(count(&document, "load.completed"), 100, "{output}");
    assert_checks_passed(&document, &["conservation", "responses_whole", "error_rate", "records_stored"]);
    assert_checks_passed(&document, &["no_unintended_drops"]);
    // Unintended packets without a route would be counted here.
    assert_eq!(document["path"]["drops"].as_object().map(|drops| drops.contains_key("no_route")), Some(false));
    // The capture counts packets within the measured phase: a request that is sent late may arrive after it.
    let seen = count(&document, "watch.requests");
    assert!(seen == 100 || seen.abs_diff(100) < 20 && disturbed(&document), "{seen} on the wire: {output}");
    assert_eq!(count(&document, "path.packet_capture.unmatched"), 0, "{}", document["path"]["packet_capture"]);
    assert!(number(&document, "path.measured_rtt_ns.p50") >= 30e6, "{}", document["path"]["measured_rtt_ns"]);
    if !disturbed(&document) {
        // With another host the capture is at the path's end, so only the path is checked.
        let beyond = check(&document, "rtt_as_configured")["state"] == "not_applicable";
        let rtt = if beyond { "rtt_at_server_as_configured" } else { "rtt_as_configured" };
        assert_checks_passed(&document, &[rtt, "vantage_points_agree_requests"]);
    }
    document
}

fn bench(hosts: &Hosts, workspace: &Workspace, url: &str, more: &[&str]) -> Output {
    let options: Vec<&str> = OPTIONS.split(' ').collect();
    hosts.host.yamabiko(workspace, &[&["bench", url], &options[..], more].concat())
}

#[test]
fn a_path_leads_to_services_of_this_host() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.host.nginx(
        &workspace,
        "nginx",
        &[
            "listen 127.0.0.1:8081;",
            "listen 0.0.0.0:8082;",
            "listen [::1]:8083;",
            "listen [::]:8084 ipv6only=off;",
            "listen 192.0.2.2:8085; listen 127.0.0.2:8085;",
        ],
    );
    let before = hosts.host.snapshot();
    for url in [
        "http://127.0.0.1:8081/10k.bin".to_owned(),
        "http://localhost:8081/10k.bin".to_owned(),
        "http://127.0.0.1:8082/10k.bin".to_owned(),
        format!("http://{LAN}:8082/10k.bin"),
        "http://[::1]:8084/10k.bin".to_owned(),
        format!("http://[{LAN_V6}]:8084/10k.bin"),
        format!("http://{LAN}:8085/10k.bin"),
        "http://127.0.0.2:8085/10k.bin".to_owned(),
    ] {
        let document = assert_complete_run(&bench(&hosts, &workspace, &url, &[]));
        let target = document["run"]["host"]["settings"]["target"].as_str().unwrap();
        assert!(target.contains("of this host") && target.contains("device yamabiko0"), "{url}: {target}");
        assert_ne!(check(&document, "rtt_as_configured")["state"], "not_applicable");
        assert!(document.get("server").is_none(), "a server outside of the testbed has no resource usage");
    }
    // The results equal those with a server of the testbed.
    let own = format!("exec {} serve {} --listen [::]:8080", yamabiko().display(), str_of(&workspace.www()));
    for family in ["-4", "-6"] {
        assert_complete_run(&bench(&hosts, &workspace, "http://server:8080/10k.bin", &["--server", &own, family]));
    }

    // An unreachable target is refused before anything is sent.
    let refused = |url: &str, more: &[&str], words: &[&str]| bench(&hosts, &workspace, url, more).refused(1, words);
    refused("http://[::1]:8083/", &[], &["listens on ::1 only", "[::]", "127.0.0.1"]);
    refused("http://127.0.0.1:8083/", &[], &["listens on ::1 only", "[::]", "127.0.0.1"]);
    refused(&format!("http://{LAN}:8081/"), &[], &["listens on 127.0.0.1:8081 only", "0.0.0.0"]);
    refused("http://[::1]:8082/", &[], &["listens on 0.0.0.0:8082 only", "[::]"]);
    refused("http://127.0.0.1:9/", &[], &["nothing listens on 127.0.0.1:9", "--server"]);
    refused("http://127.0.0.1:8081/", &["-6"], &["no IPv6 address (-6)"]);
    refused("http://198.51.100.1/", &[], &["198.51.100.1", "no route"]);
    refused("http://198.18.0.1/", &[], &["testbed's own", "--server"]);
    refused("http://[fe80::1]/", &[], &["fe80::1", "own link"]);
    refused("http://0.0.0.0:8082/", &[], &["0.0.0.0", "unspecified address"]);
    hosts.host.assert_unchanged(&before);
    let log = fs::read_to_string(workspace.file("nginx.log")).unwrap();
    assert!(
        log.lines().all(|line| !line.starts_with("::1:") && !line.starts_with("[::1]:")),
        "nothing was sent to ::1"
    );
}

#[test]
fn a_path_leads_to_another_host() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.remote.nginx(&workspace, "nginx", &["listen [::]:8080 ipv6only=off;"]);
    let before = (hosts.host.snapshot(), hosts.remote.snapshot());
    for address in [REMOTE[0].to_owned(), format!("[{REMOTE_V6}]")] {
        let document = assert_complete_run(&bench(&hosts, &workspace, &format!("http://{address}:8080/10k.bin"), &[]));
        let target = document["run"]["host"]["settings"]["target"].as_str().unwrap();
        assert!(target.contains("another host, masqueraded"), "{target}");
        assert_eq!(check(&document, "rtt_as_configured")["state"], "not_applicable");
        // Large bodies: segments deferred by offload arrive completely and correctly.
        let bulk = ["bench", &format!("http://{address}:8080/100k.bin"), "--rtt", "5ms", "-c", "8", "-n", "400"];
        let bulk = hosts.host.yamabiko(&workspace, &[&bulk[..], &["--json", "--no-save"]].concat());
        bulk.assert_measured();
        assert_eq!(count(&bulk.json(), "load.completed"), 400);
        assert_checks_passed(&bulk.json(), &["responses_whole", "no_unintended_drops", "conservation"]);
    }
    for host in [&hosts.host, &hosts.remote] {
        let snmp = host.output_of("cat", &["/proc/net/snmp"]);
        let mut tcp = snmp.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split(' '));
        let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
        let errors: BTreeMap<&str, &str> = names.zip(values).collect();
        assert_eq!(errors["InCsumErrors"], "0");
    }
    bench(&hosts, &workspace, &format!("http://{}:8080/", REMOTE[0]), &["--server-tcp", "initcwnd=2"])
        .refused(1, &["--server-tcp", "another host"]);
    hosts.host.assert_unchanged(&before.0);
    hosts.remote.assert_unchanged(&before.1);
}

#[test]
fn addresses_of_one_name_are_used_in_turn() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.remote.nginx(&workspace, "nginx", &["listen 0.0.0.0:8080;"]);
    let common = "--rtt 5ms -c 4 -n 60 --close --json --no-save";
    let common: Vec<&str> = common.split(' ').collect();
    let named = ["bench", "http://shop.example:8080/10k.bin", "--to", REMOTE[0], "--to", REMOTE[1]];
    let output = hosts.host.yamabiko(&workspace, &[&named[..], &common].concat());
    assert_eq!(count(&output.json(), "load.completed"), 60, "{output}");
    let shares = |log: &str| {
        let mut shares: BTreeMap<String, u32> = BTreeMap::new();
        for line in fs::read_to_string(workspace.file(log)).unwrap().lines() {
            *shares.entry(line.to_owned()).or_default() += 1;
        }
        shares
    };
    let equal = |first: &str, second: &str, host: &str| {
        BTreeMap::from([first, second].map(|address| (format!("{address}:8080 {host}"), 30)))
    };
    assert_eq!(shares("nginx.log"), equal(REMOTE[0], REMOTE[1], "shop.example"));

    // In the testbed the addresses are used in turn, too.
    let log = workspace.file("testbed.log");
    let prefix = workspace.path().display();
    let text = format!(
        "daemon off;\nmaster_process off;\npid var/testbed.pid;\nerror_log stderr;\nevents {{ worker_connections 500; }}\n\
         http {{ log_format lab '$server_addr:$server_port $host'; access_log {} lab;\nclient_body_temp_path var/b;\n\
         proxy_temp_path var/p;\nfastcgi_temp_path var/f;\nuwsgi_temp_path var/u;\nscgi_temp_path var/s;\n\
         server {{ listen 8080; root {}; }} }}\n",
        log.display(),
        workspace.www().display()
    );
    fs::write(workspace.path().join("testbed.conf"), text).unwrap();
    let server = format!("exec nginx -p {prefix} -c {prefix}/testbed.conf");
    let in_testbed =
        ["bench", "http://shop.example:8080/10k.bin", "--server", &server, "--server-name", "shop.example"];
    let output = workspace.run(&[&in_testbed[..], &["--server-addresses", "2"], &common].concat());
    assert_eq!(count(&output.json(), "load.completed"), 60, "{output}");
    assert_eq!(shares("testbed.log"), equal("198.18.0.1", "198.18.0.2", "shop.example"));
    let wrong = ["bench", "http://other.example:8080/", "--server", &server, "-d", "1s"];
    workspace.run(&wrong).refused(1, &["other.example", "--server-name"]);
}

#[test]
fn programs_reach_the_target_under_its_name() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let (key, certificate) = (workspace.path().join("key.pem"), workspace.path().join("certificate.pem"));
    let openssl = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=shop.example"])
        .args(["-addext", "subjectAltName=DNS:shop.example", "-keyout", str_of(&key), "-out", str_of(&certificate)])
        .output()
        .unwrap();
    assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));
    let secure = |listen: &str| {
        format!(
            "listen {listen}:8443 ssl; ssl_certificate {}; ssl_certificate_key {};",
            certificate.display(),
            key.display()
        )
    };
    let _here = hosts.host.nginx(&workspace, "here", &[&secure("127.0.0.1")]);
    let _there = hosts.remote.nginx(&workspace, "there", &[&secure("0.0.0.0")]);
    let before = hosts.host.snapshot();
    let url = "https://shop.example:8443/10k.bin";
    for address in ["127.0.0.1", REMOTE[0]] {
        let to = format!("shop.example:8443={address}");
        let curl = ["curl", "-s", "-m", "20", "-o", "/dev/null", "--cacert", str_of(&certificate)];
        let arguments = ["-w", "%{http_code} %{ssl_verify_result} %{time_connect} %{local_ip}", url];
        let net = hosts
            .host
            .yamabiko(&workspace, &[&["net", "--rtt", "40ms", "--to", &to, "--"], &curl[..], &arguments].concat());
        assert_eq!(net.code, Some(0), "{net}");
        let words: Vec<&str> = net.stdout.split(' ').collect();
        assert_eq!((words[0], words[1], words[3]), ("200", "0", "198.19.0.1"), "{net}");
        assert!(words[2].parse::<f64>().unwrap() >= 0.040, "{net}");
    }
    // A server of the testbed under the name of the service.
    let configuration = workspace.path().join("here/nginx.conf");
    let text = fs::read_to_string(&configuration).unwrap().replace("127.0.0.1:8443", "8443");
    fs::write(workspace.path().join("testbed.conf"), text.replace("here.log", "testbed.log")).unwrap();
    fs::create_dir_all(workspace.path().join("testbed/var")).unwrap();
    let server = format!("exec nginx -p {0}/testbed -c {0}/testbed.conf", workspace.path().display());
    let in_testbed =
        ["net", "--server", &server, "--server-name", "shop.example", "--", "curl", "-s", "-o", "/dev/null"];
    let curl =
        workspace.run(&[&in_testbed[..], &["--cacert", str_of(&certificate), "-w", "%{http_code}", url]].concat());
    assert_eq!((curl.code, curl.stdout.as_str()), (Some(0), "200"), "{curl}");

    // No other address can be reached, and an unknown name is refused.
    let other =
        ["net", "--to", "127.0.0.1:8443", "--", "curl", "-s", "-m", "2", &format!("http://{}:8443/", REMOTE[0])];
    let other = hosts.host.yamabiko(&workspace, &other);
    assert_eq!(other.code, Some(7), "the connect fails: {other}");
    hosts
        .host
        .yamabiko(&workspace, &["net", "--to", "127.0.0.1:9", "--", "true"])
        .refused(1, &["nothing listens on 127.0.0.1:9"]);
    hosts
        .host
        .yamabiko(&workspace, &["net", "--to", "no-such.invalid", "--", "true"])
        .refused(1, &["`no-such.invalid` has no address"]);
    hosts.host.assert_unchanged(&before);
}

#[test]
fn a_plan_repeats_a_run_against_a_service_of_this_host() {
    let workspace = Workspace::new();
    let hosts = Hosts::new(&workspace);
    let _nginx = hosts.host.nginx(&workspace, "nginx", &["listen [::]:8080 ipv6only=off;"]);
    let typed = "http://shop.example:8080/10k.bin --to 127.0.0.1 --to ::1 -4 -6 --rtt 10ms --server-tcp initcwnd=4";
    let typed: Vec<&str> = typed.split(' ').collect();
    let more = ["-c", "4", "-n", "40", "--close", "--no-save"];
    let printed =
        hosts.host.yamabiko(&workspace, &[&["bench"], &typed[..], &more, &["--print-plan"]].concat()).success();
    for line in ["family = \"both\"", "addresses = [", "initcwnd = 4", "at = \"server\""] {
        assert!(printed.stdout.contains(line), "{printed}");
    }
    let plan = workspace.path().join("plan.toml");
    fs::write(&plan, &printed.stdout).unwrap();
    let run = hosts.host.yamabiko(&workspace, &["run", str_of(&plan), "--json", "--no-save"]);
    run.assert_measured();
    let document = run.json();
    assert_eq!((count(&document, "load.completed"), count(&document, "watch.requests")), (40, 40), "{run}");
    let target = document["run"]["host"]["settings"]["target"].as_str().unwrap();
    assert!(target.contains("127.0.0.1 of this host, as 198.18.0.1"), "{target}");
    assert!(target.contains("::1 of this host, as 2001:2:0:1::1"), "{target}");
    let log = fs::read_to_string(workspace.file("nginx.log")).unwrap();
    let on = |address: &str| log.lines().filter(|line| line.contains(address)).count();
    assert_eq!((on("127.0.0.1:8080 "), on("2001:2:0:1::1")), (20, 20), "{log}");
}
