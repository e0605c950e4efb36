//! Differences between two plans, field by field.

use std::collections::{BTreeMap, BTreeSet};

use plan::Plan;
use schema::compare_part::PlanDifference;
use toml::Value;

/// Fields without effect on the measurement: name, seed, objective.
const IRRELEVANT_FIELDS: [&str; 3] = ["name", "seed", "slo"];
/// Tables and fields that are the subject of a comparison.
const SUBJECT_FIELDS: [&str; 4] = ["server", "target", "load.proxy", "load.unix"];

/// Fields in which two stored plans differ. Defaults are written out first, if this version can read the plan.
///
/// # Errors
/// One of them is not valid TOML.
pub(crate) fn differences(a: &str, b: &str) -> Result<Vec<PlanDifference>, String> {
    let (a, b) = (fields(a)?, fields(b)?);
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differ = names.into_iter().filter(|name| a.get(*name) != b.get(*name) && !is_of(name, &IRRELEVANT_FIELDS));
    Ok(differ
        .map(|name| {
            let (a, b) = (a.get(name), b.get(name));
            let elsewhere = name == "load.url" && a.map(|url| without_host(url)) == b.map(|url| without_host(url));
            let [a, b] = [a, b].map(|value| value.map(|value| shown(name, value)));
            PlanDifference { field: name.clone(), subject: elsewhere || is_of(name, &SUBJECT_FIELDS), a, b }
        })
        .collect())
}

/// A field's value without credentials, since differences are in the document.
fn shown(name: &str, value: &str) -> String {
    let head = format!("{} = ", name.rsplit('.').next().unwrap_or(name));
    let line = schema::withheld::plan(&format!("{head}{value}"));
    line.strip_prefix(&head).unwrap_or_default().to_owned()
}

/// Names and values, as a list in a sentence.
pub(crate) fn listed<'a>(differences: impl Iterator<Item = &'a PlanDifference>) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let one = |one: &PlanDifference| format!("{} ({} and {})", one.field, value(&one.a), value(&one.b));
    differences.map(one).collect::<Vec<_>>().join(", ")
}

fn is_of(name: &str, tables: &[&str]) -> bool {
    let below = |table: &&str| name.strip_prefix(*table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    tables.iter().any(below)
}

/// A URL without scheme, host and port: the address does not change what is requested.
fn without_host(url: &str) -> String {
    let url = url.trim_matches('"');
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    format!("{scheme}:{}", rest.split_once('/').map_or("", |(_, path)| path))
}

fn fields(text: &str) -> Result<BTreeMap<String, String>, String> {
    let whole = Plan::from_toml(text, "plan.toml").map(|plan| plan.to_toml());
    let value: Value = toml::from_str(whole.as_deref().unwrap_or(text)).map_err(|error| error.message().to_owned())?;
    let mut fields = BTreeMap::new();
    flatten("", &value, &mut fields);
    Ok(fields)
}

fn flatten(name: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (key, value) in table {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, fields);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_table) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&format!("{name}[{index}]"), value, fields);
            }
        }
        other => {
            fields.insert(name.to_owned(), other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(load: &str, rest: &str) -> String {
        format!("name = \"x\"\nseed = 3\n[load]\nduration = \"5s\"\n{load}\n{rest}")
    }

    fn names(differences: &[PlanDifference], subject: bool) -> Vec<&str> {
        differences.iter().filter(|one| one.subject == subject).map(|one| one.field.as_str()).collect()
    }

    #[test]
    fn differing_plan_fields_are_listed_once() {
        let a =
            plan("url = \"http://server/a\"\nrate = \"100/s\"", "[path]\nrtt = \"0ms\"\n[server]\ncommand = \"one\"");
        let b = plan(
            "url = \"http://server/a\"\nrate = \"110/s\"\nheaders = [\"A: b\"]",
            "[path]\nrtt = \"48ms\"\n[server]\ncommand = \"two\"\ncpu = \"50%\"",
        );
        let differing = differences(&a, &b).unwrap();
        assert_eq!(names(&differing, true), ["server.command", "server.cpu"]);
        assert_eq!(names(&differing, false), ["load.headers", "load.rate", "path.rtt"]);
        assert_eq!(
            listed(differing.iter().filter(|one| one.field == "load.headers" || one.field == "path.rtt")),
            "load.headers (nothing and [\"A: b\"]), path.rtt (\"0s\" and \"48ms\")"
        );
        assert!(differences(&a, &a).unwrap().is_empty());
    }

    /// Different credentials are reported without their values.
    #[test]
    fn differing_credentials_are_reported_without_values() {
        let of = |secret: &str| {
            let load = format!(
                "url = \"http://server/a\"\nrate = \"100/s\"\nbasic_auth = \"u:{secret}\"\nheaders = [\"A: b\", \"Cookie: {secret}\"]"
            );
            plan(&load, "")
        };
        let differing = differences(&of("s3cret-1"), &of("s3cret-2")).unwrap();
        assert_eq!(names(&differing, false), ["load.basic_auth", "load.headers"]);
        assert_eq!(
            listed(differing.iter()),
            "load.basic_auth (\"..\" and \"..\"), load.headers ([\"A: b\", \"Cookie: ..\"] and [\"A: b\", \"Cookie: ..\"])"
        );
    }

    /// Defaults that an earlier version did not write are no difference; names and seeds never are.
    #[test]
    fn plan_name_seed_and_objective_are_no_difference() {
        let short = plan("url = \"http://127.0.0.1/\"\nconnections = 4", "");
        let whole = Plan::from_toml(&short, "x").unwrap().to_toml();
        let other = short.replace("name = \"x\"", "name = \"y\"").replace("seed = 3", "seed = 4\nslo = \"p99 < 1s\"");
        for text in [whole, other] {
            let differing = differences(&short, &text).unwrap();
            assert!(differing.is_empty(), "{differing:?}");
        }
    }

    /// Another host or port is a subject of comparison; another page is not.
    #[test]
    fn another_address_is_a_subject_and_another_page_is_not() {
        let of = |url: &str| plan(&format!("url = \"{url}\"\nconnections = 4"), "");
        let differing = |b: &str| {
            let differing = differences(&of("http://127.0.0.1:8080/page"), &of(b)).unwrap();
            (differing.len(), differing.iter().all(|one| one.subject))
        };
        assert_eq!(differing("http://127.0.0.1:8081/page"), (1, true));
        assert_eq!(differing("http://127.0.0.1:8080/other"), (1, false));
        assert!(!differing("https://127.0.0.1:8080/page").1);
    }

    /// A file that cannot be read as a plan is compared as text.
    #[test]
    fn plan_of_another_version_is_compared_as_text() {
        let differing = differences("[load]\nnew = 1\nold = \"x\"", "[load]\nnew = 2\nold = \"x\"").unwrap();
        assert_eq!(names(&differing, false), ["load.new"]);
        assert!(differences("[load", "").is_err());
    }
}
