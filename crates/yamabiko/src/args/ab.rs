//! Parses ApacheBench's command line as ab's getopt does.
//!
//! Options come before the URL. Letters may share a dash (`-kn1000`), and a value follows its letter directly or as the
//! next word. A count that ab parses with `atoi` must be a whole number here, since a misread count would give a run
//! with other settings than typed. Messages and exit statuses are ab's.

mod usage;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use plan::{Proxy, TlsVersion};
use report::ab::Attributes;
use schema::Method;

pub use self::usage::USAGE;

/// Most connections, as in ab.
const CONCURRENCY_MAX: u32 = 200_000;
/// Number of requests that `-t` implies.
const TIMED_REQUESTS: u64 = 50_000;

/// As clap sees it: all words are ab's.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Ab {
    /// ApacheBench's options and a URL; -h lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub words: Vec<OsString>,
}

/// The arguments after `yamabiko ab`, or all arguments if the program was started as `ab` (by a link). Otherwise
/// `None`.
pub fn words(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = arguments.next()?;
    if Path::new(&program).file_name() != Some(OsStr::new("ab")) && arguments.next()? != "ab" {
        return None;
    }
    Some(arguments.collect())
}

/// What an ab command line requests.
#[derive(Debug)]
pub enum Invocation {
    /// A measurement.
    Run(Box<Options>),
    /// `-h`
    Usage,
    /// `--help`, which ab does not have.
    Help,
    /// `-V`
    Version,
}

/// The options of a measurement.
#[derive(Debug)]
pub struct Options {
    /// The URL with its scheme.
    pub url: String,
    pub requests: u64,
    pub concurrency: u32,
    pub time_limit: Option<Duration>,
    pub timeout: Duration,
    pub keep_alive: bool,
    pub method: Method,
    pub body: Option<PathBuf>,
    /// Header lines, in the order in which ab sends them.
    pub headers: Vec<String>,
    pub proxy: Option<Proxy>,
    pub tls_version: TlsVersion,
    pub certificate: Option<PathBuf>,
    pub verbosity: u32,
    pub html: Option<Attributes>,
    pub percentiles: bool,
    pub deviations: bool,
    pub progress: bool,
    pub any_length: bool,
    pub survives_receive_errors: bool,
    pub gnuplot: Option<PathBuf>,
    pub percentages: Option<PathBuf>,
}

/// Why a command line was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// ab's message.
    pub message: String,
    /// Whether the usage follows and the exit status is 22 (EINVAL); otherwise the status is 1.
    pub usage: bool,
}

impl Refused {
    fn with_usage(message: impl Into<String>) -> Self {
        Refused { message: format!("ab: {}", message.into()), usage: true }
    }

    fn plain(message: impl Into<String>) -> Self {
        Refused { message: message.into(), usage: false }
    }
}

/// Options with a value, and options without. -b, -B, -I and -Z of ab are refused with an explanation.
const WITH_VALUE: &str = "ncstbTpuvxyzCHPAgXemBfEZ";
const WITHOUT_VALUE: &str = "lrkVhwiIdSq";

/// The first letter of a word that takes a value, and the value; empty if the value is the next word.
pub fn letter_with_value(word: &str) -> Option<(char, &str)> {
    let letters = word.strip_prefix('-')?;
    let found = letters.char_indices().find(|&(_, letter)| WITH_VALUE.contains(letter));
    found.map(|(at, letter)| (letter, &letters[at + letter.len_utf8()..]))
}

/// Parses the arguments after `ab`.
///
/// # Errors
/// With ab's message: an unknown letter, a missing value, a number out of range, no URL or more than one.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Invocation, Refused> {
    let mut words: VecDeque<String> = words
        .into_iter()
        .map(|word| word.into_string().map_err(|_| Refused::with_usage("arguments must be text in UTF-8")))
        .collect::<Result<_, _>>()?;
    if words.iter().any(|word| word == "--help") {
        return Ok(Invocation::Help);
    }
    let mut parsed = Parsed::default();
    while let Some(word) = words.pop_front_if(|word| word.len() > 1 && word.starts_with('-')) {
        if word == "--" {
            break;
        }
        let mut rest = &word[1..];
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            if WITH_VALUE.contains(letter) {
                let value = if rest.is_empty() { words.pop_front() } else { Some(rest.to_owned()) };
                let missing = || Refused::with_usage(format!("option requires an argument -- {letter}"));
                parsed.set_value(letter, &value.ok_or_else(missing)?)?;
                break;
            }
            if !WITHOUT_VALUE.contains(letter) {
                return Err(Refused::with_usage(format!("illegal option -- {letter}")));
            }
            match letter {
                'h' => return Ok(Invocation::Usage),
                'V' => return Ok(Invocation::Version),
                _ => parsed.set(letter)?,
            }
        }
    }
    let (Some(url), true) = (words.pop_front(), words.is_empty()) else {
        return Err(Refused::with_usage("wrong number of arguments"));
    };
    parsed.finish(&url).map(|options| Invocation::Run(Box::new(options)))
}

/// The options parsed so far.
#[derive(Default)]
struct Parsed {
    requests: Option<u64>,
    concurrency: Option<u32>,
    time_limit: Option<Duration>,
    timeout: Option<Duration>,
    method: Option<Method>,
    body: Option<PathBuf>,
    content_type: Option<String>,
    cookies: Vec<String>,
    authorizations: Vec<String>,
    headers: Vec<String>,
    proxy: Option<Proxy>,
    tls_version: TlsVersion,
    certificate: Option<PathBuf>,
    verbosity: u32,
    html: Option<Attributes>,
    gnuplot: Option<PathBuf>,
    percentages: Option<PathBuf>,
    letters: String,
}

impl Parsed {
    fn set(&mut self, letter: char) -> Result<(), Refused> {
        match letter {
            'i' => self.set_method(Method::Head, "HEAD")?,
            'w' => drop(self.html.get_or_insert_default()),
            'I' => return Err(unsupported(letter, "the name of an https URL is always sent in SNI")),
            _ => self.letters.push(letter),
        }
        Ok(())
    }

    fn has(&self, letter: char) -> bool {
        self.letters.contains(letter)
    }

    fn set_value(&mut self, letter: char, value: &str) -> Result<(), Refused> {
        let file = || Some(PathBuf::from(value));
        match letter {
            'n' => self.requests = Some(number(value, 1).ok_or_else(|| Refused::plain("Invalid number of requests"))?),
            'c' => {
                let range = || Refused::with_usage(format!("Invalid Concurrency [Range 0..{CONCURRENCY_MAX}]"));
                let concurrency = number(value, 1).filter(|&count| count <= u64::from(CONCURRENCY_MAX));
                self.concurrency = Some(concurrency.ok_or_else(range)? as u32);
            }
            't' => {
                let limit = number(value, 1).ok_or_else(|| Refused::plain("Invalid negative timelimit"))?;
                self.time_limit = Some(Duration::from_secs(limit));
                // As in ab, a later -n overrides this count, and an earlier -n does not.
                self.requests = Some(TIMED_REQUESTS);
            }
            's' => {
                let timeout = number(value, 1).ok_or_else(|| Refused::plain("Invalid timeout"))?;
                self.timeout = Some(Duration::from_secs(timeout));
            }
            'p' | 'u' => {
                let (method, name) = if letter == 'p' { (Method::Post, "POST") } else { (Method::Put, "PUT") };
                self.set_method(method, name)?;
                if let Err(error) = std::fs::File::open(value) {
                    let why = crate::exit::without_os_error_number(&error.to_string());
                    return Err(Refused::plain(format!("ab: Could not open POST data file ({value}): {why}")));
                }
                self.body = file();
            }
            'm' => {
                let named = |method: &Method| method.as_str() == value;
                let known = Method::ALL.map(Method::as_str).join(", ");
                let method = Method::ALL.into_iter().find(named);
                self.method = Some(method.ok_or_else(|| unsupported('m', &format!("methods are {known}")))?);
            }
            'T' => self.content_type = Some(value.to_owned()),
            'v' => self.verbosity = number(value, 0).ok_or_else(|| Refused::plain("Invalid verbosity"))? as u32,
            'x' => self.html.get_or_insert_default().table = value.to_owned(),
            'y' => self.html.get_or_insert_default().row = value.to_owned(),
            'z' => self.html.get_or_insert_default().cell = value.to_owned(),
            'C' => self.cookies.push(value.to_owned()),
            'H' => self.headers.push(value.to_owned()),
            'A' => self.authorizations.push(basic("Authorization", value)),
            'P' => self.authorizations.push(basic("Proxy-Authorization", value)),
            'g' => self.gnuplot = file(),
            'e' => self.percentages = file(),
            'E' => self.certificate = file(),
            'X' => self.proxy = Some(value.parse().map_err(Refused::with_usage)?),
            'f' => {
                self.tls_version = match value.to_ascii_uppercase().as_str() {
                    "ALL" => TlsVersion::Any,
                    "TLS1.2" => TlsVersion::V12,
                    "TLS1.3" => TlsVersion::V13,
                    _ => return Err(unsupported(letter, "protocols are TLS1.2, TLS1.3 and ALL")),
                }
            }
            'b' => return Err(unsupported(letter, "the kernel chooses the buffers")),
            'B' => return Err(unsupported(letter, "the kernel chooses the source address")),
            'Z' => return Err(unsupported(letter, "the cipher suites are those that are safe today")),
            _ => unreachable!("every letter of WITH_VALUE is handled"),
        }
        Ok(())
    }

    fn set_method(&mut self, method: Method, name: &str) -> Result<(), Refused> {
        if self.method.is_some() {
            return Err(Refused::plain(format!("Cannot mix {name} with other methods")));
        }
        self.method = Some(method);
        Ok(())
    }

    fn finish(self, url: &str) -> Result<Options, Refused> {
        let requests = self.requests.unwrap_or(1);
        let concurrency = self.concurrency.unwrap_or(1);
        if u64::from(concurrency) > requests {
            return Err(Refused::with_usage("Cannot use concurrency level greater than total number of requests"));
        }
        Ok(Options {
            url: complete_url(url).ok_or_else(|| Refused::with_usage("invalid URL"))?,
            requests,
            concurrency,
            time_limit: self.time_limit,
            timeout: self.timeout.unwrap_or(Duration::from_secs(30)),
            keep_alive: self.has('k'),
            method: self.method.unwrap_or_default(),
            headers: self.all_headers(),
            percentiles: !self.has('d'),
            deviations: !self.has('S'),
            progress: !self.has('q'),
            any_length: self.has('l'),
            survives_receive_errors: self.has('r'),
            body: self.body,
            proxy: self.proxy,
            tls_version: self.tls_version,
            certificate: self.certificate,
            verbosity: self.verbosity,
            html: self.html,
            gnuplot: self.gnuplot,
            percentages: self.percentages,
        })
    }

    /// All header lines: cookies (in one line, as RFC 6265 requires), credentials, the body's type, then the lines of
    /// -H.
    fn all_headers(&self) -> Vec<String> {
        let cookie = (!self.cookies.is_empty()).then(|| format!("Cookie: {}", self.cookies.join("; ")));
        let content_type = self.content_type.as_deref().unwrap_or("text/plain");
        let content_type = self.body.is_some().then(|| format!("Content-Type: {content_type}"));
        let given = self.authorizations.iter().cloned().chain(content_type).chain(self.headers.iter().cloned());
        cookie.into_iter().chain(given).collect()
    }
}

fn unsupported(letter: char, instead: &str) -> Refused {
    Refused::with_usage(format!("-{letter} is not supported by yamabiko: {instead}"))
}

/// Parses a whole number of at least `min`.
fn number(text: &str, min: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u32>().ok().filter(|_| digits).map(u64::from).filter(|&number| number >= min)
}

fn basic(name: &str, credentials: &str) -> String {
    format!("{name}: Basic {}", STANDARD.encode(credentials.trim_start()))
}

/// The URL with its scheme. As in ab, a slash must follow host and port.
fn complete_url(text: &str) -> Option<String> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return None,
        None => ("http", text),
    };
    let (authority, _) = rest.split_once('/')?;
    let url = format!("{scheme}://{rest}");
    (!authority.is_empty() && load::Target::parse(&url).is_ok()).then_some(url)
}

#[cfg(test)]
mod tests;
