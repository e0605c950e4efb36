//! `yamabiko tap manager` as a program: tokens, output, exit, and refused folders.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;

use crate::support::workspace::{Running, Workspace, str_of, wait_until};

fn start(workspace: &Workspace, data: &Path) -> Running {
    let mut running = workspace.start(&[
        "tap",
        "manager",
        "--listen",
        "127.0.0.1:0",
        "--host",
        "manager.example",
        "--data",
        str_of(data),
    ]);
    wait_until("the manager listens", || {
        assert!(!running.ended(), "the manager exited early: {}", running.stderr());
        running.stdout().lines().count() == 2
    });
    running
}

#[test]
fn tokens_are_managed_with_and_without_a_running_manager() {
    let workspace = Workspace::concurrent();
    let (data, file) = (workspace.file("manager"), workspace.file("token"));
    let token =
        |words: &[&str]| workspace.run(&[&["tap", "manager", "token"], words, &["--data", str_of(&data)]].concat());
    token(&["list"]).refused(1, &["has no manager index", "token add NAME"]);
    let text = token(&["add", "shop-7"]).success().stdout;
    assert!(text.starts_with("shop-7.") && text.trim().len() == "shop-7.".len() + 43, "{text:?}");
    token(&["add", "shop-7"]).refused(1, &["revoke it first"]);
    token(&["add", "Shop 7"]).refused(1, &["a name must be 1 to 63 of"]);

    let running = start(&workspace, &data);
    token(&["add", "boss", "--role", "operator", "--output", str_of(&file)]).success();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(&file).unwrap();
    token(&["add", "other", "--output", str_of(&file)]).refused(2, &["it must not be there yet"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    token(&["revoke", "shop-7"]).success();
    token(&["revoke", "shop-7"]).refused(1, &["there is no active token `shop-7`"]);
    let list = token(&["list"]).success().stdout;
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "a token whose file cannot be written is not created: {list}");
    assert!(lines[1].starts_with("boss ") && lines[1].ends_with(" active"), "{list}");
    assert!(lines[2].starts_with("shop-7 ") && lines[2].contains("revoked "), "{list}");
    for secret in [&text, &written] {
        assert!(!list.contains(secret.split_once('.').unwrap().1.trim()));
    }
    running.signal(Signal::SIGTERM);
    running.finish().success();
}

#[test]
fn the_manager_prints_its_address_and_refuses_a_foreign_folder() {
    let workspace = Workspace::concurrent();
    let data = workspace.file("manager");
    let running = start(&workspace, &data);
    let stdout = running.stdout();
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with("agents  https://127.0.0.1:") && lines[1].starts_with("page    http://127.0.0.1:"),
        "{stdout}"
    );
    assert!(running.stderr().contains("ca.pem, SHA-256 "), "{}", running.stderr());
    let words = ["tap", "manager", "--listen", "127.0.0.1:0", "--data", str_of(&data)];
    workspace.run(&words).refused(2, &["another manager uses"]);
    running.signal(Signal::SIGINT);
    running.finish().success();

    let page = |of: &Running| of.stdout().lines().nth(1).unwrap().rsplit('/').nth(1).unwrap().to_owned();
    let again = start(&workspace, &data);
    let secret = page(&again);
    assert_eq!(lines[1].rsplit('/').nth(1), Some(&*secret), "the page's secret stays the same");
    again.signal(Signal::SIGKILL);
    again.finish();
    let foreign_folder = workspace.file("foreign_folder");
    fs::create_dir(&foreign_folder).unwrap();
    fs::write(foreign_folder.join("index.sqlite"), "no index").unwrap();
    let arguments = ["tap", "manager", "--listen", "127.0.0.1:0", "--data", str_of(&foreign_folder)];
    workspace.run(&arguments).refused(1, &["is not the index of a tap manager"]);
    assert_eq!(fs::read_to_string(foreign_folder.join("index.sqlite")).unwrap(), "no index");

    workspace.run(&["tap", "manager", "--data", str_of(&data)]).refused(1, &["--listen"]);
    workspace.run(&[&words[..], &["--keep-for", "400"]].concat()).refused(1, &["400d or 36h"]);
    workspace.run(&[&words[..], &["--tls-key", "x"]].concat()).refused(1, &["--tls-certificate"]);
}
