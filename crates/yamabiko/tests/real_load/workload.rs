//! Workloads through a path, against nginx: a model's objects with their lengths, and several names of one server.

use std::process::Stdio;
use std::time::Instant;

use crate::support::document::{check, count};
use crate::support::servers::nginx;
use crate::support::workspace::{TEST_TIMEOUT, Workspace, str_of};

/// nginx serves files that `serve` has generated: every length equals that of the model.
#[test]
fn nginx_serves_content_made_by_serve_make_content() {
    let workspace = Workspace::new();
    let (www, content) = (workspace.www(), "specweb99:72,seed=9");
    let mut command = workspace.command(&["serve", str_of(&www), "--make-content", content, "--listen", "127.0.0.1:0"]);
    command.stdin(Stdio::null());
    let own = workspace.start_command(command);
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !own.stderr().contains("http://") {
        assert!(Instant::now() < deadline, "{}", own.stderr());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    drop(own);
    let server = nginx(&workspace);
    let document = workspace.run_json(&[
        "bench",
        "http://server:8080/",
        "--content",
        content,
        "--server",
        &server,
        "--server-name",
        "files",
        "--rtt",
        "2ms",
        "-n",
        "600",
        "-c",
        "8",
        "--json",
    ]);
    assert_eq!((count(&document, "load.completed"), count(&document, "load.status.200")), (600, 600), "{document}");
    assert_eq!(check(&document, "conservation")["state"], "ok");
    assert!(count(&document, "load.bytes_received") > 600 * 102);
}

/// With a path all host names of a workload resolve to the server under test, at one port.
#[test]
fn with_a_path_all_hosts_of_a_workload_are_the_server_under_test() {
    let workspace = Workspace::new();
    let server = nginx(&workspace);
    let bench = |urls: &[&str], more: &[&str]| {
        let all = [
            &["bench"],
            urls,
            &["--server", &server, "--server-name", "static", "--rtt", "1ms", "-n", "40", "-c", "2"],
            more,
        ];
        workspace.run(&all.concat())
    };
    let both = bench(&["http://server:8080/10k.bin", "http://static:8080/10k.bin"], &["--json"]);
    both.assert_measured();
    let document = both.json();
    let urls = document["load"]["by_url"].as_array().unwrap();
    assert!(urls.iter().all(|url| url["completed"] == 20), "{urls:?}");
    assert_eq!(count(&document, "load.status.200"), 40);
    bench(&["http://server:8080/", "http://elsewhere:8080/"], &[]).refused(1, &["`elsewhere`", "`server`"]);
    bench(&["http://server:8080/", "http://server:8081/"], &[]).refused(1, &["different ports"]);
}
