//! HTTP/3 of `serve`: for the load of this program, for aioquic and for Chromium.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::document::count;
use crate::support::readers::{python, script};
use crate::support::serving::Serving;
use crate::support::tls::{Authority, Certificate};
use crate::support::workspace::{Workspace, str_of, yamabiko};

/// Year in which certificates expire: far in the future.
const EXPIRY_YEAR: i32 = 4000;

fn certificate(workspace: &Workspace) -> (Authority, Certificate) {
    let authority = Authority::new(workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    (authority, certificate)
}

/// The standard output of a shell script that succeeds.
fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn load_of_this_program_is_served_at_a_distance() {
    let workspace = Workspace::new();
    let (authority, certificate) = certificate(&workspace);
    let (cert, key, www) = (str_of(&certificate.cert), str_of(&certificate.key), workspace.www());
    fs::write(www.join("large.bin"), vec![b'x'; 3_000_000]).unwrap();
    let log = workspace.path().join("access.log");
    let bench = |path: &str, threads: usize, options: &str| -> Value {
        let program = yamabiko();
        let server = format!(
            "exec {} serve {} --listen 0.0.0.0:8443 --tls {cert} {key} --http3 --threads {threads} --log {}",
            program.display(),
            str_of(&www),
            log.display()
        );
        let (url, ca) = (format!("https://server:8443{path}"), authority.file());
        let arguments = ["bench", &url, "--server", &server, "--json", "--cacert", str_of(&ca), "--http", "3"];
        let arguments: Vec<&str> = arguments.into_iter().chain(options.split_whitespace()).collect();
        let output = workspace.run(&arguments);
        serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
    };
    for (path, threads, options, requests, connections) in [
        ("/10k.bin", 1, "-c 4 --clients 4 --streams 8 -n 400 --rtt 4ms", 400, 4),
        ("/10k.bin", 2, "--close -c 4 --clients 4 -n 20 --rtt 4ms", 20, 20),
        ("/large.bin", 1, "-c 2 --clients 2 --streams 4 -n 8 --rtt 20ms --loss 1%", 8, 2),
    ] {
        let document = bench(path, threads, options);
        assert_eq!(count(&document, "load.completed"), requests, "{}", document["load"]);
        assert_eq!(count(&document, "load.connections_opened"), connections, "{}", document["load"]);
        let lines = fs::read_to_string(&log).unwrap();
        let whole = lines.lines().filter(|line| line.contains(&format!("GET {path} HTTP/3.0\" 200 "))).count();
        assert_eq!(whole as u64, requests, "{options}: {lines}");
        fs::remove_file(&log).unwrap();
    }
    // A session is resumed with early data: one round trip in place of two.
    let early = bench("/10k.bin", 1, "--close -c 1 --clients 1 -n 10 --rtt 40ms --early-data");
    assert_eq!(count(&early, "load.completed"), 10, "{}", early["load"]);
    assert!(count(&early, "load.quic.early_data_accepted") >= 4, "{}", early["load"]["quic"]);
}

#[test]
fn aioquic_gets_files_and_resumes_with_early_data() {
    let workspace = Workspace::concurrent();
    let (authority, certificate) = certificate(&workspace);
    let sizes = [0, 1000, 100_000, 3_000_000];
    for size in sizes {
        let content: Vec<u8> = (0..size as u32).map(|at| (at ^ at >> 9) as u8).collect();
        fs::write(workspace.www().join(format!("{size}.bin")), content).unwrap();
    }
    let serving =
        Serving::start(&workspace, &["--tls", str_of(&certificate.cert), str_of(&certificate.key), "--http3"]);
    let paths = sizes.map(|size| format!("/{size}.bin"));
    let (port, ca) = (serving.address.port().to_string(), authority.file());
    let mut arguments = vec!["127.0.0.1", &port, str_of(&ca)];
    arguments.extend(paths.iter().map(String::as_str));
    let output = python(&workspace, &script("http3_client.py"), &arguments, &[]);
    let connections: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(connections.len(), 2, "{output}");
    for (connection, early) in connections.iter().zip([false, true]) {
        assert_eq!(
            (&connection["early"], &connection["posted"]),
            (&Value::from(early), &Value::from("405")),
            "{output}"
        );
        for (size, response) in sizes.iter().zip(connection["responses"].as_array().unwrap()) {
            let file = workspace.www().join(format!("{size}.bin"));
            let digest = shell(&format!("sha256sum < {} | cut -d' ' -f1", str_of(&file)));
            assert_eq!(*response, serde_json::json!(["200", size, digest]), "{output}");
        }
    }
    // Clients of other versions are told.
    for version in ["--http1.1", "--http2"] {
        let url = format!("https://server:{port}/1000.bin");
        let head =
            shell(&format!("curl -sSI {version} --cacert {} --resolve server:{port}:127.0.0.1 {url}", str_of(&ca)));
        assert!(head.to_ascii_lowercase().contains(&format!("alt-svc: h3=\":{port}\"; ma=86400")), "{version}: {head}");
    }
    serving.running.signal(Signal::SIGTERM);
    serving.running.finish().success();
}

#[test]
fn chromium_loads_a_page_over_http_3() {
    let workspace = Workspace::concurrent();
    let (_, certificate) = certificate(&workspace);
    let www = workspace.www();
    for number in 0..20 {
        fs::write(www.join(format!("{number}.js")), format!("loaded += {number};//{}", "x".repeat(20_000))).unwrap();
    }
    let scripts: String = (0..20).map(|number| format!("<script src=\"{number}.js\"></script>")).collect();
    let page = format!(
        "<!doctype html><title>t</title><pre id=\"seen\"></pre><script>let loaded = 0</script>{scripts}<script>\
         addEventListener('load', () => {{ const all = [performance.getEntriesByType('navigation')[0],\
         ...performance.getEntriesByType('resource')]; document.getElementById('seen').textContent = loaded + ' ' +\
         all.map(one => one.nextHopProtocol).sort().join(','); }})</script>"
    );
    fs::write(www.join("page.html"), page).unwrap();
    let log = workspace.path().join("access.log");
    let tls = ["--tls", str_of(&certificate.cert), str_of(&certificate.key)];
    let serving = Serving::start(&workspace, &[&tls[..], &["--http3", "--log", str_of(&log)]].concat());
    let port = serving.address.port();
    // Chromium accepts QUIC with an authority of its own list only, or with this key.
    let key = shell(&format!(
        "openssl x509 -pubkey -noout -in {} | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64",
        str_of(&certificate.cert)
    ));
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]);
    command.args(["--disable-features=OptimizationHints,MediaRouter,Translate", "--no-proxy-server"]);
    command.arg(format!("--origin-to-force-quic-on=server:{port}"));
    command.arg("--host-resolver-rules=MAP server 127.0.0.1");
    command.arg(format!("--ignore-certificate-errors-spki-list={key}"));
    command.arg(format!("--user-data-dir={}", workspace.file("browser").display()));
    command.args(["--timeout=60000", "--dump-dom", &format!("https://server:{port}/page.html")]).stdin(Stdio::null());
    let output = workspace.start_command(command).finish().success();
    let seen = output.stdout.split_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let expected = format!("190 {}", vec!["h3"; 21].join(","));
    assert_eq!(seen.map(|(seen, _)| seen), Some(expected.as_str()), "{output}");
    serving.running.signal(Signal::SIGTERM);
    serving.running.finish().success();
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("HTTP/3.0\" 200 ")).count(), 21, "{lines}");
}
