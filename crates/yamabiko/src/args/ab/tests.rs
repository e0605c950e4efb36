use super::*;

fn parsed(words: &str) -> Result<Invocation, Refused> {
    parse(words.split_whitespace().map(OsString::from))
}

fn options(words: &str) -> Options {
    match parsed(words) {
        Ok(Invocation::Run(options)) => *options,
        other => panic!("{words}: {other:?}"),
    }
}

fn refused(words: &str) -> (String, bool) {
    match parsed(words) {
        Err(Refused { message, usage }) => (message, usage),
        other => panic!("{words}: {other:?}"),
    }
}

#[test]
fn ab_options_are_parsed_as_by_getopt() {
    for words in [
        "-n 1000 -c 10 -k http://h/",
        "-n1000 -c10 -k http://h/",
        "-kn1000 -c10 http://h/",
        "-kc 10 -n 1000 -- http://h/",
        "-n 5 -kn 1000 -c 10 h/",
    ] {
        let options = options(words);
        assert_eq!((options.requests, options.concurrency, options.keep_alive), (1000, 10, true), "{words}");
        assert_eq!(options.url, "http://h/", "{words}");
    }
    let bare = options("http://h/");
    assert_eq!((bare.requests, bare.concurrency, bare.keep_alive), (1, 1, false));
    assert_eq!((bare.timeout, bare.method, bare.time_limit), (Duration::from_secs(30), Method::Get, None));
}

#[test]
fn ab_arguments_follow_the_verb_or_a_link_named_ab() {
    let of = |line: &str| words(line.split_whitespace().map(OsString::from));
    let strings = |words: &[&str]| Some(words.iter().map(OsString::from).collect::<Vec<_>>());
    assert_eq!(of("yamabiko ab -n 1 h/"), strings(&["-n", "1", "h/"]));
    assert_eq!(of("/usr/local/bin/ab -n 1 h/"), strings(&["-n", "1", "h/"]));
    assert_eq!(of("yamabiko ab"), strings(&[]));
    assert_eq!(of("yamabiko bench ab"), None);
    assert_eq!(of("yamabiko"), None);
}

#[test]
fn ab_time_limit_implies_a_request_count() {
    let limited = options("-n 20 -t 3 h/");
    assert_eq!((limited.requests, limited.time_limit), (50_000, Some(Duration::from_secs(3))));
    assert_eq!(options("-t 3 -n 20 h/").requests, 20);
}

#[test]
fn ab_headers_are_in_the_order_of_ab() {
    let options = options("-H X-A:1 -A user:pass -C a=1 -P p:q -C b=2 h/");
    assert_eq!(
        options.headers,
        ["Cookie: a=1; b=2", "Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic cDpx", "X-A:1"]
    );
}

#[test]
fn ab_body_has_a_content_type() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().display();
    let post = options(&format!("-p {name} h/"));
    assert_eq!((post.method, &post.headers[..]), (Method::Post, &["Content-Type: text/plain".to_owned()][..]));
    assert_eq!(options(&format!("-u {name} -T a/b h/")).headers, ["Content-Type: a/b"]);
    assert_eq!(refused(&format!("-i -p {name} h/")), ("Cannot mix POST with other methods".into(), false));
    let (message, usage) = refused("-p /nonexistent/file h/");
    assert_eq!(message, "ab: Could not open POST data file (/nonexistent/file): No such file or directory");
    assert!(!usage);
}

#[test]
fn ab_table_attributes_imply_html() {
    assert_eq!(options("h/").html, None);
    assert_eq!(options("-w h/").html.unwrap().cell, "bgcolor=white");
    assert_eq!(options("-z x h/").html.unwrap(), Attributes { cell: "x".into(), ..Attributes::default() });
}

#[test]
fn ab_urls_need_a_path() {
    assert_eq!(options("127.0.0.1:8080/a?b").url, "http://127.0.0.1:8080/a?b");
    assert_eq!(options("https://h/").url, "https://h/");
    for url in ["http://h", "h", "/", "http:///", "ftp://h/", "http://h:99999/"] {
        assert_eq!(refused(url), ("ab: invalid URL".into(), true), "{url}");
    }
}

#[test]
fn ab_refuses_wrong_input_with_its_own_messages() {
    for (words, message, usage) in [
        ("", "ab: wrong number of arguments", true),
        ("h/ -n 5", "ab: wrong number of arguments", true),
        ("-n", "ab: option requires an argument -- n", true),
        ("-Y h/", "ab: illegal option -- Y", true),
        ("-n 0 h/", "Invalid number of requests", false),
        ("-n ten h/", "Invalid number of requests", false),
        ("-n 10x h/", "Invalid number of requests", false),
        ("-n -5 h/", "Invalid number of requests", false),
        ("-c -1 h/", "ab: Invalid Concurrency [Range 0..200000]", true),
        ("-n 300000 -c 200001 h/", "ab: Invalid Concurrency [Range 0..200000]", true),
        ("-n 5 -c 9 h/", "ab: Cannot use concurrency level greater than total number of requests", true),
    ] {
        assert_eq!(refused(words), (message.into(), usage), "{words}");
    }
    for (words, expected) in [
        ("-B 127.0.0.2 h/", "-B is not supported"),
        ("-f SSL3 https://h/", "TLS1.2, TLS1.3"),
        ("-m BREW h/", "GET, HEAD, POST, PUT"),
        ("-X proxy h/", "HOST:PORT"),
    ] {
        let (message, usage) = refused(words);
        assert!(message.contains(expected) && usage, "{message}");
    }
}

#[test]
fn ab_help_and_version_precede_other_arguments() {
    assert!(matches!(parsed("-h"), Ok(Invocation::Usage)));
    assert!(matches!(parsed("-kV"), Ok(Invocation::Version)));
    assert!(matches!(parsed("-n 5 --help"), Ok(Invocation::Help)));
}
