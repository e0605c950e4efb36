//! `watch` compared with tcptrace and tshark on the same captures: real servers and clients, loss, truncated packets,
//! reused ports.
//!
//! All compared figures must be equal. Where the programs count differently, a rule converts one figure into the other
//! (docs/notes/watch-against-others.md shows the packets).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::reference_tools::{self, BareRetransmission, TcptraceConnection};
use crate::support::servers::{PORT, apache};
use crate::support::workspace::{Workspace, str_of};
use schema::{ConnectionRecord, Sent};
use serde_json::Value;

/// curl in many ways: persistent connections, HEAD, chunked, closed by the server, HTTP/1.0, a body with 100-continue,
/// one port three times, refused; and four requests in one packet.
const CURL_CASES: &str = r#"
u=http://server:8080
curl -s -o /dev/null -o /dev/null -o /dev/null $u/10k.bin $u/100k.bin $u/none
curl -s -I -o /dev/null $u/10k.bin
curl -s --compressed -o /dev/null $u/10k.bin
curl -s -H 'Connection: close' -o /dev/null $u/10k.bin
curl -s --http1.0 -o /dev/null $u/10k.bin
curl -s -o /dev/null --data-binary @www/100k.bin -H 'Expect: 100-continue' $u/put
for i in 1 2 3; do
    # To the end of the stream, not of the body: so the server closes first, and no port waits at this end. A port
    # that the one before still holds cannot be bound, and nothing is sent.
    for try in {1..100}; do
        curl -s --ignore-content-length -H 'Connection: close' --local-port 41000 -o /dev/null $u/10k.bin && break
        sleep 0.05
    done
done
curl -s -o /dev/null http://server:9999/
exec 3<>/dev/tcp/server/8080
get() { printf 'GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n' "$1" "$2"; }
{ get /10k.bin; get /100k.bin; get /none; get /10k.bin $'Connection:close\r\n'; } >pipelined
cat pipelined >&3
cat <&3 >/dev/null
exec 3>&-
"#;

#[test]
fn packet_figures_of_nginx_and_curl_agree_with_tcptrace_and_tshark() {
    let workspace = Workspace::new();
    let file = capture(&workspace, &nginx(&workspace), "--rtt 10ms", 0, CURL_CASES);
    let seen = compare(&workspace, &file);
    let want = [("200", 12), ("204", 1), ("404", 2)].map(|(status, count)| (status.to_owned(), count));
    assert_eq!(seen.statuses, BTreeMap::from(want));
    let connections = seen.connections.iter().filter(|record| record.client.port() == 41000).count();
    assert_eq!(connections, 3, "one connection for each use of the port");
    assert_eq!(seen.incomplete + seen.by_direction, 0);
}

#[test]
fn packet_figures_of_apache_and_httperf_agree_under_loss() {
    let workspace = Workspace::new();
    let clients = "httperf --hog --server server --port 8080 --uri /10k.bin --num-conns 60 --rate 60 --num-calls 3\n\
                   curl -s -o /dev/null -o /dev/null http://server:8080/100k.bin http://server:8080/none\n";
    let file = capture(&workspace, &apache(&workspace), "--rtt 20ms --loss 2%", 0, clients);
    let seen = compare(&workspace, &file);
    assert_eq!((seen.statuses["200"], seen.statuses["404"]), (181, 1));
    let retransmissions: u64 = seen.connections.iter().map(|record| record.down.retransmitted_packets).sum();
    assert!(retransmissions > 0, "a loss of 2 % causes retransmissions");
}

/// Truncated packets: tshark and watch both get 96 bytes.
#[test]
fn packet_figures_of_nginx_and_wrk_agree_with_short_packets() {
    let workspace = Workspace::new();
    let file = capture(
        &workspace,
        &nginx(&workspace),
        "--rtt 5ms --loss 1%",
        96,
        "wrk -t1 -c8 -d1s http://server:8080/10k.bin >/dev/null\n",
    );
    let seen = compare(&workspace, &file);
    assert!(seen.statuses["200"] > 100, "{:?}", seen.statuses);
}

/// nginx that compresses on request (responses without Content-Length), and accepts request bodies.
pub fn nginx(workspace: &Workspace) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path var/{kind};\n"))
        .concat();
    let text = format!(
        "worker_processes 1;\npid var/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 1000; }}\n\
         http {{\n    access_log off;\n    gzip on;\n    gzip_types application/octet-stream;\n    gzip_min_length 1;\n\
         {temporary}    default_type application/octet-stream;\n    server {{\n        listen {PORT};\n        \
         root {};\n        location /put {{ return 204; }}\n    }}\n}}\n",
        workspace.www().display()
    );
    let configuration = workspace.path().join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    format!("exec nginx -p {} -c {} -g 'daemon off;'", workspace.path().display(), configuration.display())
}

/// Runs `clients` (lines for bash) at the far end of a path; tcpdump captures `snap` bytes (0: all) of every packet at
/// the server's end.
pub fn capture(workspace: &Workspace, server: &str, path: &str, snap: u32, clients: &str) -> PathBuf {
    let file = workspace.file("capture.pcap");
    let log = workspace.file("tcpdump.log");
    // Each packet is written immediately, as the device disappears with the server; and no client starts before tcpdump
    // captures. In that mode every slot of the ring has the size of the largest packet, and the ring is large enough
    // for all packets: on a busy machine tcpdump may not run before the end.
    let snap = if snap == 0 { 65_535 } else { snap };
    let server = format!(
        "tcpdump -U --immediate-mode -B 262144 -i s0 -s {snap} -Z root -w {} 2>{log} & \
         until grep -q listening {log}; do sleep 0.02; done; {server}",
        file.display(),
        log = log.display()
    );
    let script = workspace.file("clients.sh");
    let wait = format!("until (exec 3<>/dev/tcp/server/{PORT}) 2>/dev/null; do sleep 0.05; done\n");
    fs::write(&script, format!("{wait}{clients}sleep 0.3\n")).unwrap();
    let mut arguments = vec!["net"];
    arguments.extend(path.split(' '));
    arguments.extend(["--server", &server, "--", "bash", str_of(&script)]);
    workspace.run(&arguments).success();
    let stderr = fs::read_to_string(log).unwrap();
    assert!(stderr.contains("\n0 packets dropped by kernel"), "the capture is complete: {stderr}");
    file
}

/// Results of `watch`.
struct Watched {
    connections: Vec<ConnectionRecord>,
    statuses: BTreeMap<String, u64>,
    incomplete: u64,
    by_direction: u64,
}

/// Compares `watch` with tcptrace and tshark.
fn compare(workspace: &Workspace, file: &Path) -> Watched {
    let output = workspace.run(&["watch", "-r", str_of(file), "--port", &PORT.to_string(), "--port", "9999", "--json"]);
    let document = output.success().json();
    let part = &document["watch"];
    let folder = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    let mut connections = store::read_connections(&folder).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let requests = store::read_wire_requests(&folder).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let mut traced = reference_tools::tcptrace(file);

    // Both programs order connections by their first packets, but may differ for a reused port.
    traced.sort_by_key(|traced| (traced.a, traced.b, traced.first_us));
    connections.sort_by_key(|record| (record.client, record.server, record.first_at));
    assert_eq!(connections.len(), traced.len(), "connections");
    let packets: u64 = connections.iter().map(|record| record.up.packets + record.down.packets).sum();
    assert_eq!(part["packets"].as_u64(), Some(packets));
    let repeats = reference_tools::bare_retransmissions(file);
    for (record, traced) in connections.iter().zip(&traced) {
        assert_eq!((record.client, record.server), (traced.a, traced.b), "client and server");
        let micros = [record.first_at, record.last_at].map(|at| at.as_nanos() / 1000);
        assert_eq!(micros, [traced.first_us, traced.last_us], "first and last packet of {}", record.client);
        one_direction(&record.up, traced, true, &repeats);
        one_direction(&record.down, traced, false, &repeats);
    }

    let tshark = reference_tools::tshark(file);
    let statuses = counts(&part["status"]);
    assert_eq!(statuses, tshark.statuses);
    let mut methods = BTreeMap::new();
    for request in &requests {
        let method = String::from_utf8_lossy(request.method.as_deref().unwrap_or(b"?")).into_owned();
        *methods.entry(method).or_insert(0) += 1;
    }
    assert_eq!(methods, tshark.methods);
    let count = |name: &str| part[name].as_u64().unwrap_or_else(|| panic!("watch.{name}"));
    Watched { connections, statuses, incomplete: count("incomplete"), by_direction: count("by_direction") }
}

fn one_direction(sent: &Sent, traced: &TcptraceConnection, from_a: bool, repeats: &[BareRetransmission]) {
    let (from, to) = if from_a { (traced.a, traced.b) } else { (traced.b, traced.a) };
    let during = traced.first_us..=traced.last_us;
    let is_own =
        |repeat: &&BareRetransmission| (repeat.from, repeat.to) == (from, to) && during.contains(&repeat.at_us);
    let bare = repeats.iter().filter(is_own).count() as u64;
    let tcptrace_count = |name: &str| traced.count(name, from_a);
    let direction = format!("{} {}", traced.a, if from_a { "up" } else { "down" });
    assert_eq!(sent.packets, tcptrace_count("total_packets"), "packets, {direction}");
    assert_eq!(sent.data_packets, tcptrace_count("actual_data_pkts"), "packets with payload, {direction}");
    assert_eq!(sent.payload_bytes, tcptrace_count("actual_data_bytes"), "bytes of payload, {direction}");
    // tcptrace counts a retransmitted SYN or FIN as one byte of data, and one without payload as a data packet.
    let counted_flags = u64::from(sent.syns.saturating_sub(1) + sent.fins.saturating_sub(1));
    assert_eq!(
        sent.retransmitted_bytes + counted_flags,
        tcptrace_count("rexmt_data_bytes"),
        "retransmitted bytes, {direction}"
    );
    assert_eq!(
        sent.retransmitted_packets + bare,
        tcptrace_count("rexmt_data_pkts"),
        "retransmitted packets, {direction}"
    );
    assert_eq!(sent.out_of_order_packets, tcptrace_count("outoforder_pkts"), "packets out of order, {direction}");
    assert_eq!(sent.unique_bytes, tcptrace_count("unique_bytes_sent"), "unique bytes, {direction}");
    assert_eq!((u64::from(sent.syns), u64::from(sent.fins)), traced.syns_and_fins(from_a), "SYN and FIN, {direction}");
    assert_eq!(sent.rst_at.is_some(), tcptrace_count("resets_sent") > 0, "RST, {direction}");
}

/// An object of counts.
fn counts(object: &Value) -> BTreeMap<String, u64> {
    let object = object.as_object().expect("an object of counts");
    object.iter().map(|(name, count)| (name.clone(), count.as_u64().expect("a count"))).collect()
}
