//! Impossible runs: a failing server, or a machine without a requirement. One line on stderr, the documented exit
//! status, and an empty run store.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::support::servers::{PAGE, yamabiko_serve};
use crate::support::workspace::{Output, Workspace, yamabiko};

fn bench(workspace: &Workspace, server: &str, options: &str) -> Output {
    workspace.run(&crate::support::servers::bench(server, options))
}

fn assert_empty(workspace: &Workspace) {
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0, "a refused run is not stored");
}

#[test]
fn an_early_exit_of_the_server_is_reported_with_its_output() {
    let workspace = Workspace::concurrent_as_root();
    for options in ["-d 1s", "-d 1s --no-save", "-d 1s --json"] {
        let output = bench(&workspace, "echo to stdout; echo and to stderr >&2; exit 7", options);
        output.refused(1, &["exit status 7", "port 8080", "its output: to stdout | and to stderr"]);
        assert!(output.elapsed < Duration::from_secs(20), "{output}");
    }
    bench(&workspace, "no-such-server --port 8080", "-d 1s")
        .refused(1, &["exit status 127", "no-such-server", "not found"]);
    bench(&workspace, "kill -9 $$", "-d 1s").refused(1, &["killed by signal 9"]);
    // The last lines of the server's output are reported, without escape sequences.
    let with_much_output =
        bench(&workspace, "yes a-line | head -n 100000; printf '\\033[31mred\\a\\r\\n'; exit 1", "-d 1s");
    with_much_output.refused(1, &["exit status 1", "a-line | a-line", "?[31mred?"]);
    assert!(with_much_output.stderr.len() < 1000 && !with_much_output.stderr.contains('\u{1b}'), "{with_much_output}");
    assert_empty(&workspace);
}

#[test]
fn an_unreachable_server_is_reported() {
    let workspace = Workspace::new();
    let short = "-d 1s --server-start-timeout 300ms";
    bench(&workspace, "sleep 60", short).refused(1, &["port 8080", "within 300ms", "nowhere"]);
    let serve = |listen: &str| format!("exec {} serve www --listen {listen}", yamabiko().display());
    bench(&workspace, &serve("127.0.0.1:8080"), short)
        .refused(1, &["listens on 127.0.0.1 only", "0.0.0.0", "198.18.0.1"]);
    bench(&workspace, &serve("[::1]:8080"), short).refused(1, &["listens on ::1 only"]);
    bench(&workspace, &serve("0.0.0.0:8081"), short).refused(1, &["port 8080", "but on 8081", "URL's port"]);
    bench(&workspace, "cat", "-d 1s --server-start-timeout 300ms --server-tcp cc=no-such")
        .refused(2, &["cc=no-such", "this kernel has"]);
    // A server that listens on all addresses of both families is reachable, whatever it prints.
    let output = bench(&workspace, &serve("[::]:8080"), "-n 5 --no-save --json");
    assert!(matches!(output.code, Some(0 | 3)) && output.json()["load"]["completed"] == 5, "{output}");
    assert_empty(&workspace);
}

/// A server that listens on another port than the URL's is reported long before the timeout.
#[test]
fn a_server_on_another_port_is_reported_before_the_timeout() {
    let workspace = Workspace::concurrent_as_root();
    let server = format!("exec {} serve www --listen 0.0.0.0:8081", yamabiko().display());
    let output = bench(&workspace, &server, "-d 1s --server-start-timeout 40s");
    output.refused(1, &["does not listen on port 8080, but on 8081", "unchanged for 12s", "--server-start-timeout"]);
    assert!(output.elapsed < Duration::from_secs(35), "{output}");
    assert_empty(&workspace);
}

#[test]
fn net_reports_programs_that_cannot_start() {
    let workspace = Workspace::concurrent_as_root();
    workspace
        .run(&["net", "--server", "echo why; exit 3", "--", "true"])
        .refused(1, &["before it listened", "exit status 3", "why"]);
    workspace.run(&["net", "--", "no-such-program"]).refused(1, &["no-such-program", "PATH"]);
    workspace.run(&["net", "--clients", "0", "--", "true"]).refused(1, &["expected 1 to 65534"]);
    workspace.run(&["net", "--path", "none", "--rtt", "1ms", "--", "true"]).refused(1, &["--path none", "--rtt"]);
    workspace.run(&["net", "--path", "none", "--", "true"]).refused(1, &["--path none", "--rtt 0ms"]);
}

/// Runs the program from a shell script that prepares its environment and ends with `exec "$0" "$@"`.
fn run_prepared(workspace: &Workspace, how: &[&str], script: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(how[0]);
    command.args(&how[1..]).args(["sh", "-c", script]).arg(yamabiko()).args(arguments);
    workspace.start_command(command).finish()
}

#[test]
fn a_missing_tun_device_is_reported_with_the_fix() {
    let workspace = Workspace::concurrent_as_root();
    let server = yamabiko_serve(&workspace);
    let bench = ["bench", PAGE, "--server", &server, "-d", "1s"];
    // In a mount namespace of the shell.
    let hidden = "mount -t tmpfs none /dev/net && exec \"$0\" \"$@\"";
    let fix = ["open /dev/net/tun", "No such file", "modprobe tun"];
    run_prepared(&workspace, &["unshare", "-m"], hidden, &bench).refused(2, &fix);
    run_prepared(&workspace, &["unshare", "-m"], hidden, &["net", "--", "true"]).refused(2, &fix);
    let fake = "mount --bind /dev/null /dev/net/tun && exec \"$0\" \"$@\"";
    run_prepared(&workspace, &["unshare", "-m"], fake, &bench).refused(2, &["/dev/net/tun", "mknod"]);
    assert_empty(&workspace);
    // A run without a path does not need the device.
    let url = "http://127.0.0.1:9/";
    let free = run_prepared(&workspace, &["unshare", "-m"], hidden, &["bench", url, "-n", "1", "--no-save", "--json"]);
    assert_eq!(free.json()["load"]["failed"]["connect_refused"], 1, "{free}");
}

/// In a container without /etc/hosts the server's name cannot be added.
#[test]
fn a_missing_hosts_file_is_reported() {
    let workspace = Workspace::concurrent_as_root();
    let server = yamabiko_serve(&workspace);
    let bench = ["bench", PAGE, "--server", &server, "-d", "1s"];
    let empty = "mount -t tmpfs none /etc && exec \"$0\" \"$@\"";
    let fix = ["/etc/hosts", "No such file", "create an empty one"];
    run_prepared(&workspace, &["unshare", "-m"], empty, &bench).refused(2, &fix);
    run_prepared(&workspace, &["unshare", "-m"], empty, &["net", "--", "true"]).refused(2, &fix);
    assert_empty(&workspace);
}

/// In a user namespace that may not create others, without any capability.
#[test]
fn an_unprivileged_user_without_user_namespaces_is_refused() {
    let workspace = Workspace::concurrent_as_root();
    let server = yamabiko_serve(&workspace);
    let bench = ["bench", PAGE, "--server", &server, "-d", "1s"];
    let bare = "echo 0 > /proc/sys/user/max_user_namespaces && \
                exec setpriv --bounding-set -all --inh-caps -all --no-new-privs \"$0\" \"$@\"";
    let fix = ["CAP_NET_ADMIN", "run as root", "user.max_user_namespaces"];
    run_prepared(&workspace, &["unshare", "-U", "-r"], bare, &bench).refused(2, &fix);
    run_prepared(&workspace, &["unshare", "-U", "-r"], bare, &["net", "--", "true"]).refused(2, &fix);
    assert_empty(&workspace);
}

#[test]
fn a_run_store_on_a_full_disk_is_reported() {
    let workspace = Workspace::concurrent_as_root();
    let runs = workspace.runs();
    let server = yamabiko_serve(&workspace);
    let script = format!(
        "mount -t tmpfs -o size=4k none {0} && {{ head -c 4096 /dev/zero > {0}/full; \"$0\" \"$@\"; status=$?; ls {0} >&2; exit $status; }}",
        runs.display()
    );
    let output =
        run_prepared(&workspace, &["unshare", "-m"], &script, &["bench", PAGE, "--server", &server, "-d", "1s"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{output}");
    assert!(output.stderr.contains("no space left") && output.stderr.contains("YAMABIKO_RUNS"), "{output}");
    assert!(output.stderr.ends_with("full\n"), "no folder remains: {output}");
}
