//! JSON Schema as far as openapi.json uses it: validates values, and generates them.

use proptest::collection::vec;
use proptest::prelude::*;
use regex::Regex;
use serde_json::{Map, Value, json};

/// An OpenAPI document.
#[derive(Clone, Debug)]
pub struct Document(pub Value);

impl Document {
    /// A schema with references resolved.
    pub fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(place) => {
                self.resolved(self.0.pointer(place.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{place}")))
            }
            None => schema,
        }
    }

    /// What is wrong with a value. Fields without a schema are wrong: the document describes all.
    pub fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schema = self.resolved(schema);
        let fields = schema.as_object().unwrap();
        if let Some(others) = fields.get("anyOf") {
            let found = others.as_array().unwrap().iter().map(|other| self.check(other, value, at));
            return found.reduce(|a, b| a.or(b)).unwrap();
        }
        for (keyword, expected) in fields {
            let is_so = match keyword.as_str() {
                "type" => one_or_many(expected).iter().any(|kind| is_of(value, kind)),
                "enum" => expected.as_array().unwrap().contains(value),
                "pattern" => {
                    value.as_str().is_none_or(|text| Regex::new(expected.as_str().unwrap()).unwrap().is_match(text))
                }
                "minLength" => {
                    value.as_str().is_none_or(|text| text.chars().count() as u64 >= expected.as_u64().unwrap())
                }
                "maxLength" => {
                    value.as_str().is_none_or(|text| text.chars().count() as u64 <= expected.as_u64().unwrap())
                }
                "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= expected.as_u64().unwrap()),
                "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= expected.as_u64().unwrap()),
                "minimum" => value.as_f64().is_none_or(|number| number >= expected.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|number| number <= expected.as_f64().unwrap()),
                "exclusiveMinimum" => value.as_f64().is_none_or(|number| number > expected.as_f64().unwrap()),
                "exclusiveMaximum" => value.as_f64().is_none_or(|number| number < expected.as_f64().unwrap()),
                "required" => value.as_object().is_none_or(|object| {
                    expected.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
                }),
                "items" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(expected, item, &format!("{at}[{number}]"))?;
                    }
                    true
                }
                "properties" => {
                    for (name, field) in value.as_object().into_iter().flatten() {
                        match expected.get(name) {
                            Some(schema) => self.check(schema, field, &format!("{at}.{name}"))?,
                            None => return Err(format!("{at}.{name} is not in the schema")),
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    if expected.is_object() {
                        for (name, field) in value.as_object().into_iter().flatten() {
                            self.check(expected, field, &format!("{at}.{name}"))?;
                        }
                    }
                    true
                }
                "description" | "default" | "example" => true,
                other => return Err(format!("{at}: this does not know `{other}`")),
            };
            if !is_so {
                return Err(format!("{at}: {value} is not {keyword} {expected}"));
            }
        }
        Ok(())
    }

    /// Generates valid values.
    pub fn values(&self, schema: &Value) -> BoxedStrategy<Value> {
        let schema = self.resolved(schema);
        if let Some(words) = schema.get("enum") {
            return prop::sample::select(words.as_array().unwrap().clone()).boxed();
        }
        match schema["type"].as_str() {
            Some("string") => match schema.get("pattern").and_then(Value::as_str) {
                // The generator has no anchors: it produces whole texts.
                Some(pattern) => {
                    let whole = pattern.trim_start_matches('^').trim_end_matches('$');
                    prop::string::string_regex(whole).unwrap().prop_map(Value::from).boxed()
                }
                None => texts().prop_map(Value::from).boxed(),
            },
            Some("integer") => {
                let bound =
                    |name: &str, otherwise: u64| schema.get(name).map_or(otherwise, |value| value.as_u64().unwrap());
                let (least, greatest) = (bound("minimum", 0), bound("maximum", 1 << 40));
                prop_oneof![(least..=greatest), Just(least), Just(greatest)].prop_map(Value::from).boxed()
            }
            Some("number") => {
                prop_oneof![Just(0.5), Just(0.95), Just(1.0), Just(1e-6), 0.0..1.0_f64].prop_map(|n| json!(n)).boxed()
            }
            Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
            Some("array") => vec(self.values(&schema["items"]), 0..4).prop_map(Value::from).boxed(),
            Some("object") => {
                let required: Vec<&str> =
                    schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                let mut whole = Just(Map::new()).boxed();
                for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                    let (name, is_required) = (name.clone(), required.contains(&name.as_str()));
                    let field = if is_required {
                        self.values(field).prop_map(Some).boxed()
                    } else {
                        prop::option::of(self.values(field)).boxed()
                    };
                    whole = (whole, field)
                        .prop_map(move |(mut object, field)| {
                            object.extend(field.map(|field| (name.clone(), field)));
                            object
                        })
                        .boxed();
                }
                whole.prop_map(Value::Object).boxed()
            }
            other => panic!("values of {other:?}: {schema}"),
        }
    }
}

/// Text that has a meaning in the API, and text without one.
pub fn texts() -> BoxedStrategy<String> {
    const KNOWN: &[&str] = &[
        "kyoto",
        "osaka",
        "kyoto-000",
        "osaka-010",
        "curl",
        "443",
        "192.0.2.0/24",
        "192.0.2.1",
        "1h",
        "24h",
        "7d",
        "15min",
        "0s",
        "2026-11-22T10:00:00Z",
        "2026-11-22 10:00",
        "1970-01-01",
        "2199-12-31",
        "9223372036854775807",
        "1",
        "250ms",
        "1%",
        "99%",
        "client",
        "both",
        "succeeded,failed",
        "h:0123456789abcdef",
        "<script>window.ran=1</script>",
        "",
        "..",
        "%00",
        "a,b,c",
        "1795392000000000000.00000000000000000000000000000000.1.1",
    ];
    let known = prop::sample::select(KNOWN).prop_map(str::to_owned);
    prop_oneof![4 => known, 1 => ".{0,40}", 1 => "[ -~]{0,300}"].boxed()
}

/// Any JSON.
pub fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,8}", inner, 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
    .boxed()
}

fn one_or_many(kinds: &Value) -> Vec<&str> {
    match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type: {other}"),
    }
}
