//! From a plan to the workload that the load generator runs.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use load::workload::{Choice, Expect, Extract, Names, SessionSpec, Step, Template, Think, Values, When};
use load::{RequestSpec, Target, Workload, parse_header};
use schema::Method;

use super::{ChoicePlan, DrawnThink, ExpectPlan, OnFailure, PARALLEL, RequestPlan, SessionPlan, StepPlan};
use super::{ThinkPlan, list};
use crate::LoadPlan;

/// Whether to read files. A plan is checked before the run, possibly without its files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    /// Read the files.
    Read,
    /// Skip the files; their content is unknown.
    Skip,
}

/// Largest number of distinct hosts and ports of a workload.
const ENDS_MAX: usize = 65_535;

/// Longest think time.
const THINK_MAX: Duration = Duration::from_secs(86_400);

/// The workload of a plan.
///
/// # Errors
/// One sentence.
pub(super) fn workload(load: &LoadPlan, files: Files) -> Result<Workload, String> {
    one_kind(load)?;
    if load.cache_workload.is_some() {
        return Err("[load.workload] defines the requests, which are drawn during the run".into());
    }
    let common = Common::new(load)?;
    let mut names = Names::default();
    for request in &load.request {
        for name in request.extract.keys() {
            names.define(name).map_err(|error| format!("extract of request `{}`: {error}", request.label()))?;
        }
    }
    let mut weighted = load.request.iter().any(|request| request.weight.is_some());
    let requests = if !load.request.is_empty() {
        let request =
            |plan| common.request(plan, &names, files).map_err(|why| format!("request `{}`: {why}", label(plan)));
        load.request.iter().map(request).collect::<Result<Vec<_>, _>>()?
    } else if let Some(file) = &load.urls {
        let (requests, any) = common.listed(file, files)?;
        weighted |= any;
        requests
    } else if let Some(content) = &load.content {
        weighted = true;
        common.content(content.model()?, files)?
    } else {
        let plan = RequestPlan { method: Some(load.method), ..load.with_body(RequestPlan::get(&load.url)) };
        vec![common.request(&plan, &names, files)?]
    };
    let choice = if load.session.is_empty() {
        no_values_without_sessions(load, &requests, &names)?;
        match load.choice {
            Some(ChoicePlan::InTurn) if weighted => {
                return Err("weights need random choice: leave choice = \"in_turn\" or the weights out".into());
            }
            Some(ChoicePlan::Weighted) => Choice::Drawn,
            None if weighted => Choice::Drawn,
            Some(ChoicePlan::InTurn) | None => Choice::InTurn,
        }
    } else {
        Choice::Sessions(sessions(load, &requests, &names)?)
    };
    Ok(Workload { requests, choice, cookies: load.cookies, variables: names.len() })
}

/// The settings that apply to every request.
///
/// # Errors
/// One sentence.
pub(super) fn every_request(load: &LoadPlan) -> Result<RequestSpec, String> {
    Common { load, base: None }.request(&RequestPlan::get("http://server/"), &Names::default(), Files::Skip)
}

/// Refuses several definitions of what is requested.
fn one_kind(load: &LoadPlan) -> Result<(), String> {
    let lists = [
        (!load.request.is_empty(), "[[load.request]]"),
        (load.urls.is_some(), "urls (--urls)"),
        (load.content.is_some(), "[load.content] (--content)"),
    ];
    let present: Vec<&str> = lists.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
    match (present.as_slice(), load.url.is_empty()) {
        ([], true) => return Err("there is nothing to request: give url, urls, or [[load.request]]".into()),
        ([one, other, ..], _) => {
            return Err(format!("{one} and {other} both define the requests: leave one of the two out"));
        }
        (["[load.content] (--content)"], true) => {
            return Err("[load.content] needs a url: the folder of its objects".into());
        }
        _ => {}
    }
    if !load.request.is_empty() && (load.method != Method::Get || load.has_body()) {
        return Err("method and body under [load] apply to a single url: write them in each [[load.request]]".into());
    }
    if load.content.is_some() && (!matches!(load.method, Method::Get | Method::Head) || load.has_body()) {
        return Err("[load.content] allows only GET or HEAD without a body: leave method and body out".into());
    }
    if load.session.is_empty() {
        return Ok(());
    }
    if load.request.is_empty() {
        return Err("the steps of [[load.session]] name requests: give them as [[load.request]]".into());
    }
    if load.choice.is_some() || load.request.iter().any(|request| request.weight.is_some()) {
        return Err("with [[load.session]] the steps define the requests: leave choice and the \
                    weights of requests out (a session has a weight, too)"
            .into());
    }
    Ok(())
}

/// Settings of all requests.
struct Common<'a> {
    load: &'a LoadPlan,
    /// `scheme://host:port` of `url`, and the rest of it.
    base: Option<(String, String)>,
}

impl<'a> Common<'a> {
    fn new(load: &'a LoadPlan) -> Result<Self, String> {
        let single = load.request.is_empty() && load.urls.is_none() && load.content.is_none();
        if load.url.is_empty() || single {
            return Ok(Common { load, base: None });
        }
        let target = Target::parse(&load.url).map_err(|error| error.to_string())?;
        let base = format!("{}://{}", if target.secure { "https" } else { "http" }, target.authority);
        if load.content.is_none() && target.path_and_query != "/" {
            return Err(format!(
                "url = \"{}\" is the host of the requests, whose URLs begin with /: leave its path out",
                load.url
            ));
        }
        if target.path_and_query.contains('?') {
            return Err(format!("url = \"{}\" is the folder of the content: leave the query out", load.url));
        }
        Ok(Common { load, base: Some((base, target.path_and_query.trim_end_matches('/').to_owned())) })
    }

    /// A complete URL: one that begins with `/` is on the host of `url`.
    fn whole<'u>(&self, url: &'u str) -> Result<Cow<'u, str>, String> {
        match (&self.base, url.starts_with('/')) {
            (_, false) => Ok(url.into()),
            (Some((base, _)), true) => Ok(format!("{base}{url}").into()),
            (None, true) => {
                Err(format!("`{url}` begins with /: give url under [load] for its host, or write the complete URL"))
            }
        }
    }

    fn request(&self, plan: &RequestPlan, names: &Names, files: Files) -> Result<RequestSpec, String> {
        let url = self.whole(plan.url.trim())?;
        let (target, path) = address(&url, names)?;
        let body = match (&plan.body, &plan.body_file) {
            (Some(_), Some(_)) => return Err("body and body_file: leave one of the two out".into()),
            (Some(text), None) => Template::parse(text, names).map_err(|error| format!("its body: {error}"))?,
            (None, Some(_)) if files == Files::Skip => Template::default(),
            (None, Some(file)) => Template::bytes(&read(file, "--body")?),
            (None, None) => Template::default(),
        };
        let has_body = plan.body.is_some() || plan.body_file.is_some();
        let method = plan.method.unwrap_or(if has_body { Method::Post } else { Method::Get });
        let (expect, redirects_max) = self.expected(plan, method)?;
        let extract = plan.extract.iter().map(|(name, extract)| {
            let source = extract.source().map_err(|why| format!("extract {name}: {why}"))?;
            let extract = Extract { variable: names.find(name).expect("the name was defined above"), source };
            if extract.needs_body() && method == Method::Head {
                return Err(format!("extract {name}: a response to HEAD has no body"));
            }
            Ok(extract)
        });
        // Without placeholders in the URL its own text is the clearest example.
        let name = plan.name.clone().or_else(|| (!path.is_literal()).then(|| url.to_string()));
        Ok(RequestSpec {
            name,
            path,
            method,
            headers: self.headers(&plan.headers, names)?,
            body,
            basic_auth: self.basic_auth(plan.basic_auth.as_deref(), names)?,
            weight: weight(plan.weight)?,
            expect,
            extract: extract.collect::<Result<_, String>>()?,
            redirects_max,
            ..RequestSpec::get(target)
        })
    }

    fn expected(&self, plan: &RequestPlan, method: Method) -> Result<(Expect, u8), String> {
        let expected = plan.expect.as_ref().or(self.load.expect.as_ref());
        if expected.is_some_and(ExpectPlan::of_body) && method == Method::Head {
            return Err("expect: a response to HEAD has no body, and no body length".into());
        }
        let expect = expected.map(ExpectPlan::checks).transpose().map_err(|why| format!("expect: {why}"))?;
        Ok((expect.unwrap_or_default(), plan.redirects.unwrap_or(self.load.redirects)))
    }

    /// Header lines of all requests, then those of the request; one of the request replaces those of the same name.
    fn headers(&self, own: &[String], names: &Names) -> Result<Vec<(String, Template)>, String> {
        let parse = |line: &String| -> Result<(String, Template), String> {
            let (name, value) = parse_header(line).map_err(|error| error.to_string())?;
            let value = Template::parse(&value, names).map_err(|error| format!("header {name}: {error}"))?;
            Ok((name, value))
        };
        let own = own.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let common = self.load.headers.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let replaced = |name: &str| own.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut all: Vec<_> = common.into_iter().filter(|(name, _)| !replaced(name)).collect();
        all.extend(own);
        Ok(all)
    }

    fn basic_auth(&self, own: Option<&str>, names: &Names) -> Result<Option<Template>, String> {
        let Some(typed) = own.or(self.load.basic_auth.as_deref()) else { return Ok(None) };
        if !typed.contains(':') {
            return Err("basic_auth (--basic-auth) has no colon: expected user:password".into());
        }
        Template::parse(typed, names).map(Some).map_err(|error| format!("basic_auth: {error}"))
    }

    /// The requests of a list, and whether it has weights.
    fn listed(&self, file: &Path, files: Files) -> Result<(Vec<RequestSpec>, bool), String> {
        let like =
            RequestPlan { method: Some(self.load.method), ..self.load.with_body(RequestPlan::get("http://server/")) };
        // The settings outside of the list are checked first.
        let like = self.request(&like, &Names::default(), files)?;
        if files == Files::Skip {
            return Ok((vec![like], false));
        }
        let text = read(file, "--urls")?;
        let text =
            str::from_utf8(&text).map_err(|_| format!("--urls {}: the file is not UTF-8 text", file.display()))?;
        let listed = list::read(text, file)?;
        let weighted = listed.iter().any(|line| line.weight.is_some());
        let request = |line: &list::Listed<'_>| {
            let url = self.whole(line.url)?;
            let target = Target::parse(&url).map_err(|error| error.to_string())?;
            let path = Template::literal(&target.path_and_query);
            Ok(RequestSpec { target, path, weight: line.weight.unwrap_or(1.0), ..like.clone() })
        };
        let requests =
            listed.iter().map(|line| request(line).map_err(|why: String| format!("{}: {why}", file.display())));
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        let end = |request: &RequestSpec| {
            (request.target.secure, request.target.host.to_ascii_lowercase(), request.target.port)
        };
        let ends = requests.iter().map(end).collect::<HashSet<_>>().len();
        if ends > ENDS_MAX {
            return Err(format!("{}: {ends} hosts and ports: expected at most {ENDS_MAX}", file.display()));
        }
        Ok((requests, weighted))
    }

    fn content(&self, content: load::content::Content, files: Files) -> Result<Vec<RequestSpec>, String> {
        let (base, folder) = self.base.as_ref().expect("content has a url");
        let like = RequestPlan { method: Some(self.load.method), ..RequestPlan::get(format!("{base}/")) };
        let like = self.request(&like, &Names::default(), files)?;
        if files == Files::Skip {
            return Ok(vec![like]);
        }
        let own_length = self.load.method != Method::Head && like.expect.length.is_none();
        let request = |object: load::content::Object| {
            let target = Target::parse(&format!("{base}{folder}{}", object.path)).map_err(|error| error.to_string())?;
            let mut expect = like.expect.clone();
            if own_length {
                expect.length = Some(object.bytes..=object.bytes);
            }
            if expect.status.is_empty() {
                expect.status = vec![200..=200];
            }
            let path = Template::literal(&target.path_and_query);
            Ok(RequestSpec { target, path, weight: object.weight, expect, ..like.clone() })
        };
        content.objects().into_iter().map(request).collect()
    }
}

/// Target of a URL with placeholders, and its path and query.
fn address(url: &str, names: &Names) -> Result<(Target, Template), String> {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[after_scheme..].find(['/', '?', '#']).map_or(url.len(), |at| at + after_scheme);
    let (front, rest) = url.split_at(path_at);
    if front.contains(['{', '}']) {
        return Err(format!("`{front}` has a placeholder in its host: the hosts of a run must be fixed"));
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let rest: Cow<'_, str> = if rest.starts_with('/') { rest.into() } else { format!("/{rest}").into() };
    let path = Template::parse(&rest, names).map_err(|error| error.to_string())?;
    // With a value for each placeholder it must be a URL.
    let variables = vec![Box::from(&b"v"[..]); names.len()];
    let values = Values { client: 0, sequence: 0, session: None, variables: &variables, seed: 0 };
    let mut example = Vec::new();
    path.render_target(&values, &mut example);
    let example = format!("{front}{}", String::from_utf8_lossy(&example));
    let target =
        Target::parse(if path.is_literal() && !url.contains("{{") && !url.contains("}}") { url } else { &example });
    Ok((target.map_err(|error| error.to_string())?, path))
}

/// Values can be taken from responses in sessions only.
fn no_values_without_sessions(load: &LoadPlan, requests: &[RequestSpec], names: &Names) -> Result<(), String> {
    if let Some(request) = load.request.iter().find(|request| !request.extract.is_empty()) {
        return Err(format!(
            "request `{}` takes values from its response, which only later steps of a session could use: give [[load.session]]",
            label(request)
        ));
    }
    debug_assert!(names.is_empty() && requests.iter().all(|request| needs(request).next().is_none()));
    Ok(())
}

fn sessions(load: &LoadPlan, requests: &[RequestSpec], names: &Names) -> Result<Vec<SessionSpec>, String> {
    let mut places: HashMap<&str, u32> = HashMap::new();
    for (place, request) in load.request.iter().enumerate() {
        if places.insert(request.label(), place as u32).is_some() {
            return Err(format!("two requests are named `{}`: give one of them another name", label(request)));
        }
    }
    let known = RequestsByName { places, requests, names };
    let mut used = vec![false; requests.len()];
    let mut sessions = Vec::with_capacity(load.session.len());
    for (place, session) in load.session.iter().enumerate() {
        let called = session.name.clone().unwrap_or_else(|| (place + 1).to_string());
        let spec = known.session(session, &mut used).map_err(|why| format!("session `{called}`: {why}"))?;
        sessions.push(spec);
    }
    match used.iter().position(|used| !used) {
        Some(unused) => Err(format!(
            "request `{}` is in no session's steps: name it there, or leave it out",
            label(&load.request[unused])
        )),
        None => Ok(sessions),
    }
}

/// Requests by name.
struct RequestsByName<'a> {
    places: HashMap<&'a str, u32>,
    requests: &'a [RequestSpec],
    names: &'a Names,
}

impl RequestsByName<'_> {
    fn session(&self, plan: &SessionPlan, used: &mut [bool]) -> Result<SessionSpec, String> {
        if plan.steps.is_empty() {
            return Err("it has no steps".into());
        }
        let mut taken = BTreeMap::new();
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (place, step) in plan.steps.iter().enumerate() {
            let number = place + 1;
            let in_step = |why| format!("step {number} (`{}`): {why}", step.request.escape_debug());
            steps.push(self.step(step, used, &mut taken).map_err(in_step)?);
        }
        Ok(SessionSpec {
            name: plan.name.clone(),
            weight: weight(plan.weight)?,
            steps,
            goes_on: plan.on_failure == OnFailure::GoOn,
        })
    }

    fn step(&self, plan: &StepPlan, used: &mut [bool], taken: &mut BTreeMap<usize, ()>) -> Result<Step, String> {
        let mut find = |name: &str, taken: &BTreeMap<usize, ()>| {
            let request = *self.places.get(name).ok_or_else(|| self.unknown(name))?;
            used[request as usize] = true;
            match needs(&self.requests[request as usize]).find(|variable| !taken.contains_key(variable)) {
                Some(variable) => Err(format!(
                    "`{}` needs {{{}}}, which no earlier step takes from a response",
                    name.escape_debug(),
                    self.names.as_slice()[variable]
                )),
                None => Ok(request),
            }
        };
        let request = find(&plan.request, taken)?;
        taken.extend(self.requests[request as usize].extract.iter().map(|extract| (extract.variable, ())));
        let embedded = plan.embedded.iter().map(|name| find(name, taken)).collect::<Result<Vec<_>, _>>()?;
        for &object in &embedded {
            taken.extend(self.requests[object as usize].extract.iter().map(|extract| (extract.variable, ())));
        }
        if plan.parallel == Some(0) || plan.parallel.is_some() && embedded.is_empty() {
            return Err("parallel (concurrent requests for embedded objects) needs embedded, and is at least 1".into());
        }
        let when = match (&plan.think, plan.at) {
            (Some(_), Some(_)) => return Err("think and at both define its time: leave one of the two out".into()),
            (None, Some(at)) => When::At(at),
            (None, None) => When::After(Think::Constant(Duration::ZERO)),
            (Some(think), None) => When::After(think_time(think)?),
        };
        Ok(Step { request, when, embedded, parallel: plan.parallel.unwrap_or(PARALLEL) })
    }

    fn unknown(&self, name: &str) -> String {
        let mut known: Vec<&str> = self.places.keys().copied().collect();
        known.sort_unstable();
        let more = known.len().saturating_sub(SHOWN_MAX);
        known.truncate(SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("no request is named `{}`: expected one of {}{more}", name.escape_debug(), known.join(", "))
    }
}

/// Most names listed in a message.
const SHOWN_MAX: usize = 10;

/// The variables that a request needs.
fn needs(request: &RequestSpec) -> impl Iterator<Item = usize> {
    let headers = request.headers.iter().map(|(_, value)| value);
    let all = headers.chain(&request.basic_auth).chain([&request.path, &request.body]);
    all.flat_map(Template::variables)
}

fn think_time(think: &ThinkPlan) -> Result<Think, String> {
    let in_range = |longest: Duration| {
        if longest > THINK_MAX {
            return Err("a think time is longer than a day: expected at most 24h".to_owned());
        }
        Ok(())
    };
    match think {
        ThinkPlan::Constant(time) => in_range(time.0).map(|()| Think::Constant(time.0)),
        ThinkPlan::Drawn(DrawnThink::Uniform([from, to])) => {
            in_range(to.0)?;
            if from > to {
                return Err("think: uniform = [first, last]: expected the first to be the shorter one".into());
            }
            Ok(Think::Uniform(from.0, to.0))
        }
        ThinkPlan::Drawn(DrawnThink::Exponential { mean, max }) => {
            in_range(max.0)?;
            if mean > max || mean.0.is_zero() {
                return Err("think: exponential: expected a mean above 0 and a max of at least the mean".into());
            }
            Ok(Think::Exponential { mean: mean.0, max: max.0 })
        }
        ThinkPlan::Drawn(DrawnThink::LogNormal { median, sigma, max }) => {
            in_range(max.0)?;
            if median > max || median.0.is_zero() || !(0.0..=10.0).contains(sigma) {
                return Err(
                    "think: log_normal: expected a median above 0, a max of at least the median, and a sigma from 0 to 10".into()
                );
            }
            Ok(Think::LogNormal { median: median.0, sigma: *sigma, max: max.0 })
        }
    }
}

fn weight(weight: Option<f64>) -> Result<f64, String> {
    match weight.unwrap_or(1.0) {
        weight if weight > 0.0 && weight.is_finite() => Ok(weight),
        other => Err(format!("weight = {other}: expected a number above 0")),
    }
}

fn label(plan: &RequestPlan) -> String {
    plan.label().escape_debug().to_string()
}

fn read(file: &Path, flag: &str) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{flag} {}: {error}", file.display()))
}
