//! An origin behind a link of its own: the origin has another client address of the path, and the cache connects to it.
//! As root and as an unprivileged user.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::document::{assert_checks_passed, count, number};
use crate::support::user::{Tun, User};
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};

/// A proxy that stores nothing, with an RTT of 20 ms to its virtual users and of 80 ms to the origin, with 2 % packet
/// loss.
fn plan(workspace: &Workspace, program: &Path) -> String {
    let (program, www) = (program.display(), workspace.www());
    let text = format!(
        r#"
        name = "far-origin"
        seed = 7
        [load]
        url = "http://server:8080/"
        rate = "20/s"
        clients = 10
        requests = 40
        close = true
        [load.workload]
        name = "polymix-1"
        set = {{ think = "none" }}
        [path]
        rtt = "20ms"
        [server]
        command = "exec {program} serve {www} --dynamic /=http://198.19.0.11:8400 --dynamic-connect-time 10s --listen 0.0.0.0:8080"
        [origin]
        command = "exec {program} serve --workload polymix-1 --seed 7 --think none --listen 198.19.0.11:8400"
        [origin.path]
        rtt = "80ms"
        loss = 0.02
        "#,
        www = www.display()
    );
    let file = workspace.file("plan.toml");
    fs::write(&file, text).unwrap();
    str_of(&file).to_owned()
}

fn assert_origin_rtt(output: &Output) -> Value {
    output.assert_measured();
    let document = output.json();
    assert_eq!(
        (count(&document, "load.completed"), document["load"]["failed"].clone()),
        (40, serde_json::json!({})),
        "{output}"
    );
    assert_checks_passed(&document, &["conservation", "no_unintended_drops", "responses_whole"]);
    // A connect and a request to the proxy, and at least one request from the proxy to the origin.
    assert!(number(&document, "load.response_time_ns.min") >= 120e6, "{}", document["load"]["response_time_ns"]);
    assert!(number(&document, "load.connect_ns.min") < 80e6, "virtual users are nearer than the origin: {output}");
    assert!(count(&document, "path.drops.loss") > 0, "only the origin's link loses packets: {}", document["path"]);
    // No virtual user has the origin's address, and its flows are separate.
    assert_eq!(count(&document, "path.clients"), 10);
    assert_eq!(number(&document, "path.configured_rtt_ns.max"), 20e6);
    if document.get("watch").is_some() {
        assert_eq!(count(&document, "watch.connections.count"), 40, "{}", document["watch"]);
    }
    document
}

#[test]
fn the_origin_is_behind_a_path_from_the_cache() {
    let workspace = Workspace::new();
    assert_origin_rtt(&workspace.run(&["run", &plan(&workspace, &yamabiko()), "--json"]));
    // An origin that does not start is reported with its last output, and nothing is measured.
    let (at, other) = ("serve --workload polymix-1", "serve --workload no-such-workload");
    let file = plan(&workspace, &yamabiko());
    fs::write(&file, fs::read_to_string(&file).unwrap().replace(at, other)).unwrap();
    workspace
        .run(&["run", &file, "--json"])
        .refused(1, &["the origin ended", "no-such-workload", "polymix-1 to polymix-4"]);
    assert_eq!(
        fs::read_dir(workspace.runs()).unwrap().filter_map(Result::ok).filter(|it| it.path().is_dir()).count(),
        1
    );
}

#[test]
fn the_origin_is_behind_a_path_for_an_unprivileged_user() {
    let user = User::new();
    let file = plan(&user.workspace, &user.program);
    assert_origin_rtt(&user.run(Tun::ForAll, &["run", &file, "--json"]));
}
