//! The workload of a cache benchmark, `[load.workload]`: a built-in one or a file, with any field overridden.

use std::path::PathBuf;
use std::sync::Arc;

use load::workload::{CacheWorkloadLoad, Choice, Template, Verify};
use load::{RequestSpec, Target, Workload};
use polymix::{CacheWorkload, World};
use schema::Method;
use serde::{Deserialize, Serialize};

use super::LoadPlan;

/// A cache workload, which replaces the plan's own requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheWorkloadPlan {
    /// A built-in workload, as `yamabiko cache --workload` takes it: polymix-1 to polymix-4, modern, modern-https, gateway-prepared,
    /// gateway-new, gateway-class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A workload file, instead of a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Overridden fields of the workload: `set.recurrence = 0.5`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub set: toml::Table,
    /// World (set of objects) to request from; absent: a new one, so that no cache has any of its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<u32>,
    /// Host and port of the TLS listener of the origin; absent: those of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<String>,
    /// Which response bodies are compared with the expected bytes.
    #[serde(default)]
    pub verify: Verify,
}

impl CacheWorkloadPlan {
    /// The workload by name or from its file, with the fields of `set`, checked.
    ///
    /// # Errors
    /// One sentence: an unknown name, an unreadable file, an unknown field, and what [`CacheWorkload::check`] refuses.
    pub fn spec(&self) -> Result<CacheWorkload, String> {
        let (base, source) = match (&self.name, &self.file) {
            (Some(name), None) => {
                let named = CacheWorkload::named(name);
                let spec = named
                    .ok_or_else(|| format!("[load.workload] name = \"{name}\": no built-in workload has this name"))?;
                (toml::Table::try_from(spec).map_err(|error| error.to_string())?, format!("the workload `{name}`"))
            }
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| format!("[load.workload] file = \"{}\": {error}", file.display()))?;
                let read = toml::from_str(&text);
                let table = read.map_err(|error| format!("{}: {}", file.display(), one_line(error.message())))?;
                (table, file.display().to_string())
            }
            _ => return Err(NAME_OR_FILE.into()),
        };
        let mut table = base;
        override_with(&mut table, &self.set);
        let spec: CacheWorkload = table.try_into().map_err(|error: toml::de::Error| {
            let set = if self.set.is_empty() { "" } else { " with [load.workload] set" };
            format!("{source}{set}: {}", one_line(error.message()))
        })?;
        spec.check().map_err(|why| format!("{source}: {why}"))?;
        Ok(spec)
    }

    /// The load's workload: a request for each kind, and again inside TLS if a share of them is. `run` is part of every request
    /// id, and the world if the plan names none.
    ///
    /// # Errors
    /// One sentence.
    pub fn workload(&self, load: &LoadPlan, seed: u64, run: u32) -> Result<Workload, String> {
        let spec = Arc::new(self.spec()?);
        let common = &load.every_request()?;
        let plain = origin(load)?;
        let mut targets = vec![(plain.clone(), "")];
        if spec.https > 0.0 && plain.secure {
            return Err(
                "[load.workload]: with an https:// URL all requests are inside TLS and visible to the reverse proxy: set \
                        https = 0 (set.https), the share that no proxy sees"
                    .into(),
            );
        }
        if spec.https > 0.0 {
            let at = self.secure.as_deref().unwrap_or(&plain.authority);
            let secure = Target::parse(&format!("https://{at}/"))
                .ok()
                .filter(|target| target.path_and_query == "/")
                .ok_or_else(|| {
                    format!("[load.workload] secure = \"{at}\": expected HOST:PORT of the origin's TLS listener")
                })?;
            targets.push((secure, " (https)"));
        }
        let requests = targets.iter().flat_map(|(target, suffix)| {
            spec.kinds.iter().map(move |kind| RequestSpec {
                name: Some(format!("{}{suffix}", kind.name)),
                path: Template::literal("/"),
                target: target.clone(),
                ..common.clone()
            })
        });
        let requests = requests.collect();
        let world = Arc::new(World::new(spec, seed, self.world.unwrap_or(run)));
        // The wall clock is read when the start of the run is known.
        let cache_load = CacheWorkloadLoad { world, run, wall_zero_ns: 0, verify: self.verify };
        Ok(Workload { requests, choice: Choice::CacheWorkload(cache_load), cookies: false, variables: 0 })
    }

    /// Rejects settings of the load that contradict this workload. Reads no file.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check(&self, load: &LoadPlan) -> Result<(), String> {
        let refuse = |why: &str| Err(format!("[load.workload]: {why}"));
        origin(load)?;
        match (&self.name, &self.file) {
            (Some(_), None) => drop(self.spec()?),
            (None, Some(_)) => {}
            _ => return Err(NAME_OR_FILE.into()),
        }
        let others = [
            (load.urls.is_some(), "urls"),
            (load.content.is_some(), "[load.content]"),
            (!load.request.is_empty(), "[[load.request]]"),
            (!load.session.is_empty(), "[[load.session]]"),
            (load.replay.is_some(), "replay"),
            (load.har.is_some(), "har"),
            (load.method != Method::Get, "method"),
            (load.body.is_some(), "body"),
            (load.choice.is_some(), "choice"),
            (load.cookies, "cookies"),
            (load.redirects > 0, "redirects"),
            (load.expect.is_some(), "expect"),
            (load.basic_auth.is_some(), "basic_auth"),
        ];
        if let Some((_, other)) = others.iter().find(|(is, _)| *is) {
            return refuse(&format!("the workload determines requests and expected responses: leave {other} out"));
        }
        if !load.is_open() {
            return refuse("a cache workload needs an open loop: give a rate (--rate), phases or a rate_file");
        }
        if !load.http.is_http1() {
            return refuse(&format!(
                "http = \"{}\" (--http): a cache workload supports HTTP/1.0 and 1.1 only",
                load.http.name()
            ));
        }
        let name = |line: &String| line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
        if let Some(line) = load.headers.iter().find(|line| RESERVED_FIELDS.contains(&name(line).as_str())) {
            return refuse(&format!(
                "the header `{line}` (-H) is sent by the workload or changes what a cache may do: leave it out"
            ));
        }
        if self.verify == Verify::OneIn(0) {
            return refuse("verify = { one_in = 0 }: expected 1 or more");
        }
        Ok(())
    }
}

/// Scheme, host and port of the origin or of the reverse proxy in front of it: the plan's `url`, which has no path.
fn origin(load: &LoadPlan) -> Result<Target, String> {
    let expected = || {
        "[load.workload] needs url = \"http://HOST:PORT/\": the origin, or the reverse proxy in front of it (https:// if that one \
         speaks TLS); paths follow from the workload"
            .to_owned()
    };
    let target = Target::parse(&load.url).ok().filter(|target| target.path_and_query == "/").ok_or_else(expected)?;
    if target.secure && load.proxy.is_some() {
        return Err(
            "[load.workload]: through a forward proxy (proxy) the url is http://HOST:PORT/; the share inside TLS is \
                    set by set.https"
                .into(),
        );
    }
    Ok(target)
}

/// Header fields that the workload sends, or that change how a cache treats its requests.
const RESERVED_FIELDS: [&str; 16] = [
    "x-yamabiko-request-id",
    "accept-encoding",
    "cache-control",
    "pragma",
    "if-modified-since",
    "if-none-match",
    "if-match",
    "if-unmodified-since",
    "if-range",
    "range",
    "authorization",
    "cookie",
    "connection",
    "content-length",
    "transfer-encoding",
    "expect",
];

const NAME_OR_FILE: &str = "[load.workload]: give either name (polymix-1 to polymix-4, modern) or file";

/// Merges `with` into `table`: tables by field, lists of named tables (kinds) by name; other values are replaced.
fn override_with(table: &mut toml::Table, with: &toml::Table) {
    for (key, value) in with {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(with)) if !is_other_variant(inner, with) => {
                override_with(inner, with);
            }
            (Some(toml::Value::Array(list)), toml::Value::Array(with)) if with.iter().all(|it| named(it).is_some()) => {
                override_list(list, with);
            }
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

/// Whether two tables are different variants of one enum, such as `{ zipf = .. }` and `{ hot_set = .. }`.
fn is_other_variant(one: &toml::Table, other: &toml::Table) -> bool {
    one.len() == 1 && other.len() == 1 && one.keys().ne(other.keys())
}

fn override_list(list: &mut Vec<toml::Value>, with: &[toml::Value]) {
    for value in with {
        match (list.iter_mut().find(|it| named(it) == named(value)), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(with)) => override_with(inner, with),
            _ => list.push(value.clone()),
        }
    }
}

fn named(value: &toml::Value) -> Option<&str> {
    value.get("name")?.as_str()
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}

#[cfg(test)]
mod tests;
