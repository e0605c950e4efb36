//! `yamabiko ab` from the command line to its report and files, against a small server in this process. No time is
//! checked; counts and bytes are exact.

use std::net::TcpListener;

use crate::support::canned_responses::{Server, response};
use crate::support::workspace::{Output, Workspace, str_of};

fn page(_number: usize) -> Option<Vec<u8>> {
    response("200 OK", 1000)
}

/// Bytes of the head of [`page`].
fn head_bytes() -> u64 {
    page(0).unwrap().len() as u64 - 1000
}

fn ab(workspace: &Workspace, options: &str, url: &str) -> Output {
    let words: Vec<&str> = ["ab"].into_iter().chain(options.split_whitespace()).chain([url]).collect();
    workspace.run(&words)
}

/// The first word after a label, as `awk '/^Label:/ {print $n}'` finds it.
fn word_after_label<'a>(output: &'a Output, label: &str) -> Option<&'a str> {
    output.stdout.lines().find_map(|line| line.strip_prefix(label)).and_then(|rest| rest.split_whitespace().next())
}

fn assert_count(output: &Output, label: &str, count: u64) {
    assert_eq!(word_after_label(output, label).map(str::parse), Some(Ok(count)), "{label}\n{output}");
}

#[test]
fn ab_without_keepalive_reports_its_figures() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let output = ab(&workspace, "-n 40 -c 4", &server.url());
    for (label, count) in [
        ("Server Port:", u64::from(server.address.port())),
        ("Document Length:", 1000),
        ("Concurrency Level:", 4),
        ("Complete requests:", 40),
        ("Failed requests:", 0),
        ("Total transferred:", 40 * (head_bytes() + 1000)),
        ("HTML transferred:", 40_000),
    ] {
        assert_count(&output, label, count);
    }
    assert_eq!(word_after_label(&output, "Server Software:"), Some("test/1"));
    assert_eq!(word_after_label(&output, "Document Path:"), Some("/page"));
    for absent in ["Keep-Alive requests:", "Non-2xx responses:", "Total body sent:", "Write errors:", "(Connect:"] {
        assert!(!output.stdout.contains(absent), "{output}");
    }
    assert!(output.stdout.contains("(be patient).....done\n\n\nServer Software:"), "{output}");
    let heads = server.heads();
    assert_eq!(heads.len(), 40, "each request is sent once");
    assert!(heads[0].starts_with("GET /page HTTP/1.0\r\n") && !heads[0].contains("Connection:"), "{}", heads[0]);
}

#[test]
fn ab_with_keepalive_prints_the_lines_that_scripts_parse() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let output = ab(&workspace, "-kn500 -c5", &server.url());
    assert_count(&output, "Keep-Alive requests:", 500);
    assert_count(&output, "Complete requests:", 500);
    let figure = |label: &str| word_after_label(&output, label).unwrap().parse::<f64>().unwrap();
    let (taken, rate) = (figure("Time taken for tests:"), figure("Requests per second:"));
    assert!(
        (500.0 / rate - taken).abs() < 0.0006,
        "rate times time is the number of requests, except for rounding\n{output}"
    );
    let per_request: Vec<f64> = output
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("Time per request:"))
        .map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap())
        .collect();
    assert!((per_request[0] - 5.0 * per_request[1]).abs() < 0.0035, "equal except for rounding: {per_request:?}");
    // awk '/50%/ {print $2}'
    let half = output.stdout.lines().find(|line| line.contains("50%")).unwrap();
    assert!(half.split_whitespace().nth(1).unwrap().parse::<u64>().is_ok(), "{half}");
    let completed: String = (1..=5).map(|tenth| format!("Completed {}00 requests\n", tenth)).collect();
    assert!(output.stderr.starts_with(&(completed + "Finished 500 requests\n")), "{output}");
    assert!(output.stdout.contains("(be patient)\n\n\nServer Software:"), "{output}");
    let connects = output.stdout.lines().find(|line| line.starts_with("Connect:")).unwrap();
    assert_eq!(connects.split_whitespace().count(), 6, "{connects}");
}

#[test]
fn ab_counts_length_failures_and_non_2xx_responses() {
    let workspace = Workspace::concurrent();
    let varying = Server::start(|number| response("200 OK", 100 + number % 3));
    let output = ab(&workspace, "-n 30", &varying.url());
    assert_count(&output, "Failed requests:", 20);
    assert!(output.stdout.contains("   (Connect: 0, Receive: 0, Length: 20, Exceptions: 0)\n"), "{output}");
    assert_count(&output, "Document Length:", 100);
    let varying = Server::start(|number| response("200 OK", 100 + number % 3));
    let output = ab(&workspace, "-l -n 30", &varying.url());
    assert_count(&output, "Failed requests:", 0);
    assert_eq!(word_after_label(&output, "Document Length:"), Some("Variable"));

    let missing = Server::start(|_| response("404 Not Found", 9));
    let output = ab(&workspace, "-n 20", &missing.url());
    assert_count(&output, "Non-2xx responses:", 20);
    assert_count(&output, "Failed requests:", 0);
}

#[test]
fn ab_counts_a_truncated_response_as_one_failure() {
    let workspace = Workspace::concurrent();
    let cut = Server::start(|number| {
        let mut complete = response("200 OK", 1000).unwrap();
        if number % 5 == 4 {
            complete.truncate(complete.len() - 500);
        }
        Some(complete)
    });
    let output = ab(&workspace, "-n 30", &cut.url());
    assert_count(&output, "Failed requests:", 6);
    assert!(output.stdout.contains("(Connect: 0, Receive: 0, Length: 6, Exceptions: 0)"), "{output}");
    assert_count(&output, "HTML transferred:", 24_000 + 6 * 500);

    let garbage = Server::start(|number| if number == 3 { Some(b"hello\r\n\r\n".to_vec()) } else { page(0) });
    let output = ab(&workspace, "-n 10", &garbage.url());
    assert!(output.stdout.contains("(Connect: 0, Receive: 0, Length: 0, Exceptions: 1)"), "{output}");
    assert_count(&output, "Complete requests:", 10);
}

#[test]
fn ab_fails_when_the_server_sends_no_response() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(|_| None));
    let output = ab(&workspace, "-n 5", &server.url());
    assert_count(&output, "Failed requests:", 5);
    assert!(output.stdout.contains("(Connect: 0, Receive: 5, Length: 0, Exceptions: 0)"), "{output}");
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stderr.contains("this measurement is invalid: server answers"), "{output}");
}

#[test]
fn ab_reports_a_refused_connection() {
    let workspace = Workspace::concurrent();
    // Servers of other tests, which may get this port next, have another address.
    let unused = TcpListener::bind("127.99.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unused}/");
    let output = ab(&workspace, "-n 3", &url);
    assert_eq!(output.code, Some(111), "{output}");
    assert_eq!(output.stderr, "apr_socket_connect(): Connection refused (111)\n");
    assert!(!output.stdout.contains("Requests per second"), "{output}");
    // Far more requests than the time limit allows.
    let output = ab(&workspace, "-n 100000 -r -c 20", &url);
    assert_eq!(output.code, Some(111), "{output}");
    assert!(
        output.stderr.contains("\nTest aborted after 10 failures\n\napr_socket_connect(): Connection refused"),
        "{output}"
    );
}

#[test]
fn ab_sends_bodies_headers_credentials_and_cookies() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let file = workspace.file("body");
    std::fs::write(&file, vec![b'b'; 5000]).unwrap();
    let body = str_of(&file);
    let options = format!("-n 4 -k -p {body} -T a/b -C a=1 -C b=2 -A user:pass -H X-A:1 -H User-Agent:own -v 4");
    let output = ab(&workspace, &options, &server.url());
    let heads = server.heads();
    assert_eq!(heads.len(), 4);
    for line in [
        "POST /page HTTP/1.0\r\n",
        "Content-Length: 5000\r\n",
        "Content-Type: a/b\r\n",
        "Cookie: a=1; b=2\r\n",
        "Authorization: Basic dXNlcjpwYXNz\r\n",
        "X-A: 1\r\n",
        "User-Agent: own\r\n",
    ] {
        assert!(heads[0].contains(line), "{line}: {}", heads[0]);
    }
    assert_count(&output, "Total body sent:", 4 * (heads[0].len() as u64 + 5000));
    assert!(output.stdout.contains(" kb/s sent\n") && output.stdout.contains(" kb/s total\n"), "{output}");
    assert!(output.stdout.contains("INFO: POST header == \n---\nPOST /page HTTP/1.0\n"), "{output}");
    assert!(output.stdout.contains("LOG: header received:\nHTTP/1.1 200 OK\n"), "{output}");
    assert_eq!(output.stdout.matches("LOG: Response code = 200\n").count(), 4);

    let output = ab(&workspace, &format!("-u {body}"), &server.url());
    assert_count(&output, "Complete requests:", 1);
    assert!(server.heads()[4].starts_with("PUT /page HTTP/1.0\r\n"));
    let output = ab(&workspace, "-i -n 2", &Server::start(|_| response("200 OK", 0)).url());
    assert_count(&output, "HTML transferred:", 0);
}

#[test]
fn ab_requests_the_absolute_url_from_a_proxy() {
    let (workspace, proxy) = (Workspace::concurrent(), Server::start(page));
    let options = format!("-n 3 -X {} -P me:pw", proxy.address);
    let output = ab(&workspace, &options, "http://origin.invalid:81/a?b");
    assert_count(&output, "Complete requests:", 3);
    assert!(
        output.stdout.contains(&format!("Benchmarking origin.invalid [through {}] (be", proxy.address)),
        "{output}"
    );
    assert_eq!(word_after_label(&output, "Server Hostname:"), Some("origin.invalid"));
    assert_count(&output, "Server Port:", 81);
    let head = &proxy.heads()[0];
    assert!(head.starts_with("GET http://origin.invalid:81/a?b HTTP/1.0\r\nHost: origin.invalid:81\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");

    let proxy = proxy.address.to_string();
    let words = ["bench", "http://origin.invalid/", "--proxy", &proxy, "-n", "5", "-c", "1", "--json"];
    let document = workspace.run_json(&words);
    assert_eq!(document["load"]["completed"], 5, "{document}");
    // The response to CONNECT is a page, with bytes after the head where the tunnel would begin.
    let document =
        workspace.run(&["bench", "https://origin.invalid/", "--proxy", &proxy, "-n", "5", "-c", "1", "--json"]).json();
    assert_eq!(document["load"]["failed"], serde_json::json!({ "malformed": 5 }), "{document}");
}

#[test]
fn ab_writes_its_csv_and_gnuplot_files() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let (every, percents) = (workspace.file("every.tsv"), workspace.file("percents.csv"));
    let options = format!("-n 20 -c 2 -d -g {} -e {}", str_of(&every), str_of(&percents));
    let output = ab(&workspace, &options, &server.url());
    assert!(!output.stdout.contains("Percentage of"), "-d\n{output}");
    let every = std::fs::read_to_string(every).unwrap();
    let mut lines = every.lines();
    assert_eq!(lines.next(), Some("starttime\tseconds\tctime\tdtime\tttime\twait"));
    let mut longest = 0;
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [seconds, connect, processing, total, waiting] =
            [1, 2, 3, 4, 5].map(|at| fields[at].parse::<u64>().unwrap());
        assert_eq!(fields[0].split_whitespace().count(), 5, "{line}");
        assert!(seconds > 1_700_000_000 && (connect + processing).abs_diff(total) <= 1 && waiting <= processing + 1);
        assert!(total >= longest, "sorted by ttime");
        longest = total;
    }
    assert_eq!(every.lines().count(), 21);
    let percents = std::fs::read_to_string(percents).unwrap();
    assert_eq!(percents.lines().next(), Some("Percentage served,Time in ms"));
    let times: Vec<f64> =
        percents.lines().skip(1).map(|line| line.split_once(',').unwrap().1.parse().unwrap()).collect();
    assert!(times.len() == 101 && times.is_sorted(), "{times:?}");

    let output = ab(&workspace, "-n 2 -e /nonexistent/file", &server.url());
    assert_eq!(output.code, Some(1), "{output}");
    assert!(output.stderr.contains("Cannot open CSV output file"), "{output}");
}

#[test]
fn ab_prints_html_and_plain_tables() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let output = ab(&workspace, "-w -n 4", &server.url());
    assert!(output.stdout.starts_with("<p>\n This is ") && output.stdout.ends_with("</table>\n"), "{output}");
    assert!(output.stdout.contains("Complete requests:</th><td colspan=2 bgcolor=white>4</td></tr>"), "{output}");
    let output = ab(&workspace, "-S -n 4", &server.url());
    assert!(output.stdout.contains("\n              min   avg   max\nConnect:"), "{output}");
}

#[test]
fn ab_time_limit_ends_the_run() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let output = ab(&workspace, "-t 1 -n 5000000 -k", &server.url());
    assert_eq!(word_after_label(&output, "Time taken for tests:"), Some("1.000"), "{output}");
    let complete: u64 = word_after_label(&output, "Complete requests:").unwrap().parse().unwrap();
    assert!(complete > 0 && complete <= server.heads().len() as u64, "{output}");
    assert_count(&output, "HTML transferred:", 1000 * complete);
}

#[test]
fn ab_stores_its_run() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    ab(&workspace, "-n 7", &server.url());
    let document = workspace.run(&["report", "last", "--json"]).json();
    assert_eq!(document["load"]["completed"], 7, "{document}");
    let dir = std::path::PathBuf::from(document["run"]["dir"].as_str().unwrap());
    let rows: Vec<_> = store::read_requests(&dir).unwrap().map(Result::unwrap).collect();
    assert!(rows.iter().all(|row| u64::from(row.head_bytes) == head_bytes() && row.body_bytes() == 1000));
    assert!(rows.iter().all(|row| row.keep_alive), "the server responds with keep-alive to every request");
}

#[test]
fn ab_prints_help_and_refuses_wrong_input() {
    let workspace = Workspace::concurrent();
    let help = workspace.run(&["ab", "-h"]);
    assert_eq!((help.code, help.stdout.as_str()), (Some(22), ""), "{help}");
    assert!(help.stderr.starts_with("Usage: yamabiko ab [options]"), "{help}");
    assert!(workspace.run(&["ab", "--help"]).success().stdout.starts_with("Usage: yamabiko ab"));
    assert!(workspace.run(&["ab", "-V"]).success().stdout.starts_with("This is Yamabiko, Version "));
    for (words, code, message) in [
        ("-n 0 http://h/", 1, "Invalid number of requests"),
        ("-n 5 -c 9 http://h/", 22, "ab: Cannot use concurrency level greater than total number of requests"),
        ("http://h", 22, "ab: invalid URL"),
        ("-q", 22, "ab: wrong number of arguments"),
        ("-H nonsense http://127.0.0.1:9/", 1, "`nonsense` is not a valid header"),
    ] {
        let words: Vec<&str> = ["ab"].into_iter().chain(words.split_whitespace()).collect();
        let output = workspace.run(&words);
        assert_eq!(output.code, Some(code), "{output}");
        assert!(output.stderr.contains(message), "{output}");
    }
    assert_eq!(std::fs::read_dir(workspace.runs()).unwrap().count(), 0, "the run store is empty");
}

#[test]
fn a_symlink_named_ab_starts_ab() {
    let (workspace, server) = (Workspace::concurrent(), Server::start(page));
    let link = workspace.path().join("ab");
    std::os::unix::fs::symlink(crate::support::workspace::yamabiko(), &link).unwrap();
    let mut command = std::process::Command::new(&link);
    command.args(["-n3", &server.url()]);
    assert_count(&workspace.start_command(command).finish(), "Complete requests:", 3);
}
