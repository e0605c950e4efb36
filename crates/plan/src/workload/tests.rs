//! Workloads of plans: their meaning, refused contradictions with a hint, and printing and reading back.

use std::fs;

use load::workload::{BodyExpected, Choice, Piece, Source, Think, When};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::Plan;

fn plan(load: &str) -> Result<Plan, String> {
    Plan::from_toml(&format!("[load]\nduration = \"1s\"\n{load}"), "plan.toml").map_err(|error| error.to_string())
}

fn workload(load: &str) -> load::Workload {
    plan(load).unwrap().load.workload().unwrap()
}

fn refused(load: &str, words: &[&str]) {
    let message = plan(load).map(drop).unwrap_err();
    assert_eq!(message.lines().count(), 1, "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` in: {message}");
    }
}

const SHOP: &str = r#"
url = "http://server:8080"
cookies = true
redirects = 3
basic_auth = "user{client}:pw"
headers = ["Accept: text/html", "X-Run: {session}"]
expect = { status = "2xx" }

[[load.request]]
name = "login"
url = "/login"
headers = ["accept: application/json"]
body = '{{"user": "u{client}"}}'
expect = { status = [200, 201], length = "1B..64KiB", body_matches = '"token"' }
extract = { token = { json = "/token" }, place = { header = "Location" } }

[[load.request]]
name = "page"
url = "/item/{random 1..100}?t={token}"
redirects = 0

[[load.request]]
name = "css"
url = "http://static.example/site.css"

[[load.session]]
name = "buyer"
weight = 3
steps = [
  { request = "login" },
  { request = "page", think = { exponential = { mean = "3s", max = "30s" } }, embedded = ["css", "css"], parallel = 2 },
  { request = "page", at = "1500ms" },
]

[[load.session]]
on_failure = "go_on"
steps = [{ request = "css", think = { log_normal = { median = "1s", sigma = 0.5, max = "10s" } } }, { request = "css", think = "2s" }]
"#;

#[test]
fn requests_sessions_and_extractions_become_a_workload() {
    let shop = workload(SHOP);
    assert!(shop.cookies && shop.variables == 2);
    let [login, page, css] = &shop.requests[..] else { panic!("{shop:?}") };
    assert_eq!((login.label(), login.method, login.redirects_max), ("login", Method::Post, 3));
    let names: Vec<&str> = login.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["X-Run", "accept"], "the request's header replaces the common one");
    assert_eq!(login.body.pieces[1], Piece::Client);
    assert_eq!(login.body.pieces[0], Piece::Text(br#"{"user": "u"#[..].into()));
    assert_eq!(login.expect.status, [200..=200, 201..=201]);
    assert_eq!(login.expect.length, Some(1..=65_536));
    assert!(matches!(login.expect.body, Some(BodyExpected::Matches(_))));
    let sources: Vec<_> = login.extract.iter().map(|extract| (extract.variable, &extract.source)).collect();
    assert!(matches!(
        &sources[..],
        [(0, Source::Header(_)), (1, Source::Json(_))]
            | [(1, Source::Header(_)), (0, Source::Json(_))]
            | [(1, Source::Json(_)), (0, Source::Header(_))]
            | [(0, Source::Json(_)), (1, Source::Header(_))]
    ));
    assert_eq!((page.method, page.redirects_max), (Method::Get, 0));
    assert_eq!((page.target.authority.as_str(), page.target.port), ("server:8080", 8080));
    assert!(matches!(page.path.pieces[1], Piece::Random(1, 100)) && matches!(page.path.pieces[3], Piece::Variable(_)));
    assert_eq!(page.expect.status, [200..=299]);
    assert_eq!((css.target.host.as_str(), css.path.is_literal()), ("static.example", true));
    assert!(login.basic_auth.is_some() && css.basic_auth == login.basic_auth);
    let Choice::Sessions(sessions) = &shop.choice else { panic!("{:?}", shop.choice) };
    assert_eq!((sessions[0].weight, sessions[1].weight), (3.0, 1.0));
    assert!(!sessions[0].goes_on && sessions[1].goes_on);
    let step = &sessions[0].steps[1];
    assert_eq!((step.request, &step.embedded[..], step.parallel), (1, &[2, 2][..], 2));
    assert!(matches!(step.when, When::After(Think::Exponential { mean, .. }) if mean == Duration::from_secs(3)));
    assert!(matches!(sessions[0].steps[0].when, When::After(Think::Constant(Duration::ZERO))));
    assert!(matches!(sessions[0].steps[2].when, When::At(at) if at == Duration::from_millis(1500)));
    assert_eq!(sessions[0].steps[0].parallel, PARALLEL);
    let read = plan(SHOP).unwrap();
    let printed = read.to_toml();
    assert_eq!(Plan::from_toml(&printed, "printed").unwrap(), read, "{printed}");
    assert_eq!(read.load.stated_urls()[1], "http://server:8080/login");
}

#[test]
fn one_url_may_have_placeholders_in_its_path() {
    let one = workload("url = \"http://h/u/{client}?n={random 1..9}\"\n");
    assert_eq!(one.requests[0].label(), "http://h/u/{client}?n={random 1..9}");
    assert_eq!(one.requests[0].path.pieces.len(), 4);
    let plain = workload("url = \"http://h:81\"\n");
    assert_eq!((plain.requests[0].label(), plain.requests[0].name.as_deref()), ("http://h:81", None));
    assert_eq!(plain.requests[0].path, load::workload::Template::literal("/"));
    let braces = workload("url = \"http://h/?q={{a}}\"\n");
    assert_eq!(braces.requests[0].path, load::workload::Template::literal("/?q={a}"));
    refused("url = \"http://{client}.example/\"\n", &["in its host"]);
    refused("url = \"http://h/{user}\"\n", &["`{user}` is not a valid placeholder", "{client}"]);
    refused("url = \"http://h/a b{client}\"\n", &["%20"]);
    refused("url = \"h/\"\n", &["did you mean http://h/"]);
}

#[test]
fn several_requests_are_chosen_in_turn_or_by_weight() {
    let two = |more: &str, weight: &str| {
        plan(&format!(
            "{more}\n[[load.request]]\nurl = \"http://a/\"\n{weight}\n[[load.request]]\nurl = \"http://b/\"\n"
        ))
    };
    let in_turn = two("", "").unwrap();
    assert_eq!(in_turn.load.choice, Some(ChoicePlan::InTurn), "defaults are written out");
    assert!(matches!(in_turn.load.workload().unwrap().choice, Choice::InTurn));
    let drawn = two("", "weight = 2.5").unwrap();
    assert_eq!(drawn.load.choice, Some(ChoicePlan::Weighted));
    let drawn = drawn.load.workload().unwrap();
    assert!(matches!(drawn.choice, Choice::Drawn));
    assert_eq!((drawn.requests[0].weight, drawn.requests[1].weight), (2.5, 1.0));
    assert!(two("choice = \"in_turn\"", "weight = 2").unwrap_err().contains("leave choice"));
    for bad in ["weight = 0", "weight = -1", "weight = inf", "weight = nan"] {
        assert!(two("", bad).unwrap_err().contains("above 0"), "{bad}");
    }
}

#[test]
fn contradicting_requests_are_refused() {
    let request = "[[load.request]]\nname = \"a\"\nurl = \"http://h/\"\n";
    refused("", &["nothing to request", "[[load.request]]"]);
    refused(&format!("urls = \"u\"\n{request}"), &["[[load.request]] and urls", "leave one"]);
    refused("[load.content]\nmodel = \"even\"\nobjects = 1\n", &["needs a url"]);
    refused(&format!("url = \"http://h/x\"\n{request}"), &["leave its path out"]);
    refused(&format!("method = \"PUT\"\n{request}"), &["in each [[load.request]]"]);
    refused("[[load.request]]\nurl = \"/x\"\n", &["begins with /", "url under [load]"]);
    refused(&format!("{request}frob = 1\n"), &["`frob`", "`extract`"]);
    refused(&format!("{request}body = \"a\"\nbody_file = \"b\"\n"), &["request `a`", "leave one of the two out"]);
    refused(&format!("{request}expect = {{}}\n"), &["request `a`", "expect is empty"]);
    refused(&format!("{request}method = \"HEAD\"\nexpect = {{ length = \"1KB\" }}\n"), &["HEAD has no body"]);
    refused(&format!("{request}basic_auth = \"user\"\n"), &["user:password"]);
    refused(&format!("{request}headers = [\"no colon\"]\n"), &["`no colon`"]);
    refused(
        &format!("{request}headers = [\"A: {{b}}\"]\n"),
        &["header A", "{{b}}".trim_matches('{').trim_matches('}')],
    );
    refused(&format!("{request}extract = {{ t = {{ json = \"/t\" }} }}\n"), &["[[load.session]]"]);
    refused(&format!("{request}extract = {{ client = {{ json = \"/t\" }} }}\n"), &["built in"]);
    refused("url = \"http://h/\"\nexpect = { status = \"6xx\" }\n", &["plan.toml:4", "`6xx`"]);
    refused("url = \"http://h/\"\nexpect = { length = 1000 }\n", &["plan.toml:4"]);
    refused("url = \"http://h/\"\nchoice = \"random\"\n", &["in_turn", "weighted"]);
}

#[test]
fn contradicting_sessions_are_refused() {
    let with = |extract: &str, session: &str| {
        format!(
            "[[load.request]]\nname = \"a\"\nurl = \"http://h/\"\n{extract}\n[[load.request]]\nname = \"b\"\nurl = \
             \"http://h/{{t}}\"\n[[load.session]]\nname = \"s\"\n{session}\n"
        )
    };
    let token = "extract = { t = { header = \"X-T\" } }";
    let fine = "steps = [{ request = \"a\" }, { request = \"b\" }]";
    assert!(plan(&with(token, fine)).is_ok());
    assert!(plan(&with(token, "steps = [{ request = \"a\", embedded = [\"b\"] }]")).is_ok());
    for (session, words) in [
        ("steps = []", &["session `s`", "no steps"][..]),
        ("steps = [{ request = \"b\" }, { request = \"a\" }]", &["step 1", "`b` needs {t}", "no earlier step"]),
        ("steps = [{ request = \"b\", embedded = [\"a\"] }]", &["needs {t}"]),
        ("steps = [{ request = \"a\" }]", &["`b` is in no session's steps"]),
        ("steps = [{ request = \"c\" }]", &["no request is named `c`", "a, b"]),
        ("steps = [{ request = \"a\", think = \"1s\", at = \"1s\" }, { request = \"b\" }]", &["think and at"]),
        ("steps = [{ request = \"a\", parallel = 2 }, { request = \"b\" }]", &["parallel"]),
        ("steps = [{ request = \"a\", think = \"25h\" }, { request = \"b\" }]", &["24h"]),
        ("steps = [{ request = \"a\", think = { uniform = [\"2s\", \"1s\"] } }, { request = \"b\" }]", &["uniform"]),
        ("steps = [{ request = \"a\", think = { gamma = 1 } }, { request = \"b\" }]", &["exponential", "log_normal"]),
        ("steps = [{ request = \"a\", think = 3 }, { request = \"b\" }]", &["\"3s\""]),
        ("steps = [{ request = \"a\" }, { request = \"b\" }]\nweight = 0", &["session `s`", "above 0"]),
        ("steps = [{ request = \"a\" }]\non_failure = \"stop\"", &["end", "go_on"]),
    ] {
        refused(&with(token, session), words);
    }
    refused(&with("", fine), &["`{t}` is not a valid placeholder"]);
    refused(&format!("choice = \"weighted\"\n{}", with(token, fine)), &["a session has a weight"]);
    refused(&with(token, fine).replace("name = \"b\"", "name = \"a\""), &["two requests are named `a`"]);
    refused("url = \"http://h/\"\n[[load.session]]\nsteps = [{ request = \"a\" }]\n", &["as [[load.request]]"]);
}

#[test]
fn a_list_of_urls_has_weights_and_the_requests_body() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("urls.txt"), "# two\n/a?b={c}\nhttp://other/\t3\n").unwrap();
    fs::write(folder.path().join("body.bin"), b"\xff{x}").unwrap();
    let mut plan = plan("url = \"http://h:81\"\nurls = \"urls.txt\"\nmethod = \"PUT\"\nbody = \"body.bin\"\n").unwrap();
    plan.load.find_files_from(folder.path());
    assert!(plan.load.urls.as_ref().unwrap().is_absolute() && plan.load.body.as_ref().unwrap().is_absolute());
    let list = plan.load.workload().unwrap();
    let labels: Vec<&str> = list.requests.iter().map(load::RequestSpec::label).collect();
    assert_eq!(labels, ["http://h:81/a?b={c}", "http://other/"]);
    assert!(matches!(list.choice, Choice::Drawn), "the request has a weight");
    assert!(list.requests.iter().all(|request| request.is_literal() && request.method == Method::Put));
    assert_eq!(list.requests[1].body, load::workload::Template::bytes(b"\xff{x}"), "a file is sent as it is");
    fs::write(folder.path().join("urls.txt"), "http://h/\nftp://h/\n").unwrap();
    let message = plan.load.workload().unwrap_err();
    assert!(message.contains("urls.txt") && message.contains("`ftp`"), "{message}");
    fs::remove_file(folder.path().join("urls.txt")).unwrap();
    assert!(plan.load.workload().unwrap_err().contains("--urls"), "the check alone must not read the file");
    assert!(plan.check().is_ok());
}

#[test]
fn a_list_of_more_than_65535_hosts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let list = |hosts: u32| {
        let lines: String = (0..hosts).map(|host| format!("http://H{}.h{}/\n", host / 256, host % 256)).collect();
        fs::write(folder.path().join("urls.txt"), lines).unwrap();
        let mut plan = plan("urls = \"urls.txt\"\n").unwrap();
        plan.load.find_files_from(folder.path());
        plan.load.workload().map(|list| list.endpoints().0.len())
    };
    assert_eq!(list(65_535), Ok(65_535));
    assert!(list(65_536).unwrap_err().contains("65536 hosts"));
}

#[test]
fn file_names_become_absolute() {
    let text = "url = \"https://h/\"\n[load.tls]\ncacert = \"ca.pem\"\ncert = \"/me.pem\"\n";
    let mut plan = plan(text).unwrap();
    plan.load.find_files_from(std::path::Path::new("/plans"));
    let tls = plan.load.tls.unwrap();
    assert_eq!((tls.cacert, tls.cert, tls.key), (Some("/plans/ca.pem".into()), Some("/me.pem".into()), None));
}

#[test]
fn a_content_model_becomes_requests() {
    let text = "url = \"http://h/files/\"\n[load.content]\nmodel = \"specweb99\"\nobjects = 36\n";
    let content = workload(text);
    assert_eq!(content.requests.len(), 36);
    assert!(matches!(content.choice, Choice::Drawn));
    let first = &content.requests[0];
    assert_eq!((first.label(), first.expect.length.clone()), ("http://h/files/dir00000/class0_0", Some(102..=102)));
    assert_eq!(first.expect.status, [200..=200]);
    let head = workload(&text.replace("[load.content]", "method = \"HEAD\"\n[load.content]"));
    assert_eq!(head.requests[0].expect.length, None);
    refused(&text.replace("36", "0"), &["0 objects"]);
    refused(&format!("{text}size = \"1KB\"\n"), &["own sizes"]);
    refused(&text.replace("specweb99", "specweb96"), &["specweb99"]);
    refused(&text.replace("[load.content]", "method = \"DELETE\"\n[load.content]"), &["GET or HEAD"]);
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9 \"'\\\\-]{0,8}"
}

fn expect() -> impl Strategy<Value = ExpectPlan> {
    let body = (0u8..4, ".{1,10}").prop_map(|(kind, text)| match kind {
        0 => (None, None, None),
        1 => (Some(text), None, None),
        2 => (None, Some(regex::escape(&text)), None),
        _ => (None, None, Some(text)),
    });
    let length = (0u64..1 << 40, option::of(0u64..1 << 40))
        .prop_map(|(from, more)| LengthRange { from, to: more.map(|more| from + more) });
    let status = prop::collection::vec(200u16..=599, 1..4)
        .prop_map(|from| StatusSet(from.into_iter().map(|from| from..=from).collect()));
    (status, option::of(length), body).prop_map(|(status, length, (body_contains, body_matches, body_is))| ExpectPlan {
        status: Some(status),
        length,
        body_contains,
        body_matches,
        body_is,
    })
}

fn think() -> impl Strategy<Value = ThinkPlan> {
    let time = || (1u64..80_000_000).prop_map(|micros| Time(Duration::from_micros(micros)));
    prop_oneof![
        time().prop_map(ThinkPlan::Constant),
        (time(), time()).prop_map(|(a, b)| ThinkPlan::Drawn(DrawnThink::Uniform([a.min(b), a.max(b)]))),
        (time(), time()).prop_map(|(a, b)| ThinkPlan::Drawn(DrawnThink::Exponential { mean: a.min(b), max: a.max(b) })),
        (time(), time(), 0.0f64..=10.0).prop_map(|(a, b, sigma)| {
            ThinkPlan::Drawn(DrawnThink::LogNormal { median: a.min(b), sigma, max: a.max(b) })
        }),
    ]
}

fn request() -> impl Strategy<Value = RequestPlan> {
    let url = prop_oneof![Just("/"), Just("/a/{client}?b={random 0..9}"), Just("http://other:81/{{x}}")];
    let body = option::of("[^{}]{0,20}(\\{sequence\\})?");
    let method = option::of(prop::sample::select(vec![Method::Get, Method::Put, Method::Delete]));
    (name(), url, body, method, option::of(expect()), option::of(any::<u8>()), any::<bool>()).prop_map(
        |(name, url, body, method, expect, redirects, extracts)| {
            let source = ExtractPlan { json: Some("/a/0".into()), ..ExtractPlan::default() };
            RequestPlan {
                name: Some(name),
                method,
                headers: vec!["X-A: {client}".into()],
                body,
                basic_auth: redirects.map(|number| format!("u{number}:p")),
                expect,
                extract: if extracts { [("v".to_owned(), source)].into() } else { BTreeMap::new() },
                redirects,
                ..RequestPlan::get(url)
            }
        },
    )
}

proptest! {
    #[test]
    fn a_workload_survives_printing_and_reading(
        requests in prop::collection::btree_map(name(), request(), 1..5),
        thinks in prop::collection::vec(option::of(think()), 5),
        (weight, parallel, goes_on, cookies) in (option::of(1e-6f64..1e6), 1u16..100, any::<bool>(), any::<bool>()),
    ) {
        let requests: Vec<RequestPlan> =
            requests.into_iter().map(|(name, request)| RequestPlan { name: Some(name), ..request }).collect();
        let steps = requests.iter().zip(&thinks).map(|(request, think)| StepPlan {
            request: request.label().to_owned(),
            think: think.clone(),
            at: think.is_none().then_some(Duration::from_millis(7)),
            embedded: vec![request.label().to_owned()],
            parallel: Some(parallel),
        });
        let session = SessionPlan {
            name: None,
            weight,
            on_failure: if goes_on { OnFailure::GoOn } else { OnFailure::End },
            steps: steps.collect(),
        };
        let mut plan = plan("url = \"http://h:81/\"\n").unwrap();
        (plan.load.request, plan.load.session, plan.load.cookies) = (requests, vec![session], cookies);
        prop_assert_eq!(plan.check().map_err(|error| error.to_string()), Ok(()));
        let text = plan.to_toml();
        let back = Plan::from_toml(&text, "printed").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&back, &plan, "\n{}", text);
        prop_assert!(back.load.workload().is_ok());
    }

    /// Any text is refused on one line, or read as a plan.
    #[test]
    fn any_workload_text_is_a_plan_or_an_error_on_one_line(text in "(\\[\\[load\\.(request|session)\\]\\]\n|(url|name|body|headers|steps|expect|extract|weight) = (\"[a-z/:{}]{0,9}\"|\\[\\]|\\{\\}|\\{ status = \"?[0-9x]{3}\"? \\}|1)\n){0,10}") {
        if let Err(message) = plan(&text) {
            prop_assert_eq!(message.lines().count(), 1, "{}", message);
        }
    }
}
