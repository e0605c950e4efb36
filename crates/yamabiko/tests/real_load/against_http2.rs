//! HTTP/2 in clear and after an upgrade, and HTTP/1 and HTTP/2 inside of TLS with a key log: `watch` compared with tshark
//! on the same captures of nginx, Apache, curl and h2load across a path with loss.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::against::capture;
use crate::support::servers::{PORT, apache};
use crate::support::workspace::{Workspace, str_of};
use schema::{Framing, WireRequest};

#[test]
fn http2_requests_in_clear_agree_with_tshark_under_loss() {
    let workspace = Workspace::new();
    let clients = "u=http://server:8080\n\
         for i in 1 2 3; do curl -s --http2-prior-knowledge -o /dev/null $u/10k.bin; done\n\
         curl -s --http2-prior-knowledge -o /dev/null $u/none\n\
         curl -s --http2-prior-knowledge -I -o /dev/null $u/100k.bin\n\
         curl -s --http2-prior-knowledge -o /dev/null --data-binary @www/100k.bin $u/put\n\
         h2load -n 300 -c 3 -m 10 $u/10k.bin >/dev/null\n";
    let server = nginx(&workspace, "http2", "");
    let file = capture(&workspace, &server, "--rtt 20ms --loss 1%", 0, clients);
    let requests = watched(&workspace, &file, &[]);
    let preference = format!("tcp.port=={PORT},http2");
    let tshark = fields(&workspace, &file, &["-d", &preference], &["http2.headers.status", "http2.headers.method"]);
    assert_eq!(statuses(&requests), tshark[0]);
    assert_eq!(methods(&requests), tshark[1]);
    assert_eq!((tshark[0]["200"], tshark[0]["404"], tshark[0]["204"]), (304, 1, 1));
    assert!(requests.iter().all(|request| request.http_version == 2 && request.complete));
    assert!(requests.iter().all(|request| request.framing == Framing::Exact));
    // A body of 10 KB, its frame headers, and the head.
    let of_h2load = |request: &&WireRequest| request.path.as_deref() == Some(b"/10k.bin");
    assert!(requests.iter().filter(of_h2load).all(|request| (10_240..11_000).contains(&request.response_bytes)));
}

#[test]
fn upgrade_of_apache_and_curl_to_http2_agrees_with_tshark() {
    let workspace = Workspace::new();
    let server = apache(&workspace);
    let configuration = workspace.path().join("apache.conf");
    let text = fs::read_to_string(&configuration).unwrap();
    let http2 = "LoadModule http2_module /usr/lib/apache2/modules/mod_http2.so\nProtocols h2c http/1.1\n";
    fs::write(&configuration, text + http2).unwrap();
    let clients = "for i in 1 2 3; do\n\
             curl -s --http2 -o /dev/null -o /dev/null http://server:8080/10k.bin http://server:8080/none\n\
         done\n";
    let file = capture(&workspace, &server, "--rtt 10ms", 0, clients);
    let requests = watched(&workspace, &file, &[]);
    let port = format!("tcp.port=={PORT},http");
    let tshark = fields(&workspace, &file, &["-d", &port], &["http2.headers.status"]);
    assert_eq!(statuses(&requests), tshark[0]);
    let upgraded: Vec<_> = requests.iter().filter(|request| request.stream == Some(1)).collect();
    assert_eq!(upgraded.len(), 3);
    assert!(upgraded.iter().all(|request| request.status == Some(200) && request.complete), "{upgraded:#?}");
    // Apache sends GOAWAY with the first response of an upgraded connection, and may leave the second unanswered.
    let second: Vec<_> = requests.iter().filter(|request| request.stream == Some(3)).collect();
    assert!(second.iter().all(|request| request.complete == request.status.is_some()), "{second:#?}");
}

#[test]
fn requests_inside_of_tls_agree_with_tshark_and_its_key_log() {
    let workspace = Workspace::new();
    let here = workspace.path().display();
    let openssl = format!(
        "req -x509 -newkey rsa:2048 -nodes -keyout {here}/key.pem -out {here}/certificate.pem -days 2 -subj /CN=server"
    );
    tool(&workspace, "openssl", &openssl.split(' ').collect::<Vec<_>>());
    let keys = workspace.file("keys.log");
    let clients = format!(
        "u=https://server:8080\nexport SSLKEYLOGFILE={}\n\
         for version in 1.2 1.3; do\n\
             for http in --http1.1 --http2; do\n\
                 curl -sk --tls-max $version $http -o /dev/null -o /dev/null -o /dev/null $u/10k.bin $u/100k.bin $u/none\n\
             done\n\
         done\n\
         for suite in TLS_AES_128_GCM_SHA256 TLS_CHACHA20_POLY1305_SHA256; do\n\
             curl -sk --tlsv1.3 --tls13-ciphers $suite -o /dev/null $u/10k.bin\n\
         done\n\
         for suite in ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-CHACHA20-POLY1305; do\n\
             curl -sk --tls-max 1.2 --ciphers $suite -o /dev/null $u/10k.bin\n\
         done\n",
        keys.display()
    );
    let tls = format!(
        "ssl_certificate {here}/certificate.pem; ssl_certificate_key {here}/key.pem; \
         ssl_protocols TLSv1.2 TLSv1.3;"
    );
    let server = nginx(&workspace, "ssl http2", &tls);
    let file = capture(&workspace, &server, "--rtt 10ms --loss 1%", 0, &clients);
    let requests = watched(&workspace, &file, &["--keylog", str_of(&keys)]);
    let log = format!("tls.keylog_file:{}", keys.display());
    let names = ["http2.headers.status", "http2.headers.method", "http.response.code", "http.request.method"];
    let port = format!("tcp.port=={PORT},tls");
    let tshark = fields(&workspace, &file, &["-d", &port, "-o", &log], &names);
    let of =
        |version: u8| requests.iter().filter(|request| request.http_version == version).cloned().collect::<Vec<_>>();
    assert_eq!((statuses(&of(2)), methods(&of(2))), (tshark[0].clone(), tshark[1].clone()));
    assert_eq!((statuses(&of(1)), methods(&of(1))), (tshark[2].clone(), tshark[3].clone()));
    assert_eq!(requests.len(), 4 * 3 + 4);
    assert!(requests.iter().all(|request| request.complete && request.framing == Framing::Exact), "{requests:#?}");
    // Without the key log there is nothing to read, and with that of others it is counted.
    assert!(watched(&workspace, &file, &[]).is_empty());
    let other = format!("CLIENT_RANDOM {} {}\n", "00".repeat(32), "11".repeat(48));
    fs::write(&keys, other).unwrap();
    let document = workspace.run(&["watch", "-r", str_of(&file), "--keylog", str_of(&keys), "--json"]).success().json();
    assert_eq!(document["watch"]["capture"]["undecrypted_tls_connections"].as_u64(), Some(8));
    fs::write(&keys, "CLIENT_RANDOM 00 11\n").unwrap();
    workspace
        .run(&["watch", "-r", str_of(&file), "--keylog", str_of(&keys)])
        .refused(1, &["key log", "line 1", "64 hexadecimal digits"]);
}

/// nginx that accepts request bodies, on a port with these options.
fn nginx(workspace: &Workspace, listen: &str, tls: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path var/{kind};\n"))
        .concat();
    let text = format!(
        "worker_processes 1;\npid var/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 1000; }}\n\
         http {{\n    access_log off;\n{temporary}    server {{\n        listen {PORT} {listen};\n        {tls}\n        \
         root {};\n        location /put {{ return 204; }}\n    }}\n}}\n",
        workspace.www().display()
    );
    let configuration = workspace.path().join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    format!("exec nginx -p {} -c {} -g 'daemon off;'", workspace.path().display(), configuration.display())
}

/// The requests that `watch` finds.
pub fn watched(workspace: &Workspace, file: &Path, options: &[&str]) -> Vec<WireRequest> {
    let document = workspace.run(&[&["watch", "-r", str_of(file), "--json"], options].concat()).success().json();
    let folder = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    store::read_wire_requests(&folder).unwrap().map(Result::unwrap).collect()
}

fn statuses(requests: &[WireRequest]) -> BTreeMap<String, u64> {
    counted(requests.iter().filter_map(|request| request.status).map(|status| status.to_string()))
}

fn methods(requests: &[WireRequest]) -> BTreeMap<String, u64> {
    let method =
        |request: &WireRequest| String::from_utf8_lossy(request.method.as_deref().unwrap_or(b"?")).into_owned();
    counted(requests.iter().map(method))
}

pub fn counted(names: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

/// How often tshark finds each value of each field.
pub fn fields(workspace: &Workspace, file: &Path, options: &[&str], names: &[&str]) -> Vec<BTreeMap<String, u64>> {
    let of = |name: &&str| {
        // By default tshark leaves out what arrives behind a lost segment.
        let read = ["-n", "-r", str_of(file), "-o", "tcp.reassemble_out_of_order:TRUE"];
        let arguments = [&read, options, &["-Y", name, "-T", "fields", "-e", name]].concat();
        let text = tool(workspace, "tshark", &arguments);
        counted(text.split(['\n', ',']).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned))
    };
    names.iter().map(of).collect()
}

/// A tool's stdout; it must succeed.
fn tool(workspace: &Workspace, name: &str, arguments: &[&str]) -> String {
    let mut process = Command::new(name);
    process.args(arguments);
    workspace.start_command(process).finish().success().stdout
}
