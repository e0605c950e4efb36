//! Workloads end to end against a scripted server on loopback: requests arrive as configured, and unexpected responses
//! fail with their cause.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::document::{check, count};
use crate::support::scripted::{ReceivedRequest, Scripted, response};
use crate::support::workspace::{Workspace, str_of};
use serde_json::Value;

/// `bench` or `run` with these arguments, without storing the run.
fn run(workspace: &Workspace, arguments: &[&str]) -> Value {
    let document = workspace.run_json(&[arguments, &["--json", "--no-save"]].concat());
    // Times are not checked on a busy machine; all requests are accounted for.
    assert_eq!(check(&document, "conservation")["state"], "ok", "{document}");
    document
}

fn failed(document: &Value, cause: &str) -> u64 {
    document["load"]["failed"][cause].as_u64().unwrap_or(0)
}

fn counts(document: &Value) -> BTreeMap<String, (u64, u64)> {
    let urls = document["load"]["by_url"].as_array().cloned().unwrap_or_default();
    let part = |url: &Value| {
        let name = url["url"].as_str().unwrap().to_owned();
        (name, (url["completed"].as_u64().unwrap(), url["failed"].as_u64().unwrap()))
    };
    urls.iter().map(part).collect()
}

#[test]
fn urls_are_used_in_turn_or_by_weight() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b"page"));
    let urls = ["/a", "/b", "/c"].map(|path| server.url(path));
    let document = run(&workspace, &["bench", &urls[0], &urls[1], &urls[2], "-n", "30", "-c", "1"]);
    assert!(counts(&document).values().all(|&count| count == (10, 0)), "{document}");

    fs::write(workspace.path().join("urls.txt"), "# the popular one\n/often\t9\n/seldom 1\n").unwrap();
    let list = workspace.path().join("urls.txt");
    let document = run(&workspace, &["bench", &server.url("/"), "--urls", str_of(&list), "-n", "1000", "-c", "2"]);
    let counted = counts(&document);
    let often = counted[&server.url("/often")].0;
    // 900 with a standard deviation of 9.5: the tolerance is ten of them. The draws are seeded.
    assert!(often.abs_diff(900) < 95 && often + counted[&server.url("/seldom")].0 == 1000, "{counted:?}");
}

/// Flags become a plan, and the plan gives the same run from any folder.
#[test]
fn workload_flags_become_a_plan() {
    let workspace = Workspace::concurrent();
    fs::write(workspace.path().join("urls.txt"), "/a\n").unwrap();
    fs::create_dir(workspace.path().join("plans")).unwrap();
    for flags in [
        &["http://a/", "http://b/x?n={sequence}", "--cookies", "--follow-redirects", "5", "--basic-auth", "u:p"][..],
        &[
            "http://h:81",
            "--urls",
            "urls.txt",
            "--expect-status",
            "200,3xx",
            "--expect-length",
            "1KB..",
            "--expect-body",
            "x",
        ],
        &["http://h/", "--content", "surge:50,alpha=0.5,seed=3"],
        &["http://h/?q={{}}", "-H", "X-A: {client}"],
    ] {
        let printed = workspace.run(&[&["bench"], flags, &["--print-plan"]].concat());
        assert_eq!(printed.code, Some(0), "{printed}");
        fs::write(workspace.path().join("plans/plan.toml"), &printed.stdout).unwrap();
        let again = workspace.run(&["run", "plans/plan.toml", "--print-plan"]);
        assert_eq!(again.stdout, printed.stdout, "{again}");
    }
    let list = workspace.run(&["bench", "http://h", "--urls", "urls.txt", "--print-plan"]).stdout;
    assert!(list.contains(&format!("urls = \"{}\"", workspace.path().join("urls.txt").display())), "{list}");
    let refused: [(&[&str], &[&str]); 8] = [
        (&["http://h/", "--urls", "no-such-file"], &["--urls", "No such file"]),
        (&["http://h/", "--content", "specweb96:9"], &["--content", "specweb99:1000"]),
        (&["http://h/", "--content", "even:9", "--urls", "urls.txt"], &["--content", "--urls"]),
        (&["http://h/{x}"], &["`{x}` is not a valid placeholder", "{client}"]),
        (&["http://h/", "--expect-status", "1xx"], &["--expect-status", "200-299"]),
        (&["http://h/", "--expect-length", "10"], &["--expect-length", "1KB..2KB"]),
        (&["http://h/", "--expect-body", ""], &["empty"]),
        (&["http://h/", "--basic-auth", "user"], &["--basic-auth", "no colon"]),
    ];
    for (flags, words) in refused {
        workspace.run(&[&["bench"], flags].concat()).refused(1, words);
    }
}

#[test]
fn placeholders_are_filled_in_urls_headers_bodies_and_credentials() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b""));
    let plan = format!(
        "[load]\nurl = \"{}\"\nrequests = 40\nconnections = 4\nclients = 4\nbasic_auth = \"user{{client}}:pw\"\n\
         headers = [\"X-Number: {{sequence}}\"]\n[[load.request]]\nurl = \"/u/{{client}}?die={{random 1..6}}\"\n\
         body = '{{{{\"n\": {{sequence}}}}}}'\n",
        server.url("")
    );
    fs::write(workspace.path().join("plan.toml"), plan).unwrap();
    let document = run(&workspace, &["run", "plan.toml"]);
    assert_eq!(count(&document, "load.completed"), 40);
    let requests = server.requests();
    let numbers: BTreeSet<u64> =
        requests.iter().map(|request| request.field("x-number").unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, (0..40).collect());
    let mut dice = BTreeSet::new();
    for request in &requests {
        let (client, die) = request.target.strip_prefix("/u/").unwrap().split_once("?die=").unwrap();
        dice.insert(die.parse::<u32>().unwrap());
        assert_eq!(request.method, "POST");
        assert_eq!(request.body, format!("{{\"n\": {}}}", request.field("x-number").unwrap()).into_bytes());
        let credentials = ["dXNlcjA6cHc=", "dXNlcjE6cHc=", "dXNlcjI6cHc=", "dXNlcjM6cHc="];
        let expected = format!("Basic {}", credentials[client.parse::<usize>().unwrap()]);
        assert_eq!(request.field("authorization").as_deref(), Some(expected.as_str()));
    }
    assert!(dice.len() >= 4 && dice.iter().all(|die| (1..=6).contains(die)), "{dice:?}");
}

#[test]
fn unexpected_responses_fail_with_their_cause() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|request| match request.target.as_str() {
        "/missing" => response("404 Not Found", &[], b"nothing here"),
        _ => response("200 OK", &[], b"hello world"),
    });
    let (page, missing) = (server.url("/page"), server.url("/missing"));
    for (url, options, cause) in [
        (&page, &["--expect-status", "2xx", "--expect-length", "11B", "--expect-body", "o w"][..], None),
        (&page, &["--expect-status", "201,3xx"], Some("unexpected_status")),
        (&missing, &["--expect-status", "200"], Some("unexpected_status")),
        (&missing, &[], None),
        (&page, &["--expect-length", "12B.."], Some("unexpected_length")),
        (&page, &["--expect-length", "..10B"], Some("unexpected_length")),
        (&page, &["--expect-body", "goodbye"], Some("unexpected_body")),
    ] {
        let document = run(&workspace, &[&["bench", url, "-n", "10", "-c", "2"], options].concat());
        match cause {
            None => assert_eq!(count(&document, "load.completed"), 10, "{options:?}"),
            Some(cause) => {
                assert_eq!(failed(&document, cause), 10, "{options:?}: {}", document["load"]["failed"]);
                // The connection stays usable.
                assert!(count(&document, "load.connections_opened") <= 2, "{document}");
            }
        }
    }
}

#[test]
fn redirects_are_followed_on_request() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|request| match request.target.as_str() {
        "/a/start" => response("302 Found", &["Location: ../b/./next?x=1#part"], b""),
        "/b/next?x=1" => response("307 Temporary Redirect", &["Location: /end"], b""),
        "/loop" => response("301 Moved Permanently", &["Location: /loop"], b""),
        "/abroad" => response("302 Found", &["Location: http://elsewhere.invalid/"], b""),
        "/nowhere" => response("302 Found", &[], b""),
        "/end" => response("200 OK", &[], b"end"),
        _ => response("404 Not Found", &[], b""),
    });
    let follow = |path: &str, more: &[&str]| {
        run(
            &workspace,
            &[&["bench", &server.url(path), "-n", "12", "-c", "1", "--expect-status", "200"], more].concat(),
        )
    };
    let document = follow("/a/start", &["--follow-redirects", "2"]);
    assert_eq!(document["load"]["failed"].as_object().map(|failed| failed.len()), Some(0), "{document}");
    let statuses = &document["load"]["status"];
    assert_eq!(
        (statuses["302"].as_u64(), statuses["307"].as_u64(), statuses["200"].as_u64()),
        (Some(4), Some(4), Some(4))
    );
    assert!(failed(&follow("/a/start", &["--follow-redirects", "1"]), "too_many_redirects") > 0);
    assert!(failed(&follow("/loop", &["--follow-redirects", "5"]), "too_many_redirects") > 0);
    assert_eq!(failed(&follow("/abroad", &["--follow-redirects", "5"]), "bad_redirect"), 12);
    assert_eq!(failed(&follow("/nowhere", &["--follow-redirects", "5"]), "bad_redirect"), 12);
    assert_eq!(
        failed(&follow("/a/start", &[]), "unexpected_status"),
        12,
        "without the option a redirect is an ordinary response"
    );
}

#[test]
fn each_client_keeps_its_own_cookies() {
    let workspace = Workspace::concurrent();
    // A client without a cookie gets a new one; other clients keep theirs.
    let server = Scripted::numbered(|number, request| match request.field("cookie") {
        None => response("200 OK", &[&format!("Set-Cookie: id={number}; Path=/; HttpOnly")], b"new"),
        Some(_) => response("200 OK", &[], b"known"),
    });
    let url = server.url("/{client}");
    let document = run(&workspace, &["bench", &url, "-n", "60", "-c", "3", "--clients", "3", "--cookies"]);
    assert_eq!(count(&document, "load.completed"), 60);
    // One client's requests are sequential, independent of other clients.
    let mut cookies: BTreeMap<String, String> = BTreeMap::new();
    for (number, request) in server.requests().iter().enumerate() {
        match cookies.get(&request.target) {
            None => {
                assert_eq!(request.field("cookie"), None, "{} has no cookie yet", request.target);
                cookies.insert(request.target.clone(), format!("id={number}"));
            }
            Some(own) => assert_eq!(request.field("cookie").as_ref(), Some(own), "{}", request.target),
        }
    }
    assert_eq!(cookies.len(), 3);
    let without = run(&workspace, &["bench", &server.url("/"), "-n", "5", "-c", "1"]);
    assert_eq!(count(&without, "load.completed"), 5);
    assert!(
        server.requests()[60..].iter().all(|request| request.field("cookie").is_none()),
        "cookies are sent only with --cookies"
    );
}

/// A shop: the login response contains a token, pages need the token and the cookie, and each page embeds objects.
const SHOP: &str = include_str!("../../../../plans/shop.toml");

fn shop(request: &ReceivedRequest) -> Vec<u8> {
    let user = || request.field("cookie").and_then(|cookie| Some(cookie.strip_prefix("sid=")?.to_owned()));
    match (request.method.as_str(), request.target.as_str()) {
        ("POST", "/login") => {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let user = body["user"].as_str().unwrap();
            let token = format!("{{\"session\": {{\"token\": \"t {user}\"}}}}");
            response("201 Created", &[&format!("Set-Cookie: sid={user}; Path=/")], token.as_bytes())
        }
        ("GET", target) if target.starts_with("/item/") => match (user(), target.split_once("token=")) {
            (Some(user), Some((_, token))) if token == format!("t%20{user}") => {
                response("200 OK", &["Content-Type: text/html"], b"<input name=\"cart\" value=\"c42\">")
            }
            _ => response("403 Forbidden", &[], b"no"),
        },
        ("POST", "/cart") if request.body == b"cart=c42" => response("303 See Other", &["Location: /basket"], b""),
        ("GET", "/basket") if user().is_some() => response("200 OK", &[], b"your basket"),
        ("GET", "/site.css" | "/logo.png" | "/shop.js") => response("200 OK", &[], &[b'x'; 2000]),
        _ => response("404 Not Found", &[], b"nothing here"),
    }
}

#[test]
fn the_shop_example_runs() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(shop);
    // The plan for this server, without a path, and shorter.
    let plan = SHOP.replace("http://server:8080", &server.url("")).replace("duration = \"60s\"", "requests = 300");
    let plan: String = plan.split("\n[path]").next().unwrap().to_owned();
    let plan = plan.replace("rate = \"5/s\"", "rate = \"200/s\"");
    let plan = plan.replace("mean = \"3s\"", "mean = \"3ms\"").replace("think = \"2s\"", "think = \"2ms\"");
    assert!(plan.contains("requests = 300") && plan.contains("3ms") && !plan.contains("\n[server]"), "{plan}");
    fs::write(workspace.path().join("plan.toml"), plan).unwrap();
    let document = run(&workspace, &["run", "plan.toml"]);
    assert_eq!(
        document["load"]["failed"].as_object().map(|failed| failed.len()),
        Some(0),
        "{}",
        document["load"]["failed"]
    );
    let requests = server.requests();
    let number = |target: &str| requests.iter().filter(|request| request.target.starts_with(target)).count();
    assert!(number("/login") > 0 && number("/item/") > 0 && number("/basket") > 0, "{document}");
    assert_eq!(number("/favicon.ico"), 0);
    assert!(number("/site.css") > 0 && number("/logo.png") > 0);
}

#[test]
fn a_missing_extracted_value_ends_its_session() {
    let workspace = Workspace::concurrent();
    let server = Scripted::start(|_| response("200 OK", &[], b"{}"));
    let plan = |on_failure: &str| {
        format!(
            "[load]\nurl = \"{}\"\nrequests = 20\nconnections = 1\n[[load.request]]\nname = \"login\"\nurl = \"/login\"\n\
             extract = {{ token = {{ json = \"/token\" }} }}\n[[load.request]]\nname = \"page\"\nurl = \
             \"/page?t={{token}}\"\n[[load.session]]\non_failure = \"{on_failure}\"\nsteps = [{{ request = \"login\" }}, {{ \
             request = \"page\" }}]\n",
            server.url("")
        )
    };
    fs::write(workspace.path().join("end.toml"), plan("end")).unwrap();
    let document = run(&workspace, &["run", "end.toml"]);
    assert_eq!(failed(&document, "missing_value"), 20, "{}", document["load"]["failed"]);
    assert!(server.requests().iter().all(|request| request.target == "/login"), "no step follows the failed one");
    fs::write(workspace.path().join("on.toml"), plan("go_on")).unwrap();
    let document = run(&workspace, &["run", "on.toml"]);
    assert_eq!((failed(&document, "missing_value"), count(&document, "load.completed")), (10, 10));
}

/// Server and client generate the same catalogue: every object has the expected length, and existing files stay.
#[test]
fn generated_content_is_served_and_requested() {
    let workspace = Workspace::concurrent();
    let folder = workspace.path().join("content");
    let serve = |content: &str| {
        workspace.start(&["serve", str_of(&folder), "--make-content", content, "--listen", "127.0.0.1:0"])
    };
    let server = serve("specweb99:36,seed=4");
    let url = served(&server);
    let document = run(&workspace, &["bench", &url, "--content", "specweb99:36,seed=4", "-n", "500", "-c", "4"]);
    assert_eq!(count(&document, "load.completed"), 500, "{}", document["load"]["failed"]);
    let class = |class: u32| {
        let of = |url: &&String| url.contains(&format!("/class{class}_"));
        let counted = counts(&document);
        counted.iter().filter(|(url, _)| of(url)).map(|(_, &(completed, _))| completed).sum::<u64>()
    };
    // 35 %, 50 %, 14 %, 1 % of 500, within five standard deviations.
    for (number, share) in [(0, 0.35), (1, 0.5), (2, 0.14), (3, 0.01)] {
        let deviation = (500.0f64 * share * (1.0 - share)).sqrt();
        assert!((class(number) as f64 - 500.0 * share).abs() < 5.0 * deviation, "class {number}: {}", class(number));
    }
    let wrong = run(&workspace, &["bench", &url, "--content", "specweb99:72", "-n", "500", "-c", "4"]);
    assert!(failed(&wrong, "unexpected_status") > 0, "objects that were not generated are missing: {wrong}");
    drop(server);
    // A second start writes nothing; a file with other content is not overwritten.
    let again = serve("specweb99:36,seed=4");
    served(&again);
    assert!(again.stderr().contains("0 of them to write"), "{}", again.stderr());
    drop(again);
    fs::write(folder.join("dir00000/class0_0"), "mine").unwrap();
    let refused = serve("specweb99:36,seed=4").finish();
    assert!(refused.stderr.contains("class0_0") && refused.stderr.contains("not overwritten"), "{refused}");
    assert_eq!(fs::read(folder.join("dir00000/class0_0")).unwrap(), b"mine");
}

/// Waits until a server prints its address.
fn served(server: &crate::support::workspace::Running) -> String {
    let deadline = std::time::Instant::now() + crate::support::workspace::TEST_TIMEOUT;
    loop {
        let stderr = server.stderr();
        let url = stderr.find("http://").map(|at| &stderr[at..]);
        // The complete URL has arrived when another character follows it.
        if let Some((url, _)) = url.and_then(|url| url.split_once(' ')) {
            return url.to_owned();
        }
        assert!(std::time::Instant::now() < deadline, "{stderr}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
