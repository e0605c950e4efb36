//! What is offered, as typed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use plan::{HttpVersion, Proxy, Retry};
use units::{RequestRate, parse_count, parse_count_u32, parse_duration};

#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Open loop: offer so many requests a second, such as 110/s, whatever the server does
    #[arg(short, long, allow_hyphen_values = true)]
    pub rate: Option<RequestRate>,
    /// Closed loop (no --rate): number of connections [default: 64]. Open loop: most connections open at once
    #[arg(short, long, value_parser = parse_count_u32, allow_hyphen_values = true)]
    pub connections: Option<u32>,
    /// Open so many connections before the load, 5,000 a second, and hold them through it [with --rate]
    #[arg(long, value_name = "NUMBER", value_parser = parse_count_u32, allow_hyphen_values = true)]
    pub open_connections: Option<u32>,
    /// End the measured phase after so many requests
    #[arg(short = 'n', long, value_parser = parse_count, allow_hyphen_values = true)]
    pub requests: Option<u64>,
    /// End the measured phase after this time [default: 10s if -n is not given either]
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Load before the measured phase, not in the results [default: with --rate, 1s and four of the longest RTTs]
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub warmup: Option<Duration>,
    /// Virtual clients, each with its own address and distance [default: 100 with
    /// --rate, else the connections; 1 without a path; with --replay those of the log]
    #[arg(long, value_parser = parse_count_u32, allow_hyphen_values = true, conflicts_with = "replay")]
    pub clients: Option<u32>,
    /// One connection per request
    #[arg(long, overrides_with = "keepalive")]
    pub close: bool,
    /// Keep connections open between requests (the default)
    #[arg(long, overrides_with = "close")]
    pub keepalive: bool,
    /// Send a request again if the server closed its idle connection while the request was on its way
    #[arg(long, value_enum, default_value_t)]
    pub retry: Retry,
    /// Request method
    #[arg(short, long, value_enum, default_value_t = MethodName::Get, ignore_case = true)]
    pub method: MethodName,
    /// Send this as the request's body: text, or a file, as @FILE or by its name
    #[arg(long, value_name = "TEXT|@FILE", value_parser = body, allow_hyphen_values = true)]
    pub body: Option<Body>,
    /// Add a header line, `Name: value`; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// Connect to this HTTP proxy: ask it for the whole URL, or for a tunnel to an https:// one (CONNECT)
    #[arg(long, value_name = "[USER:PASSWORD@]HOST:PORT")]
    pub proxy: Option<Proxy>,
    /// Connect to this Unix socket instead of the URL's host
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// HTTP/2: most requests at once on a connection, if the server allows as many [default: 100]
    #[arg(long, value_parser = parse_count_u32, allow_hyphen_values = true)]
    pub streams: Option<u32>,
    /// HTTP version of the requests; 2 is chosen by ALPN over TLS, and spoken at once without
    #[arg(long, value_enum, default_value_t)]
    pub http: HttpVersion,
    /// Fail a request whose response is not whole after this time
    #[arg(long, default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub timeout: Duration,
    /// Fail a request whose connection is not established after this time
    #[arg(long, default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub connect_timeout: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MethodName {
    #[value(name = "GET")]
    Get,
    #[value(name = "HEAD")]
    Head,
    #[value(name = "POST")]
    Post,
    #[value(name = "PUT")]
    Put,
    #[value(name = "PATCH")]
    Patch,
    #[value(name = "DELETE")]
    Delete,
    #[value(name = "OPTIONS")]
    Options,
}

/// A request's body as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Sent as it is.
    Text(String),
    /// The content of a file.
    File(PathBuf),
}

impl Body {
    /// The file, if it is one.
    pub fn file(&self) -> Option<PathBuf> {
        if let Body::File(file) = self { Some(file.clone()) } else { None }
    }

    /// The text, if it is such.
    pub fn text(&self) -> Option<String> {
        if let Body::Text(text) = self { Some(text.clone()) } else { None }
    }
}

/// `@FILE`, the name of a file, or text. A name is what exists as a file, or looks like one's name: one word with a slash or an
/// extension. So a misspelt name is refused where the file is read, and not sent in its place.
fn body(typed: &str) -> Result<Body, String> {
    if let Some(file) = typed.strip_prefix('@') {
        return if file.is_empty() {
            Err("a file's name is missing after @".into())
        } else {
            Ok(Body::File(file.into()))
        };
    }
    if Path::new(typed).is_file() {
        return Ok(Body::File(typed.into()));
    }
    let looks_like_text = typed.contains(|c: char| c.is_whitespace() || "{}[]<>=&\"'".contains(c));
    let looks_like_name = typed.contains('/') || Path::new(typed).extension().is_some();
    let is_name = looks_like_name && !looks_like_text && typed.parse::<f64>().is_err();
    Ok(if is_name { Body::File(typed.into()) } else { Body::Text(typed.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_text_or_files() {
        let text = |typed: &str| body(typed).unwrap() == Body::Text(typed.to_owned());
        for typed in ["hello", "a b", r#"{"a": 1.5}"#, "a=1&b=/x", "<x/>", "3.14", "", "see a.txt"] {
            assert!(text(typed), "{typed}");
        }
        for (typed, file) in
            [("@x", "x"), ("@a b.txt", "a b.txt"), ("/no/such/file", "/no/such/file"), ("paylod.json", "paylod.json")]
        {
            assert_eq!(body(typed), Ok(Body::File(file.into())), "{typed}");
        }
        assert!(body("@").is_err());
    }
}
