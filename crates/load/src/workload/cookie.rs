//! The cookies of each client (RFC 6265).
//!
//! Cookie jars are small, since a load may have a hundred thousand clients: a client without cookies has no jar, and
//! one with a session cookie uses some 250 bytes. Cookies expire by the run's clock. A date in Expires counts relative
//! to the Date of the same response, so that neither the local wall clock nor a wrong clock of the server matters.
//! Without Date, an Expires before 2020 counts as past, and any later one as after the end of the run.
//!
//! Not supported: SameSite and HttpOnly (a load has no other sites and no scripts), and the list of public suffixes.
//! Instead a Domain without a dot is rejected, unless it is the host itself.

mod date;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Timestamp;

use super::fields;
use crate::Target;

/// Maximum cookies of a client; the oldest are removed first.
pub const COOKIES_MAX: usize = 100;

/// Maximum bytes of a cookie's name and value together (RFC 6265, section 6.1); a larger cookie is ignored.
pub const COOKIE_BYTES_MAX: usize = 4096;

/// Maximum bytes of the names and values of a client's cookies: most servers reject a longer header.
pub const JAR_BYTES_MAX: usize = 16 * 1024;

/// Maximum lifetime of a cookie, as in browsers (RFC 6265bis).
const LIFETIME_MAX: Duration = Duration::from_secs(400 * 86_400);

/// Unix time of 2020-01-01 in seconds. Without Date, earlier dates count as past.
const PAST_BEFORE_UNIX_S: i64 = 1_577_836_800;

/// The cookies of all clients.
#[derive(Clone, Debug, Default)]
pub struct Jars(HashMap<u32, Jar>);

impl Jars {
    /// Stores the cookies of a response's Set-Cookie lines for `client`: see [`Jar::take_in`].
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

    /// Value of the Cookie header of a request by `client`: see [`Jar::header`].
    pub fn header(&self, client: u32, target: &Target, path: &[u8], now: Timestamp) -> Option<Vec<u8>> {
        self.0.get(&client)?.header(target, path, now)
    }

    /// Number of clients with a cookie.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no client has a cookie.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The cookies of one client.
#[derive(Clone, Debug, Default)]
pub struct Jar {
    /// In order of creation.
    cookies: Vec<Cookie>,
}

#[derive(Clone, Debug)]
struct Cookie {
    /// `name=value`, as sent.
    pair: Box<[u8]>,
    name_bytes: u16,
    host_only: bool,
    secure: bool,
    /// Lower case.
    domain: Box<str>,
    path: Box<[u8]>,
    /// When the cookie expires; `None` if it lasts until the end of the run.
    expires: Option<Timestamp>,
}

impl Jar {
    /// Stores the cookies of a head's Set-Cookie lines, in their order. `target` and `path` (a query is ignored) are
    /// those of the request. Invalid lines, and lines for another host, are ignored. An expired cookie removes the
    /// stored one.
    pub fn take_in(&mut self, head: &[u8], target: &Target, path: &[u8], now: Timestamp) {
        let server_time = fields::first(head, "date").and_then(date::read);
        let host = target.host.to_ascii_lowercase();
        for (name, line) in fields::fields(head) {
            if name.eq_ignore_ascii_case(b"set-cookie") {
                self.set(line, &host, path, server_time, now);
            }
        }
    }

    /// Value of the Cookie header for a request of `path` (a query is ignored) at `target`: cookies with longer paths
    /// first, then in order of creation (RFC 6265, section 5.4). `None` if no cookie matches.
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

    /// Number of stored cookies, including expired ones that have not been removed yet.
    pub fn len(&self) -> usize {
        self.cookies.len()
    }

    /// Whether no cookie is stored.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    fn set(&mut self, line: &[u8], host: &str, path: &[u8], server_time: Option<i64>, now: Timestamp) {
        let Some(parsed) = SetCookie::read(line) else { return };
        let (domain, host_only) = match parsed.domain {
            None => (host.to_owned(), true),
            Some(domain) if domain == host => (domain, host.parse::<IpAddr>().is_ok()),
            Some(domain) if domain.contains('.') && domain_matches(host, &domain) => (domain, false),
            Some(_) => return,
        };
        let path = parsed.path.unwrap_or_else(|| default_path(path));
        let lifetime = match (parsed.max_age, parsed.expires) {
            (Some(seconds), _) => Lifetime::of(i128::from(seconds)),
            (None, Some(at)) => match server_time {
                Some(server_time) => Lifetime::of(i128::from(at) - i128::from(server_time)),
                None if at < PAST_BEFORE_UNIX_S => Lifetime::Over,
                None => Lifetime::Endless,
            },
            (None, None) => Lifetime::Endless,
        };
        let expires = match lifetime {
            Lifetime::Over => None,
            Lifetime::Endless => None,
            Lifetime::Lasts(lasts) => Some(now + lasts),
        };
        let cookie = Cookie {
            name_bytes: parsed.name_bytes,
            pair: parsed.pair,
            host_only,
            secure: parsed.secure,
            domain: domain.into(),
            path: path.into(),
            expires,
        };
        let same = self.cookies.iter().position(|stored| stored.is_same(&cookie));
        match (same, lifetime) {
            (Some(at), Lifetime::Over) => drop(self.cookies.remove(at)),
            (None, Lifetime::Over) => {}
            // A replaced cookie keeps its position, as its creation time stays that of the first one.
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
enum Lifetime {
    Over,
    Lasts(Duration),
    Endless,
}

impl Lifetime {
    fn of(seconds: i128) -> Lifetime {
        match u64::try_from(seconds) {
            Ok(seconds @ 1..) => Lifetime::Lasts(Duration::from_secs(seconds).min(LIFETIME_MAX)),
            Ok(0) | Err(_) if seconds <= 0 => Lifetime::Over,
            _ => Lifetime::Lasts(LIFETIME_MAX),
        }
    }
}

/// A parsed Set-Cookie line (RFC 6265, section 5.2).
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
        // Servers reject requests with control characters.
        let sendable = |text: &[u8]| text.iter().all(|&byte| byte == b'\t' || !byte.is_ascii_control());
        if name.is_empty() || name.len() + value.len() > COOKIE_BYTES_MAX || !sendable(name) || !sendable(value) {
            return None;
        }
        let mut parsed = SetCookie {
            name_bytes: u16::try_from(name.len()).ok()?,
            pair: [name, b"=", value].concat().into(),
            domain: None,
            path: None,
            secure: false,
            max_age: None,
            expires: None,
        };
        // If an attribute occurs more than once, the last one applies.
        for part in parts {
            let (name, value) = halves(part);
            let value = value.unwrap_or_default();
            match name.to_ascii_lowercase().as_slice() {
                b"expires" => parsed.expires = date::read(value).or(parsed.expires),
                b"max-age" => parsed.max_age = seconds(value).or(parsed.max_age),
                b"domain" => {
                    let domain = str::from_utf8(value).ok()?;
                    let domain = domain.strip_prefix('.').unwrap_or(domain).to_ascii_lowercase();
                    parsed.domain = Some(domain).filter(|domain| !domain.is_empty());
                }
                b"path" => {
                    parsed.path = Some(value.to_vec()).filter(|path| path.starts_with(b"/") && path.len() <= 1024)
                }
                b"secure" => parsed.secure = true,
                _ => {}
            }
        }
        Some(parsed)
    }
}

/// Splits at the first `=` and trims both parts.
fn halves(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    match part.iter().position(|&byte| byte == b'=') {
        Some(at) => (part[..at].trim_ascii(), Some(part[at + 1..].trim_ascii())),
        None => (part.trim_ascii(), None),
    }
}

/// Parses Max-Age: digits, optionally after a minus. A number beyond `i64` becomes its maximum.
fn seconds(value: &[u8]) -> Option<i64> {
    let (negative, digits) = value.strip_prefix(b"-").map_or((false, value), |digits| (true, digits));
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = str::from_utf8(digits).ok()?.parse::<i64>().unwrap_or(i64::MAX);
    Some(if negative { -seconds } else { seconds })
}

/// Whether a host matches a cookie's domain (RFC 6265, section 5.1.3); both in lower case.
fn domain_matches(host: &str, domain: &str) -> bool {
    host == domain
        || host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')) && host.parse::<IpAddr>().is_err()
}

/// Whether a path matches a cookie's path (RFC 6265, section 5.1.4).
fn path_matches(path: &[u8], own: &[u8]) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || own.ends_with(b"/") || rest.starts_with(b"/"))
}

/// The default path of a cookie (RFC 6265, section 5.1.4): the request's path up to, but without, its last slash.
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
