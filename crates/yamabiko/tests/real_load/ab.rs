//! Debian's ab and `yamabiko ab` on the same nginx and Apache, one after the other: the same lines, counts and bytes.
//! Only the format of times is checked: the machine is shared.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::support::canned_responses::{Server, response};
use crate::support::workspace::{Output, Running, Workspace, str_of, wait_until};

/// Arguments of each case; `~` is a space within an argument.
const CASES: [&str; 12] = [
    "-n 100 -c 5 URL/page",
    "-n 1000 -c 10 -k URL/page",
    "-n400 -c7 -kq URL/page",
    "-n 60 -c 3 -k -i URL/page",
    "-n 60 -c 3 -d URL/page",
    "-n 60 -c 3 -S URL/page",
    "-n 60 -c 3 -k URL/nothing/here",
    "-n 60 -c 3 -k -p BODY -T a/b -H User-Agent:~x URL/page",
    "-n 60 -c 3 -u BODY -H User-Agent:~x URL/page",
    "-n 60 -c 3 -l -C a=1 -A u:p -H X-A:~b URL/page",
    "-n 60 -c 3 -w -k URL/page",
    "-n 2500 -c 1 -k URL/page",
];

/// An unused port; no other program of this host uses ports below the kernel's range.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(workspace: &Workspace, command: &str, port: u16) -> Running {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]);
    let running = workspace.start_command(shell);
    wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    running
}

/// nginx in one process, which ends when this is dropped. It closes a connection after 1000 requests by default.
fn nginx(workspace: &Workspace, port: u16, secure: u16) -> Running {
    let text = format!(
        "daemon off; master_process off; pid var/nginx.pid; error_log stderr;\nevents {{ worker_connections 500; }}\n\
         http {{\n    access_log off; client_body_temp_path var/body; proxy_temp_path var/proxy; fastcgi_temp_path var/f;\n\
         uwsgi_temp_path var/u; scgi_temp_path var/s;\n    \
         server {{\n        listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl; root {}; error_page 405 =200 $uri;\n\
         ssl_certificate cert.pem; ssl_certificate_key key.pem;\n    }}\n}}\n",
        workspace.www().display()
    );
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
    fs::write(workspace.path().join("cert.pem"), cert.pem()).unwrap();
    fs::write(workspace.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
    fs::write(workspace.path().join("nginx.conf"), text).unwrap();
    let here = workspace.path().display();
    start(workspace, &format!("exec nginx -p {here} -c {here}/nginx.conf"), port)
}

/// Apache in one process (-X). It announces the remaining requests of a connection in one or two digits, so that byte
/// counts would depend on the distribution of requests: the number is unlimited here.
fn apache(workspace: &Workspace, port: u16) -> Running {
    let here = workspace.path().display();
    let modules = ["mpm_event", "authz_core", "unixd"]
        .map(|name| (name, format!("/usr/lib/apache2/modules/mod_{name}.so")))
        .map(
            |(name, file)| {
                if fs::exists(&file).unwrap() { format!("LoadModule {name}_module {file}\n") } else { String::new() }
            },
        )
        .concat();
    let www = workspace.www();
    let text = format!(
        "{modules}ServerName localhost\nServerRoot {here}/var\nDefaultRuntimeDir {here}/var\nPidFile {here}/var/apache.pid\n\
         ErrorLog /dev/stderr\nListen 127.0.0.1:{port}\nUser www-data\nGroup www-data\nMaxKeepAliveRequests 0\nDocumentRoot {0}\n\
         <Directory {0}>\n    Require all granted\n</Directory>\n",
        www.display()
    );
    fs::write(workspace.path().join("apache.conf"), text).unwrap();
    start(workspace, &format!("exec apache2 -f {here}/apache.conf -X"), port)
}

/// The report only: the text after the banner.
fn report(output: &Output) -> Vec<String> {
    let lines: Vec<&str> = output.stdout.lines().collect();
    let from = lines.iter().position(|line| line.contains("Server Software:")).unwrap_or_else(|| panic!("{output}"));
    let mut report: Vec<String> = Vec::new();
    let mut warning = false;
    for line in &lines[from..] {
        // The second line of the banner is indented.
        warning = line.starts_with("WARNING: The median")
            || line.starts_with("ERROR: The median")
            || (warning && line.starts_with("       "));
        // TLS parameters have the standard's names in our output, and no key sizes.
        let tls = line.starts_with("SSL/TLS Protocol:") || line.starts_with("Server Temp Key:");
        // The two servers have different values.
        let port = line.starts_with("Server Port:");
        if !warning && !tls && !port {
            report.push((*line).to_owned());
        }
    }
    report
}

/// A line with `#` in place of each number and the spaces before it.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        if c.is_ascii_digit() || (c == '.' && shape.ends_with('#')) {
            while shape.ends_with(' ') || shape.ends_with('#') {
                shape.pop();
            }
            shape.push('#');
        } else {
            shape.push(c);
        }
    }
    shape
}

/// Whether the figures of a line must be equal in both outputs.
fn has_equal_figures(line: &str) -> bool {
    const TIMED: [&str; 5] =
        ["Time taken for tests:", "Requests per second:", "Time per request:", "Transfer rate:", " kb/s "];
    let counted = line.contains(':') && !TIMED.iter().any(|label| line.contains(label));
    let table = ["Connect: ", "Processing:", "Waiting:", "Total: ", "Connect:<", "Total:<"];
    counted && !table.iter().any(|label| line.starts_with(label) || line.contains(&format!(">{label}")))
}

fn compare(workspace: &Workspace, url: &str, case: &str) {
    compare_on(workspace, [url, url], case);
}

/// Compares ab's output for the first URL with ours for the second.
fn compare_on(workspace: &Workspace, urls: [&str; 2], case: &str) {
    let body = workspace.file("body");
    let [their_words, our_words] = urls.map(|url| {
        let filled = |word: &str| word.replace('~', " ").replace("URL", url).replace("BODY", str_of(&body));
        case.split_whitespace().map(filled).collect::<Vec<String>>()
    });
    let mut theirs = Command::new("ab");
    theirs.args(&their_words);
    let theirs = workspace.start_command(theirs).finish().success();
    let our_words: Vec<&str> = ["ab"].into_iter().chain(our_words.iter().map(String::as_str)).collect();
    let ours = workspace.run(&our_words);
    assert!(matches!(ours.code, Some(0 | 3)), "only noise of the machine may make the run invalid\n{ours}");
    let (their_lines, our_lines) = (report(&theirs), report(&ours));
    let shapes = |lines: &[String]| lines.iter().map(|line| shape(line)).collect::<Vec<_>>();
    assert_eq!(shapes(&our_lines), shapes(&their_lines), "{case}\n{theirs}\n{ours}");
    for (our_line, their_line) in our_lines.iter().zip(&their_lines).filter(|(line, _)| has_equal_figures(line)) {
        assert_eq!(our_line, their_line, "{case}\n{theirs}\n{ours}");
    }
    let progress = |output: &Output| {
        output.stderr.lines().filter(|line| !line.contains("yamabiko")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(progress(&ours), progress(&theirs), "{case}");
    let banner = |output: &Output| output.stdout.lines().position(|line| line.contains("be patient"));
    assert_eq!(banner(&ours), banner(&theirs), "both banners have the same number of lines: {case}");
}

fn compare_all(workspace: &Workspace, url: &str) {
    let page = workspace.www().join("page");
    fs::write(&page, vec![b'x'; 1234]).unwrap();
    // Apache's ETag of a file written within the last second is two bytes longer.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&page).unwrap().set_modified(long_ago).unwrap();
    fs::write(workspace.file("body"), vec![b'b'; 777]).unwrap();
    for case in CASES {
        compare(workspace, url, case);
    }
}

#[test]
fn yamabiko_ab_agrees_with_apachebench_on_nginx() {
    let workspace = Workspace::new();
    let (port, secure) = (free_port(), free_port());
    let _server = nginx(&workspace, port, secure);
    compare_all(&workspace, &format!("http://127.0.0.1:{port}"));
    for case in ["-n 40 -c 4 URL/page", "-n 200 -c 4 -k URL/page", "-n 20 -c 2 -f TLS1.2 URL/page"] {
        compare(&workspace, &format!("https://localhost:{secure}"), case);
    }
}

#[test]
fn yamabiko_ab_agrees_with_apachebench_on_apache() {
    let workspace = Workspace::new();
    let port = free_port();
    let _server = apache(&workspace, port);
    compare_all(&workspace, &format!("http://127.0.0.1:{port}"));
}

#[test]
fn yamabiko_ab_agrees_with_apachebench_on_faulty_servers() {
    let workspace = Workspace::new();
    fs::write(workspace.file("body"), "").unwrap();
    for case in ["-n 30 URL", "-l -n 30 URL", "-k -n 31 URL"] {
        // The response depends on the request number, so each program gets its own server.
        let respond: fn(usize) -> Option<Vec<u8>> = |number| match number % 5 {
            4 => response("503 Busy", 7),
            _ => response("200 OK", 100 + number % 3),
        };
        let [theirs, ours] = [Server::start(respond), Server::start(respond)];
        compare_on(&workspace, [&theirs.url(), &ours.url()], case);
    }
    let proxy = Server::start(|_| response("200 OK", 10));
    compare(&workspace, &proxy.address.to_string(), "-n 10 -X URL http://origin.invalid:81/a?b");
    let heads = proxy.heads();
    let lines = |head: &String| head.lines().next().unwrap().to_owned();
    assert!(heads.len() == 20 && heads.iter().all(|head| lines(head) == lines(&heads[0])), "{heads:?}");
}

#[test]
fn yamabiko_ab_refuses_the_input_that_apachebench_refuses() {
    let workspace = Workspace::new();
    let unused = format!("http://127.0.0.1:{}/", free_port());
    for words in [
        "-n 0 http://h/",
        "-n 5 -c 9 http://h/",
        "http://h",
        "-n",
        "",
        "-h",
        "-V",
        &format!("-n 3 {unused}"),
        "-n 1 -p /nonexistent http://h/",
        "-i -u /etc/hostname http://h/",
    ] {
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut theirs = Command::new("ab");
        theirs.args(&words);
        let theirs = workspace.start_command(theirs).finish();
        let ours = workspace.run(&[&["ab"], &words[..]].concat());
        assert_eq!(ours.code, theirs.code, "{theirs}\n{ours}");
    }
}
