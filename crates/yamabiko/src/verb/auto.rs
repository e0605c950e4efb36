//! `yamabiko bench --http auto`: the HTTP version that a browser would use.
//!
//! The site's HTTPS record in DNS offers HTTP/3 (RFC 9460), or Alt-Svc of a response does (RFC 7838; RFC 9114, section
//! 3.1.1), which a probe over HTTP/1.1 through the path of the run reads. Without an offer ALPN decides between HTTP/2 and
//! HTTP/1.1.

use anyhow::{Result, bail};
use load::Target;
use plan::{Alpn, HttpVersion, LoadPlan, PathPlan, Plan, TlsPlan, WatchAt};
use sys::signal::Interrupts;
use testbed::Outcome;

use super::bench;
use super::protocols::{WrongUsage, parse_bench};
use crate::args::{Auto, Bench, to_plan};
use crate::exit::Exit;
use crate::progress::Display;
use crate::terminal::print_message;

/// Chooses the version and makes the run.
///
/// # Errors
/// Wrong usage. What fails later is in the outcome.
pub fn run(auto: &Auto) -> Result<Result<Exit>, WrongUsage> {
    let bench_http1 = parse_bench(auto.words("1.1"))?;
    let (version, why) = match choose(&bench_http1) {
        Ok(chosen) => chosen,
        Err(error) => return Ok(Err(error)),
    };
    if !bench_http1.result.json && !bench_http1.result.print_plan {
        print_message(format_args!("HTTP/{version}: {why}"));
    }
    Ok(bench::run(&parse_bench(auto.words(version))?))
}

/// The version, and why.
fn choose(bench_http1: &Bench) -> Result<(&'static str, String)> {
    let plan = to_plan::bench(bench_http1)?;
    let Some(url) = plan.load.stated_urls().first().cloned() else {
        bail!("--http auto needs a URL for its probe: write --http 1.1, 2 or 3");
    };
    if plan.load.tls.is_none() {
        return Ok(("1.1", "browsers use it without TLS".to_owned()));
    }
    let target = Target::parse(&url).map_err(anyhow::Error::msg)?;
    if has_record(&plan, &target) {
        return Ok(("3", "the site's HTTPS record in DNS offers it".to_owned()));
    }
    let interrupts = Interrupts::install()?;
    let outcome = probe(&plan, &url, HttpVersion::Http11, &interrupts)?;
    if let Some(offer) = outcome.first_exchange.response_head.as_deref().and_then(|head| field(head, "alt-svc")) {
        match alternative(&offer, target.port) {
            Alternative::SamePort => return Ok(("3", format!("the server offers it (Alt-Svc: {offer})"))),
            Alternative::Elsewhere => {
                print_message(format_args!("note: Alt-Svc: {offer}: HTTP/3 at another host or port is not used"));
            }
            Alternative::None => {}
        }
    }
    let has_http1 = has_response(&outcome);
    let outcome = probe(&plan, &url, HttpVersion::Http2, &interrupts)?;
    if has_response(&outcome) {
        return Ok(("2", "the server chooses it by ALPN and offers no HTTP/3".to_owned()));
    }
    let why = if has_http1 { "the server offers no other version" } else { "no probe received a response" };
    Ok(("1.1", why.to_owned()))
}

/// Whether DNS offers HTTP/3. It is not queried for a server of the testbed, nor where a proxy or the plan knows the
/// addresses.
fn has_record(plan: &Plan, target: &Target) -> bool {
    if plan.server.is_some() || plan.load.proxy.is_some() || !plan.target.addresses.is_empty() {
        return false;
    }
    testbed::https_record::offers_http3(&target.host, target.port).unwrap_or_else(|error| {
        print_message(format_args!("note: the HTTPS record of {} is not known: {error}", target.host));
        false
    })
}

fn has_response(outcome: &Outcome) -> bool {
    outcome.document.load.as_ref().is_some_and(|load| load.completed > 0)
}

/// Makes one request of a plan by a version.
fn probe(plan: &Plan, url: &str, http: HttpVersion, interrupts: &Interrupts) -> Result<Outcome> {
    let tls = plan.load.tls.as_ref().map(|tls| TlsPlan { alpn: Alpn::default(), ..tls.clone() });
    let load = LoadPlan {
        http,
        tls,
        requests: Some(1),
        connections: Some(1),
        proxy: plan.load.proxy.clone(),
        basic_auth: plan.load.basic_auth.clone(),
        timeout: plan.load.timeout,
        connect_timeout: plan.load.connect_timeout,
        ..LoadPlan::get(url)
    };
    let mut probe_plan = Plan { name: "auto".into(), load, ..plan.clone() };
    (probe_plan.slo, probe_plan.capacity, probe_plan.shard) = (None, None, Default::default());
    probe_plan.watch.keep = false;
    probe_plan.watch.tap = false;
    probe_plan.watch.at = Some(WatchAt::None);
    probe_plan.path = plan.path.as_ref().map(|path| PathPlan { changes: Vec::new(), ..path.clone() });
    probe_plan.settle()?;
    let outcome = testbed::bench(&probe_plan, "", None, interrupts, &mut Display::new("", true))?;
    if outcome.document.run.interrupted {
        bail!("interrupted");
    }
    Ok(outcome)
}

/// The values of a field in a head of HTTP/1, joined by commas.
fn field(head: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let fields = text.lines().skip(1).filter_map(|line| line.split_once(':'));
    let values: Vec<&str> =
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Where Alt-Svc offers HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alternative {
    /// At the host and port of the URL.
    SamePort,
    /// At others only.
    Elsewhere,
    None,
}

/// What a value of Alt-Svc offers: a list of `protocol="[host]:port"` with parameters, or `clear`. `port` is the URL's.
fn alternative(offer: &str, port: u16) -> Alternative {
    let places = offer.split(',').filter_map(|entry| {
        let (protocol, rest) = entry.trim().split_once('=')?;
        let place = rest.strip_prefix('"')?.split('"').next()?;
        (protocol == "h3").then_some(place)
    });
    let mut found = Alternative::None;
    for place in places {
        match place.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
            Some(own) if own == port => return Alternative::SamePort,
            _ => found = Alternative::Elsewhere,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternative_services_are_parsed() {
        for (offer, found) in [
            ("h3=\":443\"; ma=86400", Alternative::SamePort),
            ("h3-29=\":443\"; ma=60, h3=\":443\"; ma=60; persist=1", Alternative::SamePort),
            ("h2=\":443\"", Alternative::None),
            ("h3-29=\":443\"", Alternative::None),
            ("clear", Alternative::None),
            ("h3=\":8443\"", Alternative::Elsewhere),
            ("h3=\"alt.example:443\"", Alternative::Elsewhere),
            ("h3=\"alt.example:443\", h3=\":443\"", Alternative::SamePort),
            ("h3=", Alternative::None),
            ("", Alternative::None),
        ] {
            assert_eq!(alternative(offer, 443), found, "{offer}");
        }
    }

    #[test]
    fn fields_are_found() {
        let head = b"HTTP/1.1 200 OK\r\nServer: x\r\nALT-SVC: h3=\":443\"\r\nalt-svc:clear\r\n\r\n";
        assert_eq!(field(head, "alt-svc").as_deref(), Some("h3=\":443\", clear"));
        assert_eq!(field(b"HTTP/1.1 200 OK\r\n\r\n", "alt-svc"), None);
    }
}
