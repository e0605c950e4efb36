//! Real servers, in the foreground and as daemons: they respond, and no process of them is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use sys::sandbox::{Exit, Sandbox, SandboxSpec};
use tempfile::TempDir;

use crate::check::{command, ended, http_status, is_running, start, wait_until};

pub fn nginx_in_front() {
    let folder = folder();
    let spec = nginx(&folder, 8080, "daemon off; user www-data;");
    serve(spec, 8080, false);
}

pub fn nginx_as_a_daemon() {
    let folder = folder();
    let spec = nginx(&folder, 80, "user www-data;");
    serve(spec, 80, true);
}

pub fn apache_as_a_daemon() {
    let folder = folder();
    let spec = apache(&folder, 80, "User www-data\nGroup www-data");
    serve(spec, 80, true);
}

/// Starts the server, requests a page, stops it, and checks that no process is left.
pub fn serve(spec: SandboxSpec<'_>, port: u16, daemon: bool) {
    let mut sandbox = start(spec);
    assert_eq!(http_status(&sandbox, port), "HTTP/1.1 200 OK");
    if daemon {
        assert_eq!(ended(&mut sandbox), Exit::Code(0), "the launcher ends");
    } else {
        assert_eq!(sandbox.try_exit().unwrap(), None);
    }
    assert!(sandbox.alive().unwrap());
    let usage = sandbox.usage();
    assert!(usage.processes >= 2 && usage.rss_bytes > 1 << 20, "{usage:?}");
    stop(sandbox);
}

fn stop(sandbox: Sandbox) {
    let pids = sandbox.pids();
    assert!(pids.len() >= 2, "{pids:?}");
    sandbox.stop(Duration::from_secs(10));
    wait_until("all server processes have ended", || pids.iter().all(|pid| !is_running(*pid)));
}

/// A directory that any user may read, with a page in it.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("index.html"), "the echo\n").unwrap();
    folder
}

pub fn nginx(folder: &TempDir, port: u16, main: &str) -> SandboxSpec<'static> {
    let here = folder.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind};"))
        .concat();
    let configuration = write(
        folder.path(),
        "nginx.conf",
        &format!(
            "{main} worker_processes 2; pid {here}/nginx.pid; error_log {here}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; {temporary} server {{ listen {port}; root {here}; }} }}\n"
        ),
    );
    command(&["nginx", "-c", &configuration])
}

pub fn apache(folder: &TempDir, port: u16, main: &str) -> SandboxSpec<'static> {
    let here = folder.path().display();
    let modules = ["mpm_event", "authz_core", "dir"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let configuration = write(
        folder.path(),
        "apache.conf",
        &format!(
            "{modules}ServerName server\nServerRoot {here}\nDefaultRuntimeDir {here}\nPidFile {here}/apache.pid\n\
             ErrorLog {here}/error.log\nListen {port}\nDocumentRoot {here}\nDirectoryIndex index.html\n{main}\n\
             <Directory {here}>\nRequire all granted\n</Directory>\n"
        ),
    );
    command(&["apache2", "-f", &configuration, "-k", "start"])
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}
