//! `docs/reference/plan.md`: every key of a plan file, from the structs that read it.
//!
//! A key's meaning is the doc comment of its field, which is also the help of the option of the same name, followed by
//! the field's comment `// Plan: ..`, which is about the file only. rustfmt puts each field on its own line, so the
//! sources are read line by line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    BurstsPlan, CacheWorkloadPlan, CapacityPlan, ComponentsPlan, ExpectPlan, ExtractPlan, HostPlan, Http3Plan,
    LoadPlan, OriginPlan, PathPlan, Plan, ReplayPlan, SelfSimilarPlan, ServerPlan, TargetPlan, TlsPlan, WatchPlan,
};

const INTRODUCTION: &str = "\
# Keys of a plan file

A plan file is TOML; `yamabiko run FILE` does what it says, and `--print-plan` prints the plan that options make. This page is written by
`cargo xtask reference` from the program's own definitions. A key without a default may be left out, unless it is marked as required. A
quantity is text with its unit: `\"48ms\"`, `\"110/s\"`, `\"10Mbit\"`, `\"64KiB\"`, `\"1%\"`. Most keys are options of
[bench](options.md#bench), too.
";

/// Types from other crates, and their form in a file.
const TYPES: [(&str, &str); 28] = [
    ("String", "text"),
    ("bool", "true or false"),
    ("u8", "number"),
    ("u16", "number"),
    ("u32", "number"),
    ("u64", "number"),
    ("f64", "number"),
    ("PathBuf", "file"),
    ("Duration", "time"),
    ("Time", "time"),
    ("Bytes", "size"),
    ("RequestRate", "rate"),
    ("OfferedRate", "rate"),
    ("Probability", "share"),
    ("CpuShare", "share of a core"),
    ("IpAddr", "address"),
    ("SocketAddr", "address and port"),
    ("Method", "method"),
    ("Proxy", "`HOST:PORT`"),
    ("Alpn", "`http/1.1`, `http/1.0`, `h2` or `none`"),
    ("Rate", "bit rate, or `trace:FILE`"),
    ("toml::Table", "table"),
    ("StatusSet", "status, such as `2xx`"),
    ("LengthRange", "size, or sizes `1KB..2KB`"),
    ("Slo", "text"),
    ("ShardOf", "`INDEX/COUNT`, such as `3/8`"),
    ("StartAt", "time of day, RFC 3339"),
    ("LoadLimit", "rate or number"),
];

/// A struct or an enum of the sources.
#[derive(Default)]
struct Definition {
    is_enum: bool,
    attributes: String,
    doc: String,
    members: Vec<Member>,
}

/// A field, or a variant; a variant has no type, or the type in its parentheses.
#[derive(Default)]
struct Member {
    name: String,
    of: String,
    attributes: String,
    doc: String,
    note: String,
}

/// Reads the definitions in the sources under `folder`.
fn definitions(folder: &Path, found: &mut BTreeMap<String, Definition>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            definitions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn read(source: &str, found: &mut BTreeMap<String, Definition>) {
    let (mut doc, mut note, mut attributes) = (String::new(), String::new(), String::new());
    // An attribute may be longer than a line.
    let mut is_in_attribute = false;
    let mut open: Option<(String, Definition)> = None;
    for line in source.lines() {
        let bare = line.trim();
        if let Some(text) = bare.strip_prefix("///") {
            doc.push(' ');
            doc += text.trim();
        } else if let Some(text) = bare.strip_prefix("// Plan:") {
            note += text;
        } else if is_in_attribute || bare.starts_with("#[") {
            is_in_attribute = !bare.ends_with(']');
            attributes += bare;
        } else if bare.starts_with("//") {
        } else if line == "}" {
            if let Some((name, definition)) = open.take() {
                found.insert(name, definition);
            }
        } else if let Some((_, definition)) = &mut open {
            let member = member(bare, definition.is_enum);
            let (doc, note) = (std::mem::take(&mut doc), std::mem::take(&mut note));
            let attributes = std::mem::take(&mut attributes);
            definition.members.extend(member.map(|member| Member { doc, note, attributes, ..member }));
        } else {
            let (doc, attributes) = (std::mem::take(&mut doc), std::mem::take(&mut attributes));
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["pub", kind @ ("struct" | "enum"), name, "{"] = words[..] {
                let definition = Definition { is_enum: kind == "enum", attributes, doc, members: Vec::new() };
                open = Some((name.to_owned(), definition));
            }
        }
    }
}

fn member(line: &str, is_enum: bool) -> Option<Member> {
    let line = line.trim_end_matches([',', '{', ' ']);
    let (name, of) = if is_enum {
        let (name, of) = line.split_once('(').unwrap_or((line, ""));
        (name, of.trim_end_matches(')'))
    } else {
        line.strip_prefix("pub ")?.split_once(": ")?
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| Member { name: name.to_owned(), of: of.to_owned(), ..Member::default() })
}

/// The value of a serde attribute, such as `rename`.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = attributes.split_once(&format!("{name} = \""))?;
    rest.split('"').next()
}

/// How many values a key has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    One,
    List,
    /// One for each name; the plan chooses the names.
    ByName,
}

/// The type inside `Option<..>`, `Vec<..>` and `BTreeMap<String, ..>`, and the number of values.
fn stripped(of: &str) -> (&str, Number) {
    let within = |prefix: &str| of.strip_prefix(prefix)?.strip_suffix('>').map(stripped);
    match (within("Option<"), within("Vec<"), within("BTreeMap<String, ")) {
        (Some(inner), ..) => inner,
        (_, Some((inner, _)), _) => (inner, Number::List),
        (.., Some((inner, _))) => (inner, Number::ByName),
        _ => (of, Number::One),
    }
}

/// The names of an enum's values in a file.
fn values(definition: &Definition) -> Vec<String> {
    let case = attribute(&definition.attributes, "rename_all").unwrap_or_default();
    let named = |member: &Member| match attribute(&member.attributes, "rename") {
        Some(name) => name.to_owned(),
        None => cased(&member.name, case),
    };
    definition.members.iter().map(|member| format!("`{}`", named(member))).collect()
}

fn cased(name: &str, case: &str) -> String {
    let separator = match case {
        "kebab-case" => "-",
        "snake_case" => "_",
        _ => "",
    };
    let mut text = String::new();
    for (place, letter) in name.chars().enumerate() {
        if place > 0 && letter.is_ascii_uppercase() {
            text += separator;
        }
        if case.is_empty() { text.push(letter) } else { text.extend(letter.to_lowercase()) }
    }
    text
}

fn shape(of: &str, known: &BTreeMap<String, Definition>) -> String {
    let (inner, number) = stripped(of);
    let one = match (TYPES.iter().find(|(name, _)| *name == inner), known.get(inner)) {
        (Some((_, words)), _) => (*words).to_owned(),
        (None, Some(definition)) if definition.is_enum && !definition.attributes.contains("untagged") => {
            values(definition).join(", ")
        }
        (None, Some(definition)) if !definition.is_enum => "table".to_owned(),
        _ => "text".to_owned(),
    };
    match number {
        Number::One => one,
        Number::List => format!("list: {one}"),
        Number::ByName => format!("table of {one}s"),
    }
}

/// The default of each key, for structs that have defaults.
fn defaults() -> BTreeMap<&'static str, toml::Table> {
    fn table(value: impl Serialize) -> toml::Table {
        toml::Table::try_from(value).unwrap()
    }
    // Two keys that are not written at their defaults.
    let usual = HostPlan::default();
    let mut host = table(&usual);
    host.insert("threads".into(), i64::from(usual.threads).into());
    host.insert("idle".into(), usual.idle.name().into());
    BTreeMap::from([
        ("Plan", table(Plan::default())),
        ("LoadPlan", table(LoadPlan::default())),
        ("PathPlan", table(PathPlan::default())),
        ("ServerPlan", table(ServerPlan::default())),
        ("OriginPlan", table(OriginPlan::default())),
        ("TargetPlan", table(TargetPlan::default())),
        ("WatchPlan", table(WatchPlan::default())),
        ("HostPlan", host),
        ("CapacityPlan", table(CapacityPlan::default())),
        ("ComponentsPlan", table(ComponentsPlan::default())),
        ("TlsPlan", table(TlsPlan::default())),
        ("Http3Plan", table(Http3Plan::default())),
        ("ExpectPlan", table(ExpectPlan::default())),
        ("ExtractPlan", table(ExtractPlan::default())),
        ("ReplayPlan", table(ReplayPlan::of(PathBuf::new()))),
        ("CacheWorkloadPlan", table(CacheWorkloadPlan::default())),
        ("BurstsPlan", table(BurstsPlan::default())),
        ("SelfSimilarPlan", table(SelfSimilarPlan::default())),
    ])
}

/// The text of the page.
fn page() -> String {
    let mut known = BTreeMap::new();
    definitions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut known);
    let defaults = defaults();
    let mut text = INTRODUCTION.to_owned();
    let mut shown = BTreeMap::new();
    let mut waiting = vec![("Plan".to_owned(), String::new(), false)];
    while !waiting.is_empty() {
        let (name, table, is_list) = waiting.remove(0);
        let heading = match (table.as_str(), is_list) {
            ("", _) => "the file itself".to_owned(),
            (table, true) => format!("[[{table}]]"),
            (table, false) => format!("[{table}]"),
        };
        if let Some(first) = shown.get(&name) {
            writeln!(text, "\n## {heading}\n\nKeys as of `{first}`.").unwrap();
            continue;
        }
        let definition = &known[&name];
        writeln!(
            text,
            "\n## {heading}\n\n{}\n\n| key | value | default | |\n|---|---|---|---|",
            plain(definition.doc.trim())
        )
        .unwrap();
        for field in definition.members.iter().filter(|field| !is_skipped(field)) {
            text += &match field.of.as_str() {
                // Keys of the table itself, from the list of effects.
                "Effects" => path::Effects::options().map(effect_row).collect::<String>(),
                _ => row(field, definition, defaults.get(name.as_str()), &known),
            };
        }
        let mut below = Vec::new();
        for field in definition.members.iter().filter(|field| !is_skipped(field)) {
            let (inner, number) = stripped(&field.of);
            let mut path = if table.is_empty() { key(field).to_owned() } else { format!("{table}.{}", key(field)) };
            if number == Number::ByName {
                path += ".NAME";
            }
            below.extend(tables_below(inner, path, number == Number::List, &known));
        }
        waiting.splice(0..0, below);
        shown.insert(name, heading);
    }
    text
}

/// The tables below a key of this type: the struct's own, or those of an enum's variants.
fn tables_below(
    of: &str,
    path: String,
    several: bool,
    known: &BTreeMap<String, Definition>,
) -> Vec<(String, String, bool)> {
    let is_text = TYPES.iter().any(|(name, _)| *name == of);
    match known.get(of).filter(|_| !is_text) {
        Some(definition) if !definition.is_enum => vec![(of.to_owned(), path, several)],
        Some(definition) if !definition.attributes.contains("untagged") => {
            let case = attribute(&definition.attributes, "rename_all").unwrap_or_default();
            let with_table =
                definition.members.iter().filter(|member| known.get(&member.of).is_some_and(|of| !of.is_enum));
            with_table
                .map(|member| (member.of.clone(), format!("{path}.{}", cased(&member.name, case)), false))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn effect_row(effect: path::EffectOption) -> String {
    let meaning = effect.text.help.trim_end_matches('.');
    format!("| `{}` | `{}` |  | {meaning}. |\n", effect.key, effect.text.value_name.replace('|', "\\|"))
}

fn row(
    field: &Member,
    of: &Definition,
    defaults: Option<&toml::Table>,
    known: &BTreeMap<String, Definition>,
) -> String {
    let key = key(field);
    let is_optional =
        field.of.starts_with("Option<") || field.of.starts_with("Vec<") || field.attributes.contains("default");
    let default = match defaults.and_then(|table| table.get(key)) {
        _ if !is_optional && !of.attributes.contains("default") => "required".to_owned(),
        Some(toml::Value::Table(_)) => String::new(),
        Some(value) => format!("`{value}`"),
        None if field.of == "bool" => "`false`".to_owned(),
        None => String::new(),
    };
    let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    format!("| `{key}` | {} | {} | {} |\n", cell(&shape(&field.of, known)), cell(&default), cell(&meaning(field)))
}

fn key(field: &Member) -> &str {
    attribute(&field.attributes, "rename").unwrap_or(&field.name)
}

/// Whether a field exists on the command line only.
fn is_skipped(field: &Member) -> bool {
    field.attributes.contains("serde(skip)")
}

/// The doc comment without the default of the option, which may depend on others, and with a full stop. An option that
/// disables something is a key with the value false.
fn meaning(field: &Member) -> String {
    let takes_away = if field.attributes.contains("SetFalse") { "`false`: " } else { "" };
    let mut text = format!("{takes_away}{}", field.doc.trim());
    while let Some(from) = text.find(" [default: ") {
        let to = text[from..].find(']').map_or(text.len(), |length| from + length + 1);
        text.replace_range(from..to, "");
    }
    if !text.is_empty() && !text.ends_with('.') {
        text.push('.');
    }
    plain(&(text + &field.note))
}

/// Text without the brackets of links within the sources.
fn plain(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

#[test]
fn docs_reference_plan_md_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/plan.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(path, page()).unwrap();
    }
    let stored = fs::read_to_string(path).unwrap_or_default();
    assert!(stored == page(), "docs/reference/plan.md is not current: cargo xtask reference");
}
