//! A caching proxy in the test process: correct (it stores every cacheable response, collapses requests, honours Vary,
//! lifetimes, reloads and conditional requests), or with one known fault.
//!
//! The proxy has one blocking thread per connection. It is a forward proxy (absolute URLs), or a reverse proxy in front
//! of the origin `to`. It forwards a body after it has received all of it.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::disallowed_methods, reason = "lifetimes of stored responses are wall-clock times")]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// The fault of the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Every tenth response belongs to another URL.
    WrongObject,
    /// Vary is ignored: all clients get the content coding of the first request.
    IgnoresVary,
    /// Uncacheable responses are stored.
    StoresUncacheable,
    /// Lifetimes are ignored.
    NeverExpires,
    /// Every tenth body is truncated to half, with a matching length.
    Truncates,
    /// Every tenth body has a changed byte in its middle.
    CorruptsByte,
    /// A reload (`no-cache`) gets the stored response.
    IgnoresReload,
    /// The response to a conditional request is always 304.
    AlwaysNotModified,
    /// Every tenth body is extended, with a matching length.
    Extends,
    /// Every tenth response is a page of the proxy itself, with status 200.
    RespondsItself,
    /// Every tenth cacheable response has the request id of another response.
    MixesRequestIds,
    /// Nothing is stored.
    StoresNothing,
    /// The header field with the request id is not forwarded.
    DropsRequestId,
    /// The proxy forwards requests to itself. After [`MAX_HOPS`] hops it does not respond.
    Loops,
    /// The proxy redirects every request to the requested URL.
    RedirectsToItself,
    /// This many of ten requests get status 502.
    Fails(u64),
}

/// Maximum hops of a request in a forwarding loop.
const MAX_HOPS: usize = 5;

/// The running proxy. Dropping it closes the listener.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// Counters of the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Received requests.
    pub requests: u64,
    /// Requests that a stored response answered.
    pub hits: u64,
    /// Requests to the origin.
    pub fetched: u64,
}

struct Shared {
    fault: Fault,
    address: SocketAddr,
    /// The origin of a reverse proxy.
    to: Option<SocketAddr>,
    ended: AtomicBool,
    /// Killed by [`Proxy::kill`] and not restarted.
    is_dead: AtomicBool,
    /// Client connections by number, which [`Proxy::kill`] closes.
    open: Mutex<HashMap<usize, TcpStream>>,
    requests: AtomicU64,
    hits: AtomicU64,
    fetched: AtomicU64,
    /// The stored responses.
    store: Mutex<Store>,
    filled: Condvar,
}

#[derive(Default)]
struct Store {
    /// By URL: whether its responses have a Vary field.
    varies: HashMap<String, bool>,
    /// By URL and whether the coding is gzip.
    copies: HashMap<(String, bool), StoreEntry>,
    /// URLs with uncacheable responses: requests for them do not wait for each other.
    uncacheable: HashSet<String>,
    /// Responses to some URLs, for faults that send a response to another URL.
    any: Vec<(String, Arc<Response>)>,
}

enum StoreEntry {
    /// A request to the origin is under way.
    Pending,
    Stored(Arc<Response>),
}

/// A complete response.
struct Response {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Request {
    method: String,
    target: String,
    version: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Proxy {
    /// Starts a forward proxy.
    pub fn forward(fault: Fault) -> Proxy {
        Proxy::start(fault, None)
    }

    /// Starts a reverse proxy in front of the origin `to`.
    pub fn reverse(fault: Fault, to: SocketAddr) -> Proxy {
        Proxy::start(fault, Some(to))
    }

    fn start(fault: Fault, to: Option<SocketAddr>) -> Proxy {
        let listener = non_ephemeral_listener();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            fault,
            address,
            to,
            ended: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            open: Mutex::default(),
            requests: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            fetched: AtomicU64::new(0),
            store: Mutex::default(),
            filled: Condvar::new(),
        });
        let listening = Some(shared.listen(listener));
        Proxy { address, shared, listening }
    }

    /// Closes the listener and every client connection immediately. Stored responses stay.
    pub fn kill(&mut self) {
        self.shared.is_dead.store(true, Ordering::Release);
        self.stop_listening();
        for (_, stream) in self.shared.open.lock().unwrap().drain() {
            // An error means that the client has closed the connection.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again on the address from before [`Proxy::kill`].
    pub fn restart(&mut self) {
        self.shared.is_dead.store(false, Ordering::Release);
        self.listening = Some(self.shared.listen(TcpListener::bind(self.address).unwrap()));
    }

    fn stop_listening(&mut self) {
        if let Some(listening) = self.listening.take() {
            // Wakes the listening thread.
            let _ = TcpStream::connect(self.address);
            listening.join().unwrap();
        }
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The current counters.
    pub fn counters(&self) -> Counters {
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        Counters { requests: of(&self.shared.requests), hits: of(&self.shared.hits), fetched: of(&self.shared.fetched) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.stop_listening();
    }
}

/// A listener on a port outside of the kernel's ephemeral range: a client that connects to an ephemeral port without a
/// listener could connect to itself. Ports are unique in this process, so that a restarted proxy gets its port again.
pub fn non_ephemeral_listener() -> TcpListener {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Processes with consecutive numbers begin with ports far apart.
    let first = std::process::id().wrapping_mul(61);
    let mut ports =
        std::iter::repeat_with(|| first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % 20_000).take(20_000);
    ports.find_map(|port| TcpListener::bind(("127.0.0.1", 10_000 + port as u16)).ok()).expect("a port is free")
}

impl Shared {
    fn listen(self: &Arc<Shared>, listener: TcpListener) -> JoinHandle<()> {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if shared.ended.load(Ordering::Acquire) || shared.is_dead.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { return };
                if let Ok(copy) = stream.try_clone() {
                    shared.open.lock().unwrap().insert(number, copy);
                }
                thread::spawn(move || {
                    // An error means that the client or the origin closed a connection.
                    let _ = shared.connection(stream);
                    // The copy of the descriptor would keep the connection open.
                    shared.open.lock().unwrap().remove(&number);
                });
            }
        })
    }

    fn connection(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        while let Some(request) = Request::read(&mut reader)? {
            let number = self.requests.fetch_add(1, Ordering::AcqRel);
            let closes = request.version == "HTTP/1.0" || request.has("connection", "close");
            let response = self.response(&request, number).unwrap_or_else(|_| Arc::new(Response::plain(502)));
            let response = self.with_fault(&request, response, number);
            response.write(&mut writer, request.method == "HEAD", closes)?;
            if closes {
                break;
            }
        }
        Ok(())
    }

    fn response(&self, request: &Request, number: u64) -> Result<Arc<Response>> {
        if let Fault::Fails(of_ten) = self.fault
            && number % 10 < of_ten
        {
            return Ok(Arc::new(Response::plain(502)));
        }
        if self.fault == Fault::RedirectsToItself {
            let back = ("Location".to_owned(), request.target.clone());
            return Ok(Arc::new(Response { status: 302, fields: vec![back], body: Vec::new() }));
        }
        let is_read = request.method == "GET" || request.method == "HEAD";
        // A looping request would wait for its own response.
        if !is_read || self.fault == Fault::Loops {
            return self.fetch(request).map(Arc::new);
        }
        let reload = request.has("cache-control", "no-cache") || request.has("pragma", "no-cache");
        let gzip = request.has("accept-encoding", "gzip");
        let copy = if reload && self.fault != Fault::IgnoresReload {
            None
        } else {
            self.copy_or_claim(
                &request.target,
                gzip,
                request.method == "GET" && request.value("if-modified-since").is_none(),
            )
        };
        if let Some(copy) = copy {
            self.hits.fetch_add(1, Ordering::AcqRel);
            let since = request.value("if-modified-since");
            let unchanged = since.is_some_and(|since| copy.not_changed_since(since));
            return Ok(if unchanged || (since.is_some() && self.fault == Fault::AlwaysNotModified) {
                Arc::new(copy.not_modified())
            } else {
                copy
            });
        }
        let fetched = self.fetch(request).map(Arc::new);
        self.store_response(request, gzip, fetched.as_ref().ok());
        fetched
    }

    /// A stored response that may be used. If there is none and the response to this request will be stored (`fills`),
    /// other requests wait for it.
    fn copy_or_claim(&self, url: &str, gzip: bool, fills: bool) -> Option<Arc<Response>> {
        let mut store = self.store.lock().unwrap();
        loop {
            // Before the first response it is unknown whether the URL's responses vary: then each coding has its own
            // entry.
            let varies = store.varies.get(url).copied();
            let key = (url.to_owned(), gzip && varies.unwrap_or(true) && self.fault != Fault::IgnoresVary);
            match store.copies.get(&key) {
                Some(StoreEntry::Stored(copy)) if self.fault == Fault::NeverExpires || copy.is_fresh() => {
                    return Some(Arc::clone(copy));
                }
                Some(StoreEntry::Pending) => store = self.filled.wait(store).unwrap(),
                Some(StoreEntry::Stored(_)) | None => {
                    if fills && !store.uncacheable.contains(url) {
                        store.copies.insert(key, StoreEntry::Pending);
                    }
                    return None;
                }
            }
        }
    }

    /// Stores the response if it is cacheable, and releases the waiting requests.
    fn store_response(&self, request: &Request, gzip: bool, response: Option<&Arc<Response>>) {
        let mut store = self.store.lock().unwrap();
        let url = &request.target;
        let known = store.varies.get(url).copied();
        let claimed = (url.clone(), gzip && known.unwrap_or(true) && self.fault != Fault::IgnoresVary);
        if matches!(store.copies.get(&claimed), Some(StoreEntry::Pending)) && request.method == "GET" {
            store.copies.remove(&claimed);
        }
        if let Some(response) = response.filter(|response| response.status == 200 && request.method == "GET") {
            let varies = response.field("vary").is_some();
            if self.fault == Fault::StoresNothing {
                // The response is not stored.
            } else if response.is_cacheable() || self.fault == Fault::StoresUncacheable {
                store.varies.insert(url.clone(), varies);
                let key = (url.clone(), gzip && varies && self.fault != Fault::IgnoresVary);
                store.copies.insert(key, StoreEntry::Stored(Arc::clone(response)));
                if store.any.len() < 100 {
                    store.any.push((url.clone(), Arc::clone(response)));
                }
            } else {
                store.uncacheable.insert(url.clone());
            }
        }
        drop(store);
        self.filled.notify_all();
    }

    fn fetch(&self, request: &Request) -> Result<Response> {
        self.fetched.fetch_add(1, Ordering::AcqRel);
        let refuse = |why: &str| Error::new(ErrorKind::InvalidData, why.to_owned());
        let (to, path) = match (self.to, request.target.strip_prefix("http://")) {
            (Some(to), None) => (to, request.target.as_str()),
            (_, Some(rest)) => {
                let slash = rest.find('/').ok_or_else(|| refuse("the URL has no path"))?;
                (rest[..slash].parse().map_err(|_| refuse("the URL has no valid address"))?, &rest[slash..])
            }
            (None, None) => return Err(refuse("not a URL")),
        };
        let to = if self.fault == Fault::Loops { self.next_hop(request)? } else { to };
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        // A forwarding loop repeats the requested absolute URL.
        let target = if self.fault == Fault::Loops { request.target.as_str() } else { path };
        let mut head = format!("{} {target} HTTP/1.1\r\n", request.method);
        for (name, value) in &request.fields {
            let is_dropped = match name.to_ascii_lowercase().as_str() {
                "connection" | "proxy-connection" | "keep-alive" => true,
                "x-yamabiko-request-id" => self.fault == Fault::DropsRequestId,
                _ => false,
            };
            if !is_dropped {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str("Connection: close\r\nVia: 1.1 test\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&request.body)?;
        Response::read(&mut BufReader::new(stream), request.method == "HEAD")
    }

    /// The proxy's own address. After [`MAX_HOPS`] hops the request waits until the proxy ends.
    fn next_hop(&self, request: &Request) -> Result<SocketAddr> {
        let turns = request.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("via")).count();
        if turns < MAX_HOPS {
            return Ok(self.address);
        }
        while !self.ended.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Applies the fault to a response.
    fn with_fault(&self, request: &Request, response: Arc<Response>, number: u64) -> Arc<Response> {
        if number % 10 != 9 || response.status != 200 || response.body.len() < 2 {
            return response;
        }
        let half = response.body.len() / 2;
        let of_another_url = || {
            let store = self.store.lock().unwrap();
            store.any.iter().find(|(url, _)| *url != request.target).map(|(_, other)| Arc::clone(other))
        };
        match self.fault {
            Fault::WrongObject => of_another_url().unwrap_or(response),
            Fault::MixesRequestIds if response.is_cacheable() => match of_another_url() {
                Some(other) => Arc::new(response.with_request_id_of(&other)),
                None => response,
            },
            Fault::Extends => Arc::new(response.with_body([&response.body[..], b"more"].concat())),
            Fault::RespondsItself => {
                Arc::new(Response { status: 200, fields: Vec::new(), body: b"Please log in.".to_vec() })
            }
            Fault::Truncates => Arc::new(response.with_body(response.body[..half].to_vec())),
            Fault::CorruptsByte => {
                let mut body = response.body.clone();
                body[half] ^= 1;
                Arc::new(response.with_body(body))
            }
            _ => response,
        }
    }
}

impl Request {
    /// Reads the next request. `None` if the client has closed the connection.
    fn read(reader: &mut impl BufRead) -> Result<Option<Request>> {
        let Some((line, fields)) = head(reader)? else { return Ok(None) };
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let mut request = Request { method: word(), target: word(), version: word(), fields, body: Vec::new() };
        if let Some(length) = request.value("content-length").and_then(|length| length.parse::<usize>().ok()) {
            request.body = vec![0; length];
            reader.read_exact(&mut request.body)?;
        }
        Ok(Some(request))
    }

    fn value(&self, name: &str) -> Option<&str> {
        value(&self.fields, name)
    }

    fn has(&self, name: &str, word: &str) -> bool {
        self.value(name).is_some_and(|value| value.to_ascii_lowercase().contains(word))
    }
}

impl Response {
    /// A response without fields and body.
    fn plain(status: u16) -> Response {
        Response { status, fields: Vec::new(), body: Vec::new() }
    }

    fn read(reader: &mut impl BufRead, of_head: bool) -> Result<Response> {
        let cut = || Error::from(ErrorKind::UnexpectedEof);
        let (line, fields) = head(reader)?.ok_or_else(cut)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
        let mut response = Response { status, fields, body: Vec::new() };
        if of_head || status == 304 {
            return Ok(response);
        }
        match response.field("content-length").and_then(|length| length.parse::<u64>().ok()) {
            Some(length) => {
                reader.take(length).read_to_end(&mut response.body)?;
                // A response that the origin truncated must not be forwarded as complete.
                if response.body.len() as u64 != length {
                    return Err(cut());
                }
            }
            None => drop(reader.read_to_end(&mut response.body)?),
        }
        Ok(response)
    }

    fn field(&self, name: &str) -> Option<&str> {
        value(&self.fields, name)
    }

    fn is_cacheable(&self) -> bool {
        let control = self.field("cache-control").unwrap_or_default().to_ascii_lowercase();
        !control.contains("no-store") && !control.contains("private")
    }

    /// Whether max-age, counted from Date, or else Expires is in the future. A response without both is stored
    /// permanently.
    fn is_fresh(&self) -> bool {
        let date = |name: &str| self.field(name).and_then(|date| httpdate::parse_http_date(date).ok());
        let control = self.field("cache-control").unwrap_or_default();
        let age = control.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse::<u64>().ok());
        let until = match (age, date("date")) {
            (Some(age), Some(made)) => Some(made + Duration::from_secs(age)),
            _ => date("expires"),
        };
        until.is_none_or(|until| SystemTime::now() < until)
    }

    fn not_changed_since(&self, since: &str) -> bool {
        let date = |text: &str| httpdate::parse_http_date(text).ok();
        match (self.field("last-modified").and_then(date), date(since)) {
            (Some(changed), Some(since)) => changed <= since,
            _ => false,
        }
    }

    fn not_modified(&self) -> Response {
        Response { status: 304, fields: self.fields.clone(), body: Vec::new() }
    }

    fn with_body(&self, body: Vec<u8>) -> Response {
        Response { status: self.status, fields: self.fields.clone(), body }
    }

    /// This response with the request id of `other`: two parts of the identity field that the origin writes.
    fn with_request_id_of(&self, other: &Response) -> Response {
        const STAMP: &str = "x-yamabiko";
        let parts = |response: &Response| -> Vec<String> {
            response.field(STAMP).unwrap_or_default().split('.').map(str::to_owned).collect()
        };
        let (mut own, others) = (parts(self), parts(other));
        if own.len() == 7 && others.len() == 7 {
            own[4..6].clone_from_slice(&others[4..6]);
        }
        let fields = self.fields.iter().map(|(name, value)| {
            let value = if name.eq_ignore_ascii_case(STAMP) { own.join(".") } else { value.clone() };
            (name.clone(), value)
        });
        Response { status: self.status, fields: fields.collect(), body: self.body.clone() }
    }

    fn write(&self, writer: &mut impl Write, of_head: bool, closes: bool) -> Result<()> {
        let reason = if self.status == 200 { "OK" } else { "Other" };
        let mut out = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        let mut length = None;
        for (name, value) in &self.fields {
            match name.to_ascii_lowercase().as_str() {
                "connection" | "keep-alive" | "transfer-encoding" => {}
                "content-length" => length = Some(value.clone()),
                _ => out.push_str(&format!("{name}: {value}\r\n")),
            }
        }
        let length = if of_head { length } else { (self.status != 304).then(|| self.body.len().to_string()) };
        if let Some(length) = length {
            out.push_str(&format!("Content-Length: {length}\r\n"));
        }
        out.push_str(if closes { "Connection: close\r\n\r\n" } else { "\r\n" });
        let mut bytes = out.into_bytes();
        if !of_head {
            bytes.extend_from_slice(&self.body);
        }
        writer.write_all(&bytes)
    }
}

fn value<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Reads the first line and the header fields.
#[allow(clippy::type_complexity, reason = "the callers destructure it")]
fn head(reader: &mut impl BufRead) -> Result<Option<(String, Vec<(String, String)>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let first = line.trim_end().to_owned();
    let mut fields = Vec::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            None => return Ok(Some((first, fields))),
            Some((name, value)) => fields.push((name.to_owned(), value.trim().to_owned())),
        }
    }
}
