//! Cookies: what servers set, each client keeps, and sends back (RFC 6265).
//!
//! A jar is small, since there may be a hundred thousand: a client without cookies has none, and one with a session
//! cookie costs some 250 bytes. Expiry is told by the run's clock. A date in Expires is taken as so long after the Date of
//! the same response, so that nothing here needs the wall clock, and a server whose clock is wrong is understood; without
//! a Date one before 2020 has passed, and any other is beyond the run.
//!
//! Not done: SameSite and HttpOnly (there are no foreign sites and no scripts here), and the list of public suffixes;
//! instead a Domain without a dot is refused, unless it is the host itself.

mod date;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Timestamp;

use super::fields;
use crate::Target;

/// Most cookies a client keeps; the oldest make room.
pub const COOKIES_MAX: usize = 100;

/// Largest name and value together, in bytes (RFC 6265, section 6.1); a larger cookie is not kept.
pub const COOKIE_BYTES_MAX: usize = 4096;

/// Most bytes of names and values that a client keeps: a header with more is refused by most servers.
pub const JAR_BYTES_MAX: usize = 16 * 1024;

/// Longest life, as in browsers (RFC 6265bis).
const LIFE_MAX: Duration = Duration::from_secs(400 * 86_400);

/// Seconds since 1970 of 2020-01-01.
const LONG_PAST: i64 = 1_577_836_800;

/// The cookies of all clients.
#[derive(Clone, Debug, Default)]
pub struct Jars(HashMap<u32, Jar>);

impl Jars {
    /// Keeps for `client` what the Set-Cookie lines of a head say: see [`Jar::take_in`].
    pub fn take_in(&mut self, client: u32, head: &[u8], target: &Target, path: &[u8], now: Timestamp) {
        if fields::first(head, "set-cookie").is_none() {
            return;
        }
        let jar = self.0.entry(client).or_default();
        jar.take_in(head, target, path, now);
        if jar.cookies.is_empty() {
            self.0.remove(&client);
        }
    }

    /// Value of the Cookie header with which `client` asks: see [`Jar::header`].
    pub fn header(&self, client: u32, target: &Target, path: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        self.0.get(&client)?.header(target, path, now)
    }

    /// Number of clients that have a cookie.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has a cookie.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The cookies of one client.
#[derive(Clone, Debug, Default)]
pub struct Jar {
    /// In the order in which they were first set.
    cookies: Vec<Cookie>,
}

#[derive(Clone, Debug)]
struct Cookie {
    /// `name=value`, as it is sent.
    pair: Box<[u8]>,
    name_bytes: u16,
    host_only: bool,
    secure: bool,
    /// Lower case.
    domain: Box<str>,
    path: Box<[u8]>,
    /// No longer sent from then on; `None`: kept to the end of the run.
    expires: Option<Timestamp>,
}

impl Jar {
    /// Keeps what the Set-Cookie lines of a head say, in their order. `target` and `path` (a query in it is let pass) are
    /// those of the request. A line that sets nothing, or that another host would have to set, is passed over; one that
    /// has expired removes the cookie it names.
    pub fn take_in(&mut self, head: &[u8], target: &Target, path: &[u8], now: Timestamp) {
        let server_time = fields::first(head, "date").and_then(date::read);
        let host = target.host.to_ascii_lowercase();
        for (name, line) in fields::fields(head) {
            if name.eq_ignore_ascii_case(b"set-cookie") {
                self.set(line, &host, path, server_time, now);
            }
        }
    }

    /// Value of the Cookie header for a request of `path` (a query in it is let pass) at `target`: those of longer paths
    /// first, then those first set (RFC 6265, section 5.4). `None` where none belongs.
    pub fn header(&self, target: &Target, path: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        if self.cookies.is_empty() {
            return None;
        }
        let host = target.host.to_ascii_lowercase();
        let path = without_query(path);
        let belongs = |cookie: &&Cookie| {
            cookie.expires.is_none_or(|at| now < at)
                && (target.secure || !cookie.secure)
                && (if cookie.host_only { *cookie.domain == *host } else { domain_matches(&host, &cookie.domain) })
                && path_matches(path, &cookie.path)
        };
        let mut sent: Vec<&Cookie> = self.cookies.iter().filter(belongs).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<&[u8]> = sent.iter().map(|cookie| &*cookie.pair).collect();
        (!pairs.is_empty()).then(|| pairs.join(&b"; "[..]))
    }

    /// Number of cookies kept, expired ones that nothing has removed yet among them.
    pub fn len(&self) -> usize {
        self.cookies.len()
    }

    /// Whether no cookie is kept.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    fn set(&mut self, line: &[u8], host: &str, path: &[u8], server_time: Option<i64>, now: Timestamp) {
        let Some(said) = SetCookie::read(line) else { return };
        let (domain, host_only) = match said.domain {
            None => (host.to_owned(), true),
            Some(domain) if domain == host => (domain, host.parse::<IpAddr>().is_ok()),
            Some(domain) if domain.contains('.') && domain_matches(host, &domain) => (domain, false),
            Some(_) => return,
        };
        let path = said.path.unwrap_or_else(|| default_path(path));
        let life = match (said.max_age, said.expires) {
            (Some(seconds), _) => Life::of(i128::from(seconds)),
            (None, Some(at)) => match server_time {
                Some(server_time) => Life::of(i128::from(at) - i128::from(server_time)),
                None if at < LONG_PAST => Life::Over,
                None => Life::Endless,
            },
            (None, None) => Life::Endless,
        };
        let expires = match life {
            Life::Over => None,
            Life::Endless => None,
            Life::Lasts(lasts) => Some(now + lasts),
        };
        let cookie = Cookie {
            name_bytes: said.name_bytes,
            pair: said.pair,
            host_only,
            secure: said.secure,
            domain: domain.into(),
            path: path.into(),
            expires,
        };
        let same = self.cookies.iter().position(|kept| kept.is_same(&cookie));
        match (same, life) {
            (Some(at), Life::Over) => drop(self.cookies.remove(at)),
            (None, Life::Over) => {}
            // It keeps its place: the moment of its creation is the first one's.
            (Some(at), _) => self.cookies[at] = cookie,
            (None, _) => self.cookies.push(cookie),
        }
        self.make_room(now);
    }

    fn make_room(&mut self, now: Timestamp) {
        let too_much = |cookies: &[Cookie]| {
            cookies.len() > COOKIES_MAX || cookies.iter().map(|cookie| cookie.pair.len()).sum::<usize>() > JAR_BYTES_MAX
        };
        if too_much(&self.cookies) {
            self.cookies.retain(|cookie| cookie.expires.is_none_or(|at| now < at));
        }
        while too_much(&self.cookies) {
            self.cookies.remove(0);
        }
    }
}

impl Cookie {
    fn name(&self) -> &[u8] {
        &self.pair[..usize::from(self.name_bytes)]
    }

    fn is_same(&self, other: &Cookie) -> bool {
        self.name() == other.name() && self.domain == other.domain && self.path == other.path
    }
}

#[derive(Clone, Copy)]
enum Life {
    Over,
    Lasts(Duration),
    Endless,
}

impl Life {
    fn of(seconds: i128) -> Life {
        match u64::try_from(seconds) {
            Ok(seconds @ 1..) => Life::Lasts(Duration::from_secs(seconds).min(LIFE_MAX)),
            Ok(0) | Err(_) if seconds <= 0 => Life::Over,
            _ => Life::Lasts(LIFE_MAX),
        }
    }
}

/// A Set-Cookie line taken apart (RFC 6265, section 5.2).
struct SetCookie {
    pair: Box<[u8]>,
    name_bytes: u16,
    domain: Option<String>,
    path: Option<Vec<u8>>,
    secure: bool,
    max_age: Option<i64>,
    expires: Option<i64>,
}

impl SetCookie {
    fn read(line: &[u8]) -> Option<SetCookie> {
        let mut parts = line.split(|&byte| byte == b';');
        let (name, value) = halves(parts.next()?);
        let value = value?;
        // A control character would not come through the next server's parser.
        let sendable = |text: &[u8]| text.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
        if name.is_empty() || name.len() + value.len() > COOKIE_BYTES_MAX || !sendable(name) || !sendable(value) {
            return None;
        }
        let mut said = SetCookie {
            name_bytes: u16::try_from(name.len()).ok()?,
            pair: [name, b"=", value].concat().into(),
            domain: None,
            path: None,
            secure: false,
            max_age: None,
            expires: None,
        };
        // Of attributes given more than once the last holds.
        for part in parts {
            let (name, value) = halves(part);
            let value = value.unwrap_or_default();
            match name.to_ascii_lowercase().as_slice() {
                b"expires" => said.expires = date::read(value).or(said.expires),
                b"max-age" => said.max_age = seconds(value).or(said.max_age),
                b"domain" => {
                    let domain = str::from_utf8(value).ok()?;
                    let domain = domain.strip_prefix('.').unwrap_or(domain).to_ascii_lowercase();
                    said.domain = Some(domain).filter(|domain| !domain.is_empty());
                }
                b"path" => said.path = Some(value.to_vec()).filter(|path| path.starts_with(b"/") && path.len() <= 1024),
                b"secure" => said.secure = true,
                _ => {}
            }
        }
        Some(said)
    }
}

/// Around the first `=`, without the spaces.
fn halves(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    match part.iter().position(|&byte| byte == b'=') {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part.trim_ascii(), None),
    }
}

/// Max-Age: digits, perhaps a minus. One that is too large for the type lasts as long as any.
fn seconds(value: &[u8]) -> Option<i64> {
    let (negative, digits) = value.strip_prefix(b"-").map_or((false, value), |digits| (true, digits));
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = str::from_utf8(digits).ok()?.parse::<i64>().unwrap_or(i64::MAX);
    Some(if negative { -seconds } else { seconds })
}

/// RFC 6265, section 5.1.3; both in lower case.
fn domain_matches(host: &str, domain: &str) -> bool {
    host == domain
        || host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')) && host.parse::<IpAddr>().is_err()
}

/// RFC 6265, section 5.1.4.
fn path_matches(path: &[u8], own: &[u8]) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || own.ends_with(b"/") || rest.starts_with(b"/"))
}

/// RFC 6265, section 5.1.4: the request's path up to its last slash, that one left out.
fn default_path(path: &[u8]) -> Vec<u8> {
    let path = without_query(path);
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash @ 1..) if path.starts_with(b"/") => path[..slash].to_vec(),
        _ => b"/".to_vec(),
    }
}

fn without_query(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
