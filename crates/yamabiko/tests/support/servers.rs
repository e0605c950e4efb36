//! Real servers for the testbed, each with its own configuration in the workspace.

use std::fs;
use std::path::Path;

use super::workspace::{Workspace, str_of, yamabiko};

/// The port of every server of this module: each server has a network namespace of its own.
pub const PORT: u16 = 8080;

/// URL of the 10 KB page of every server of this module.
pub const PAGE: &str = "http://server:8080/10k.bin";

/// Arguments of `bench` for [`PAGE`] with this server command; `more` contains further arguments separated by spaces.
pub fn bench<'a>(server: &'a str, more: &'a str) -> Vec<&'a str> {
    ["bench", PAGE, "--server", server].into_iter().chain(more.split_whitespace()).collect()
}

/// Arguments of `net` with these options and this program; both contain arguments separated by spaces.
pub fn net<'a>(options: &'a str, program: &'a str) -> Vec<&'a str> {
    ["net"].into_iter().chain(options.split_whitespace()).chain(["--"]).chain(program.split_whitespace()).collect()
}

/// The command that starts nginx with one worker.
pub fn nginx(workspace: &Workspace) -> String {
    nginx_in(workspace, workspace.path())
}

/// The command that starts nginx with one worker that writes to `prefix`, which must contain a folder `var`.
pub fn nginx_in(workspace: &Workspace, prefix: &Path) -> String {
    // Relative paths are relative to the prefix.
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path var/{kind};\n"))
        .concat();
    // While a test stalls the server, connections wait in its backlog.
    let text = format!(
        "worker_processes 1;\nworker_rlimit_nofile 8192;\npid var/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 8000; }}\n\
         http {{\n    access_log off;\n    keepalive_requests 1000000;\n{temporary}    \
         server {{ listen {PORT} backlog=4096; root {}; }}\n}}\n",
        workspace.www().display()
    );
    let configuration = prefix.join("nginx.conf");
    fs::write(&configuration, text).unwrap();
    format!("exec nginx -p {} -c {} -g 'daemon off;'", prefix.display(), configuration.display())
}

/// The command that starts Apache with one process of threads (mpm_event).
pub fn apache(workspace: &Workspace) -> String {
    let here = workspace.path().display();
    let modules = ["mpm_event", "authz_core", "unixd"]
        .map(|name| (name, format!("/usr/lib/apache2/modules/mod_{name}.so")))
        .map(|(name, file)| {
            // A built-in module has no file.
            if fs::exists(&file).unwrap() { format!("LoadModule {name}_module {file}\n") } else { String::new() }
        })
        .concat();
    let text = format!(
        "{modules}ServerName server\nServerRoot {here}/var\nDefaultRuntimeDir {here}/var\nPidFile {here}/var/apache.pid\n\
         ErrorLog /dev/stderr\nLogLevel error\nListen {PORT}\nUser www-data\nGroup www-data\n\
         StartServers 1\nServerLimit 1\nThreadsPerChild 64\nMaxRequestWorkers 64\n\
         DocumentRoot {}\n<Directory {}>\n    Require all granted\n</Directory>\n",
        workspace.www().display(),
        workspace.www().display()
    );
    fs::write(workspace.path().join("apache.conf"), text).unwrap();
    format!("exec apache2 -f {here}/apache.conf -DFOREGROUND")
}

/// The command that starts `yamabiko serve`.
pub fn yamabiko_serve(workspace: &Workspace) -> String {
    yamabiko_serve_from(&yamabiko(), workspace)
}

/// The command that starts `yamabiko serve` from a copy of the program.
pub fn yamabiko_serve_from(program: &Path, workspace: &Workspace) -> String {
    format!("exec {} serve {} --listen 0.0.0.0:{PORT}", program.display(), str_of(&workspace.www()))
}
