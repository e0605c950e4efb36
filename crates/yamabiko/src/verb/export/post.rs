//! One message after another to a receiver over HTTP.
//!
//! Redirects are not followed, so that no header goes to another host than the one named. What a receiver says is shown as one
//! line of harmless characters. A message is tried again only where its protocol says so, a bounded number of times.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::headers;
use crate::args;
use crate::terminal::say;

/// How to reach a receiver.
pub struct Post {
    agent: Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a receiver made of a message.
enum Answer {
    Taken(Vec<u8>),
    /// Worth another try, not before this time has passed if it says one.
    Later(String, Option<Duration>),
    Refused(String),
}

/// Statuses after which remote write 1.0 has a message sent again.
pub const TRIED_AGAIN_BY_PROMETHEUS: fn(u16) -> bool = |status| status == 429 || status >= 500;
/// Those of OTLP over HTTP.
pub const TRIED_AGAIN_BY_OTLP: fn(u16) -> bool = |status| matches!(status, 429 | 502 | 503 | 504);

impl Post {
    /// # Errors
    /// A header or a certificate that cannot be read.
    pub fn new(url: &str, arguments: &args::Push) -> Result<Post> {
        let headers = headers::read(arguments)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Credentials are for the host that was named and for none in between.
            .proxy(None)
            .timeout_connect(Some(CONNECT.min(arguments.timeout)))
            .timeout_global(Some(arguments.timeout))
            .user_agent(concat!("yamabiko/", env!("CARGO_PKG_VERSION")));
        let config = if url.starts_with("https:") { config.tls_config(tls(arguments)?) } else { config };
        if url.starts_with("http:") && !headers.is_empty() && !is_loopback(url) {
            say("note: the headers go over http, readable for whoever listens on the way; https is not");
        }
        Ok(Post { agent: config.build().into(), url: url.to_owned(), headers })
    }

    /// The receiver as it is printed: without what may be secret in a query.
    pub fn receiver(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Sends a message until it is taken. Returns what the receiver answered.
    ///
    /// # Errors
    /// The receiver refuses it, or did not take it however often it was tried.
    pub fn send(&self, body: &[u8], own: &[(&str, &str)], is_tried_again: fn(u16) -> bool) -> Result<Vec<u8>> {
        let mut pause = PAUSE_MIN;
        let mut left = TRIES;
        loop {
            left -= 1;
            match self.send_once(body, own, is_tried_again) {
                Answer::Taken(answer) => return Ok(answer),
                Answer::Later(why, wanted) if left > 0 => {
                    let wait = wanted.unwrap_or(pause).min(PAUSE_MAX);
                    say(format_args!("{}: {why}; again in {:.1} s", self.receiver(), wait.as_secs_f64()));
                    wait_for(wait);
                    pause *= 2;
                }
                Answer::Later(why, _) | Answer::Refused(why) => {
                    // What lacks is the receiver's: an error of the environment.
                    let error = std::io::Error::other(why);
                    return Err(anyhow::Error::from(error).context(format!("sending to {}", self.receiver())));
                }
            }
        }
    }

    fn send_once(&self, body: &[u8], own: &[(&str, &str)], is_tried_again: fn(u16) -> bool) -> Answer {
        let mut request = self.agent.post(&self.url);
        for (name, value) in own {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = match request.send(body) {
            Ok(response) => response,
            Err(error @ (ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Rustls(_))) => {
                return Answer::Refused(error.to_string());
            }
            // A certificate that is not trusted, or no TLS at all.
            Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Answer::Refused(error.to_string());
            }
            Err(error) => return Answer::Later(error.to_string(), None),
        };
        let status = response.status().as_u16();
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let told = response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().unwrap_or_default();
        if (200..300).contains(&status) {
            return Answer::Taken(told);
        }
        let words = String::from_utf8_lossy(&told);
        let words = report::figures::plain(words.trim().lines().next().unwrap_or_default());
        let words: String = words.chars().take(WORDS_MAX).collect();
        let why = format!("status {status} {words}{}", mend(status, &words));
        if is_tried_again(status) { Answer::Later(why, after.map(Duration::from_secs)) } else { Answer::Refused(why) }
    }
}

/// What the user can do.
fn mend(status: u16, words: &str) -> &'static str {
    match status {
        300..=399 => "; it sends elsewhere: name that address itself, headers are not passed on",
        401 | 403 => "; it wants other credentials: --header-file",
        404 | 405 => {
            "; is this its path? Prometheus takes /api/v1/write, if started with --web.enable-remote-write-receiver"
        }
        _ if words.contains("out of bounds") || words.contains("out of order") || words.contains("too old") => {
            "; the run was sent before, or is older than what it takes: then `report --export openmetrics`, then `promtool tsdb create-blocks-from \
             openmetrics`, or out_of_order_time_window in its configuration"
        }
        _ => "",
    }
}

fn tls(arguments: &args::Push) -> Result<TlsConfig> {
    let certificates: Vec<Certificate<'static>> = match &arguments.cacert {
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            let items = parse_pem(&pem).collect::<Result<Vec<_>, _>>();
            let items = items.map_err(|_| anyhow!("{}: a certificate in it cannot be read", path.display()))?;
            items
                .into_iter()
                .filter_map(|item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None })
                .collect()
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    if certificates.is_empty() && !arguments.insecure {
        return Err(match &arguments.cacert {
            Some(path) => anyhow!("{} holds no certificate", path.display()),
            None => anyhow::Error::from(std::io::Error::other(
                "this system has no trusted certificates: install ca-certificates, or name the receiver's with --cacert",
            )),
        });
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .disable_verification(arguments.insecure)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[allow(clippy::disallowed_methods, reason = "nothing is measured while a receiver is given time")]
fn wait_for(pause: Duration) {
    std::thread::sleep(pause);
}

/// For a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Of one message, the first included.
const TRIES: u32 = 5;
/// Between two tries: at first, doubled each time, and at most, whatever the receiver wants.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Bytes read of an answer, and characters shown of it.
const ANSWER_MAX: u64 = 64 * 1024;
const WORDS_MAX: usize = 300;
