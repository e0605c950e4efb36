//! The manager's API against openapi.json: routes and descriptions match, examples fit their schemas, and every
//! response is one that is described.

mod support {
    pub mod in_process;
    pub mod schema;
    pub mod scripted;
}

use std::collections::BTreeSet;

use axum::http::{Method, StatusCode};
use manager::Identity;
use manager::api;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use support::in_process::{Answered, Manager, SECOND_NS};
use support::schema::{Document, anything, texts};

fn document() -> Document {
    Document(serde_json::from_str(api::OPENAPI).unwrap())
}

/// Every operation: method, path, and description.
fn operations(document: &Document) -> Vec<(String, String, Value)> {
    let paths = document.0["paths"].as_object().unwrap();
    let of = |(path, methods): (&String, &Value)| -> Vec<_> {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(|(method, operation)| (method.clone(), path.clone(), operation.clone()))
            .collect()
    };
    paths.iter().flat_map(of).collect()
}

#[test]
fn openapi_document_and_routes_match() {
    let described: BTreeSet<(String, String)> =
        operations(&document()).into_iter().map(|(method, path, _)| (method, path)).collect();
    let mut known: BTreeSet<(String, String)> =
        api::known().iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    // The two routes of agents belong to the ingest.
    for path in ["hello", "batches"] {
        known.insert(("post".to_owned(), format!("/api/1/agents/{{agent}}/{path}")));
    }
    assert_eq!(described, known);
}

#[test]
fn openapi_document_is_consistent() {
    let document = document();
    assert_eq!(document.0["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id.clone()), "{id} twice");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{id}");
        let named: BTreeSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let documented: BTreeSet<&str> =
            parameters.iter().filter(|one| one["in"] == "path").map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(named, documented, "{method} {path}");
        assert!(operation["responses"]["4XX"].is_object() && operation["responses"]["503"].is_object(), "{id}");
    }
    let schemas = document.0["components"]["schemas"].as_object().unwrap();
    let mut examples = 0;
    for (name, schema) in schemas {
        if let Some(example) = schema.get("example") {
            document.check(schema, example, name).unwrap();
            examples += 1;
        }
    }
    assert!(examples > 25, "{examples}");
    // All references exist.
    let text = api::OPENAPI;
    for place in text.split("\"$ref\": \"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.0.pointer(place).is_some(), "{place}");
    }
}

/// JSON types of the columns of a day file.
#[test]
fn the_exchange_schema_has_the_columns_of_a_day_file() {
    let document = document();
    let exchange = &document.0["components"]["schemas"]["Exchange"];
    let names: BTreeSet<&str> = exchange["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let columns = <schema::FleetRow as schema::Record>::table().columns;
    assert_eq!(names, columns.iter().map(|column| column.name.as_str()).collect());
    for column in &columns {
        let kind = match column.kind {
            schema::table::Kind::Integer => "integer",
            schema::table::Kind::Float => "number",
            schema::table::Kind::Flag => "boolean",
            schema::table::Kind::Text => "string",
        };
        let expected = if column.nullable { json!([kind, "null"]) } else { json!(kind) };
        assert_eq!(exchange["properties"][&column.name]["type"], expected, "{}", column.name);
    }
}

/// Checks a response against its description; returns what is wrong.
fn judge(document: &Document, operation: &Value, answered: &Answered) -> Result<(), String> {
    let status = answered.status.as_u16();
    let responses = &operation["responses"];
    let described = match status {
        400..500 => &responses["4XX"],
        _ => responses.get(status.to_string()).unwrap_or(&Value::Null),
    };
    if described.is_null() || status >= 500 {
        return Err(format!("status {status}: {}", String::from_utf8_lossy(&answered.body)));
    }
    let Some(kinds) = described.get("content").and_then(Value::as_object) else {
        return if answered.body.is_empty() { Ok(()) } else { Err("a body where none is described".to_owned()) };
    };
    let kind = answered.kind.as_str();
    let Some(content) = kinds.get(kind) else { return Err(format!("{kind} is not described for {status}")) };
    match content.get("schema") {
        Some(schema) => {
            let value = serde_json::from_slice(&answered.body).map_err(|error| error.to_string())?;
            let schema = document.resolved(schema);
            // The document itself, and bodies without a further description.
            if schema == &json!({ "type": "object" }) { Ok(()) } else { document.check(schema, &value, "answer") }
        }
        None => Ok(()),
    }
}

/// A request to one of the operations, valid and invalid.
fn requests(document: &Document) -> BoxedStrategy<(usize, String, Option<Value>, &'static str)> {
    let all: Vec<BoxedStrategy<_>> = operations(document)
        .into_iter()
        .enumerate()
        // The ingest has its own tests.
        .filter(|(_, (_, path, _))| !path.ends_with("/hello") && !path.ends_with("/batches"))
        .map(|(at, (_, path, operation))| {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let mut url = Just(path).boxed();
            for parameter in parameters.iter().filter(|one| one["in"] == "path") {
                let name = format!("{{{}}}", parameter["name"].as_str().unwrap());
                const KNOWN: &[&str] =
                    &["kyoto-000", "osaka-010", "kyoto", "slow", "2026-11-23", "part-000001.parquet", "never-came"];
                let value = prop_oneof![3 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => texts()];
                url = (url, value).prop_map(move |(url, value)| url.replace(&name, &escaped(&value))).boxed();
            }
            let mut query = Just(Vec::<String>::new()).boxed();
            for parameter in parameters.iter().filter(|one| one["in"] == "query") {
                let name = parameter["name"].as_str().unwrap().to_owned();
                let fits = document.values(&parameter["schema"]).prop_map(|value| match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                });
                let value = prop_oneof![8 => Just(None), 3 => fits.prop_map(Some), 1 => texts().prop_map(Some)];
                query = (query, value)
                    .prop_map(move |(mut query, value)| {
                        query.extend(value.map(|value| format!("{name}={}", escaped(&value))));
                        query
                    })
                    .boxed();
            }
            let stray = prop_oneof![9 => Just(None), 1 => "[a-z_=&%]{1,12}".prop_map(Some)];
            let url = (url, query, stray).prop_map(|(url, mut query, stray)| {
                query.extend(stray);
                if query.is_empty() { url } else { format!("{url}?{}", query.join("&")) }
            });
            let body = match operation.pointer("/requestBody/content/application~1json/schema") {
                Some(schema) => prop_oneof![3 => document.values(schema), 1 => anything()].prop_map(Some).boxed(),
                None => Just(None).boxed(),
            };
            let kind = prop_oneof![9 => Just("application/json"), 1 => Just("text/plain")];
            (Just(at), url, body, kind).boxed()
        })
        .collect();
    proptest::strategy::Union::new(all).boxed()
}

fn escaped(text: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.bytes().map(|byte| if keeps(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[test]
fn random_requests_get_responses_that_match_the_openapi_document() {
    let (document, manager) = (document(), Manager::with_a_day(20));
    let operations = operations(&document);
    let config = Config { cases: 1500, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let outcome = runner.run(&requests(&document), |(at, url, body, kind)| {
        let (method, _, operation) = &operations[at];
        // Invalid URLs cannot be sent.
        prop_assume!(url.parse::<axum::http::Uri>().is_ok());
        let method: Method = method.to_uppercase().parse().unwrap();
        let answered = manager.request(
            Identity::Operator("o".into()),
            method.clone(),
            &url,
            body.as_ref(),
            &[("content-type", kind)],
        );
        seen.borrow_mut().insert((operation["operationId"].as_str().unwrap().to_owned(), answered.status.is_success()));
        judge(&document, operation, &answered)
            .map_err(|why| TestCaseError::fail(format!("{method} {url} {body:?}: {why}")))
    });
    outcome.unwrap();
    // Each operation succeeded at least once, and was refused at least once.
    let seen = seen.into_inner();
    for (_, path, operation) in &operations {
        if path.ends_with("/hello") || path.ends_with("/batches") {
            continue;
        }
        let id = operation["operationId"].as_str().unwrap().to_owned();
        // Random names of files and rules seldom exist.
        let is_lucky = ["day", "day_file", "put_alert", "remove_alert", "revoke_token"].contains(&id.as_str());
        assert!(is_lucky || seen.contains(&(id.clone(), true)), "{id} never succeeded");
        assert!(seen.contains(&(id.clone(), false)), "{id} was never refused");
    }
}

#[test]
fn readers_may_read_operators_may_change_and_agents_may_do_neither() {
    let manager = Manager::with_a_day(3);
    let document = document();
    let reader = || Identity::Reader("r".into());
    for (method, path, operation) in operations(&document) {
        if path.ends_with("/hello") || path.ends_with("/batches") {
            continue;
        }
        let url = path.replace("{agent}", "kyoto-000").replace(['{', '}'], "");
        let method: Method = method.to_uppercase().parse().unwrap();
        let body = operation.get("requestBody").map(|_| json!({}));
        let status = |who| {
            manager.request(who, method.clone(), &url, body.as_ref(), &[("content-type", "application/json")]).status
        };
        assert_eq!(status(Identity::Agent("kyoto-000".into())), StatusCode::FORBIDDEN, "{method} {url}");
        let may_read = method == Method::GET && !path.starts_with("/api/1/tokens");
        assert_eq!(status(reader()) == StatusCode::FORBIDDEN, !may_read, "{method} {url}");
        for who in [Identity::Operator("o".into()), Identity::Page] {
            assert_ne!(status(who), StatusCode::FORBIDDEN, "{method} {url}");
        }
    }
}

#[test]
fn cross_site_requests_neither_change_nor_read_anything() {
    let manager = Manager::with_a_day(3);
    let change = json!({ "group": "stolen" });
    let put = |headers: &[(&str, &str)]| {
        manager.request(Identity::Page, Method::PUT, "/api/1/agents/kyoto-000/settings", Some(&change), headers).status
    };
    let json = ("content-type", "application/json");
    for site in ["cross-site", "same-site", "", "x"] {
        assert_eq!(put(&[json, ("sec-fetch-site", site)]), StatusCode::FORBIDDEN, "{site}");
        let read = manager.request(Identity::Page, Method::GET, "/api/1/agents", None, &[("sec-fetch-site", site)]);
        assert_eq!(read.status, StatusCode::FORBIDDEN, "{site}");
    }
    // Requests that a form of another site can send without a preflight.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""] {
        assert_eq!(put(&[("content-type", kind)]), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    assert_eq!(put(&[json, ("sec-fetch-site", "same-origin")]), StatusCode::OK);
    assert_eq!(put(&[("content-type", "application/json; charset=utf-8")]), StatusCode::OK);
    // A link from elsewhere opens the page, visible only to its reader.
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
    assert_eq!(manager.request(Identity::Page, Method::GET, "/", None, &link).status, StatusCode::OK);
    assert_eq!(
        manager.request(Identity::Page, Method::GET, "/fleet.js", None, &link[..1]).status,
        StatusCode::FORBIDDEN
    );
}

#[test]
fn exchange_pages_and_exports_contain_every_row_once() {
    let manager = Manager::with_a_day(12);
    let operator = || Identity::Operator("o".into());
    let of = |row: &Value| (row["stream"].clone(), row["sequence"].as_u64().unwrap(), row["number"].as_u64().unwrap());
    for condition in [
        "",
        "&group=osaka",
        "&agent=kyoto-000,kyoto-001&outcome=failed,succeeded",
        "&port=443&peer=192.0.2.1",
        "&program=nobody",
    ] {
        let (mut rows, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let after = cursor.as_deref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
            let url = format!("/api/1/exchanges?since=3d&limit=97{condition}{after}");
            let page = manager.request(operator(), Method::GET, &url, None, &[]).json();
            rows.extend(page["exchanges"].as_array().unwrap().iter().map(of));
            pages += 1;
            match page.get("cursor") {
                Some(next) => cursor = Some(next.as_str().unwrap().to_owned()),
                None => break,
            }
            assert!(pages < 1000);
        }
        let unique: BTreeSet<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        assert_eq!(unique.len(), rows.len(), "{condition}");
        let exported = manager.request(
            operator(),
            Method::GET,
            &format!("/api/1/exchanges/export?since=3d{condition}"),
            None,
            &[],
        );
        let lines: Vec<_> = exported.text().lines().map(|line| of(&serde_json::from_str(line).unwrap())).collect();
        assert_eq!(lines, rows, "{condition}: the same rows, in the same order");
        let csv = manager.request(
            operator(),
            Method::GET,
            &format!("/api/1/exchanges/export?since=3d&format=csv{condition}"),
            None,
            &[],
        );
        assert_eq!(csv.text().lines().count(), rows.len() + 1);
        let url = format!("/api/1/exchanges/export?since=3d&format=parquet{condition}");
        let parquet = manager.request(operator(), Method::GET, &url, None, &[]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &parquet.body).unwrap();
        assert_eq!(store::PartFile::<schema::FleetRow>::open(file.path()).unwrap().rows(), rows.len() as u64);
        if condition.is_empty() {
            assert_eq!(rows.len() as u64, manager.rows);
        }
    }
    // No file of an export is left in the folder.
    let left = std::fs::read_dir(manager.folder())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("export"));
    assert_eq!(left.count(), 0);
}

#[test]
fn day_files_are_served_unchanged_and_no_other_files() {
    let manager = Manager::with_a_day(3);
    let get = |url: &str| manager.request(Identity::Reader("r".into()), Method::GET, url, None, &[]);
    let days = get("/api/1/days").json();
    let mut files = 0;
    for day in days["days"].as_array().unwrap() {
        let day = day["day"].as_str().unwrap();
        for part in get(&format!("/api/1/days/{day}")).json()["parts"].as_array().unwrap() {
            let file = part["file"].as_str().unwrap();
            let body = get(&format!("/api/1/days/{day}/{file}")).body;
            assert_eq!(body, std::fs::read(manager.folder().join("days").join(day).join(file)).unwrap());
            files += 1;
        }
    }
    assert!(files > 0);
    for url in [
        "/api/1/days/..%2f",
        "/api/1/days/../index.sqlite",
        "/api/1/days/%2e%2e/index.sqlite",
        "/api/1/days/2026-11-23/..%2f..%2findex.sqlite",
    ] {
        assert_eq!(get(url).status, StatusCode::NOT_FOUND, "{url}");
    }
}

#[test]
fn settings_changes_reach_one_agent_or_a_group() {
    let manager = Manager::with_a_day(12);
    let put = |url: &str, body: Value| {
        manager.request(
            Identity::Operator("o".into()),
            Method::PUT,
            url,
            Some(&body),
            &[("content-type", "application/json")],
        )
    };
    let one = put("/api/1/agents/kyoto-000/settings", json!({ "only": ["443"], "share": 0.5 })).json();
    assert_eq!(
        (&one["settings"]["version"], &one["settings"]["share"], &one["group"]),
        (&json!(2), &json!(0.5), &json!("kyoto"))
    );
    let repeated = put("/api/1/agents/kyoto-000/settings", json!({ "share": 0.5 })).json();
    assert_eq!(
        repeated["settings"], one["settings"],
        "absent fields are unchanged, and equal values do not raise the version"
    );
    let all = put("/api/1/groups/osaka/settings", json!({ "programs": ["curl"] })).json();
    let names: Vec<&str> =
        all["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert!(names.len() > 1 && names.iter().all(|name| name.starts_with("osaka-")), "{names:?}");
    // An invalid change is applied to no agent.
    assert_eq!(put("/api/1/groups/osaka/settings", json!({ "share": 2 })).status, StatusCode::UNPROCESSABLE_ENTITY);
    let stored = manager.heartbeat("osaka-004", 1);
    assert_eq!(stored["settings"]["programs"], json!(["curl"]));
    let agents = manager.request(Identity::Page, Method::GET, "/api/1/agents?group=osaka", None, &[]).json();
    assert!(agents["agents"].as_array().unwrap().iter().all(|agent| agent["settings"]["version"] == 2));
}

#[test]
fn a_token_is_shown_once_and_rejected_after_revocation() {
    let manager = Manager::with_a_day(1);
    let send = |method: Method, url: &str, body: Option<Value>| {
        manager.request(Identity::Page, method, url, body.as_ref(), &[("content-type", "application/json")])
    };
    let made = send(Method::POST, "/api/1/tokens", Some(json!({ "name": "new-one", "role": "reader" })));
    assert_eq!(made.status, StatusCode::CREATED);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("new-one."));
    let listed = send(Method::GET, "/api/1/tokens", None).text();
    assert!(listed.contains("new-one") && !listed.contains(&token[8..]));
    assert_eq!(send(Method::DELETE, "/api/1/tokens/new-one", None).status, StatusCode::NO_CONTENT);
    assert_eq!(send(Method::DELETE, "/api/1/tokens/new-one", None).status, StatusCode::NOT_FOUND);
}

#[test]
fn agents_are_listed_as_connected_away_or_never() {
    let manager = Manager::with_a_day(20);
    let now = manager.now_ns;
    let agents = manager.request(Identity::Page, Method::GET, "/api/1/agents", None, &[]).json();
    let of =
        |name: &str| agents["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == name).unwrap().clone();
    let (fine, disconnected, unconnected) =
        (of("kyoto-000"), of(manager.name_of(support::scripted::DISCONNECTED_AGENT)), of("never-came"));
    assert_eq!(
        (&fine["state"], &disconnected["state"], &unconnected["state"]),
        (&json!("connected"), &json!("away"), &json!("never"))
    );
    assert_eq!((&unconnected["last_seen_unix_ns"], &unconnected["has_token"]), (&Value::Null, &json!(true)));
    let wrong = of(manager.name_of(support::scripted::WRONG_CLOCK_AT))["clock_offset_ns"].as_i64().unwrap();
    assert_eq!(wrong, 420 * SECOND_NS as i64);
    assert_eq!(of(manager.name_of(support::scripted::LOSES_AT))["losses"]["records"], 1234);
    let hostile = manager.request(
        Identity::Page,
        Method::GET,
        &format!("/api/1/agents/{}", manager.name_of(support::scripted::HOSTILE_AT)),
        None,
        &[],
    );
    assert_eq!(hostile.json()["host"], support::scripted::HOSTILE);
    assert!(fine["last_seen_unix_ns"].as_u64().unwrap() <= now + 600 * SECOND_NS);
    for (query, count) in [("state=away", 1), ("state=never", 1), ("search=OSAKA", 6), ("group=", 3), ("limit=5", 5)] {
        let found = manager.request(Identity::Page, Method::GET, &format!("/api/1/agents?{query}"), None, &[]).json();
        assert_eq!(found["agents"].as_array().unwrap().len(), count, "{query}: {found}");
    }
}

/// The complete events of a stream: name, id and data.
fn events(text: &str) -> Vec<(String, String, Value)> {
    let field = |event: &str, name: &str| event.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned()));
    let of = |event: &str| {
        Some((field(event, "event: ")?, field(event, "id: ")?, serde_json::from_str(&field(event, "data: ")?).ok()?))
    };
    let (whole, _) = text.rsplit_once("\n\n").unwrap_or_default();
    whole.split("\n\n").filter_map(of).collect()
}

#[test]
fn viewers_receive_the_full_state_and_then_identical_changes() {
    let manager = Manager::with_a_day(20);
    let overview = api::Overview::start(&manager.state).unwrap();
    let (_, mut first) = manager.stream("/events");
    let (_, mut second) = manager.stream("/events");
    for stream in [&mut first, &mut second] {
        assert!(stream.until(|text| events(text).iter().any(|(name, ..)| name == "snapshot")));
        let (_, _, whole) = events(&stream.text).into_iter().find(|(name, ..)| name == "snapshot").unwrap();
        assert_eq!(whole["agents"].as_object().unwrap().len(), 21);
        assert_eq!(whole["agents"]["kyoto-000"]["state"], "connected");
        assert_eq!(whole["agents"]["kyoto-000"]["hour"]["response_p99_ns"].as_array().unwrap().len(), 60);
        assert_eq!(whole["agents"][manager.name_of(support::scripted::HOSTILE_AT)]["host"], support::scripted::HOSTILE);
        assert!(whole["head"]["alerts"].is_array());
    }
    let change = json!({ "share": 0.25 });
    let json = [("content-type", "application/json")];
    manager.request(Identity::Page, Method::PUT, "/api/1/agents/kyoto-000/settings", Some(&change), &json).json();
    let tells =
        |text: &str| events(text).iter().any(|(_, _, data)| data["agents"]["kyoto-000"]["settings"]["share"] == 0.25);
    assert!(first.until(tells) && second.until(tells));
    // Both viewers received the same bytes for the same id.
    let mut shared = 0;
    for event in events(&first.text) {
        if let Some(other) = events(&second.text).iter().find(|other| other.1 == event.1) {
            assert_eq!(&event, other);
            shared += 1;
        }
    }
    assert!(shared > 0);
    drop(overview);
    assert!(first.until(|text| text.ends_with("event: end\ndata: {}\n\n")));
}

#[test]
fn concurrent_file_readers_are_limited() {
    let manager = Manager::with_a_day(20);
    let url = "/api/1/exchanges/export?since=3d";
    // Viewers that do not read: each takes a permit.
    let streams: Vec<_> = (0..4).map(|_| manager.stream(url)).collect();
    assert!(streams.iter().all(|(status, _)| *status == StatusCode::OK));
    let status_of = |url: &str| manager.request(Identity::Page, Method::GET, url, None, &[]).status;
    assert_eq!(status_of(url), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status_of("/api/1/agents"), StatusCode::OK, "short requests are not blocked by long ones");
    drop(streams);
    // Their threads detect closed connections after an unknown time.
    while status_of("/api/1/exchanges?since=3d") == StatusCode::TOO_MANY_REQUESTS {
        std::thread::yield_now();
    }
    // A time that no event needs.
    let data = manager::Data::open_shared(manager.folder(), false).unwrap();
    let sql = "INSERT INTO parts (day, file, rows, bytes, first_at, last_at, made_at) VALUES ('2001-01-01', 'x', 20000001, 1, ?1, ?1, 1)";
    data.change(|index| index.execute(sql, [978_350_400_000_000_000_i64])).unwrap();
    assert_eq!(status_of("/api/1/exchanges/export?since=2001-01-01&until=2001-01-02"), StatusCode::PAYLOAD_TOO_LARGE);
    // A listed file is missing: the transfer ends early.
    let sql = "UPDATE parts SET rows = 7 WHERE file = 'x'";
    data.change(|index| index.execute(sql, [])).unwrap();
    let (status, mut broken) = manager.stream("/api/1/exchanges/export?since=2001-01-01&until=2001-01-02");
    assert_eq!(status, StatusCode::OK);
    assert!(broken.fails(), "an export with a missing file must look incomplete");
}
