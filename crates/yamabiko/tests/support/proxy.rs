//! A test cache: correct (it stores everything, collapses requests, honours Vary, lifetimes, reloads and conditions),
//! or with one known fault.
//!
//! One blocking thread per connection, in the test process; forward (absolute URLs) and reverse (`to`) in one. Bodies
//! are fetched completely before they are forwarded.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::disallowed_methods, reason = "lifetimes of copies go by the wall clock")]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Every tenth response belongs to another URL.
    WrongObject,
    /// Vary is ignored: the first request decides the coding for all.
    IgnoresVary,
    /// Uncacheable responses are stored.
    KeepsUncacheable,
    /// Lifetimes are not minded.
    NeverExpires,
    /// Every tenth body is truncated to half, with a matching length.
    Truncates,
    /// Every tenth body has another byte in its middle.
    Flips,
    /// A reload gets the copy.
    IgnoresReload,
    /// A condition gets a 304 always.
    AlwaysNotModified,
    /// Every tenth body is extended, with a matching length.
    Lengthens,
    /// Every tenth response is a page of the proxy, with 200.
    AnswersItself,
    /// Every tenth cacheable response has the request id of another response.
    MixesHeads,
    /// Nothing is stored.
    Forgets,
    /// Fields that it does not know are not passed on.
    DropsAsk,
    /// It takes itself for the origin; after [`HOPS_MAX`] turns it has no connection left, and waits.
    Loops,
    /// It sends everybody back to where they came from.
    RedirectsToItself,
    /// So many of ten requests get 502.
    Fails(u64),
}

/// Turns of a request that loops.
const HOPS_MAX: usize = 5;

/// The cache. Its listener ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// What it counted of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Served from the cache.
    pub hits: u64,
    /// Requested from the origin.
    pub fetched: u64,
}

struct Shared {
    fault: Fault,
    address: SocketAddr,
    /// The origin of a reverse proxy.
    to: Option<SocketAddr>,
    ended: AtomicBool,
    /// Not listening now.
    is_dead: AtomicBool,
    /// Connections of clients by number, for when it dies.
    open: Mutex<HashMap<usize, TcpStream>>,
    requests: AtomicU64,
    hits: AtomicU64,
    fetched: AtomicU64,
    /// By URL: whether its responses vary; by URL and coding: the copy.
    store: Mutex<Store>,
    filled: Condvar,
}

#[derive(Default)]
struct Store {
    varies: HashMap<String, bool>,
    copies: HashMap<(String, bool), Slot>,
    /// No request waits for an uncacheable response.
    uncacheable: HashSet<String>,
    /// Of some URLs.
    any: Vec<(String, Arc<Answer>)>,
}

enum Slot {
    /// Somebody fetches it.
    Coming,
    Kept(Arc<Answer>),
}

/// A complete response.
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Asked {
    method: String,
    target: String,
    version: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Proxy {
    /// A forward proxy.
    pub fn forward(fault: Fault) -> Proxy {
        Proxy::start(fault, None)
    }

    /// In front of an origin.
    pub fn reverse(fault: Fault, to: SocketAddr) -> Proxy {
        Proxy::start(fault, Some(to))
    }

    fn start(fault: Fault, to: Option<SocketAddr>) -> Proxy {
        let listener = quiet_listener();
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

    /// Closes its listener and every client connection immediately. Its stored responses stay.
    pub fn die(&mut self) {
        self.shared.is_dead.store(true, Ordering::Release);
        self.stop_listening();
        for (_, stream) in self.shared.open.lock().unwrap().drain() {
            // Fails where the client has gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again where it did before it died.
    pub fn come_back(&mut self) {
        self.shared.is_dead.store(false, Ordering::Release);
        self.listening = Some(self.shared.listen(TcpListener::bind(self.address).unwrap()));
    }

    fn stop_listening(&mut self) {
        if let Some(listening) = self.listening.take() {
            // Wakes it.
            let _ = TcpStream::connect(self.address);
            listening.join().unwrap();
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it counted.
    pub fn counted(&self) -> Counted {
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        Counted { requests: of(&self.shared.requests), hits: of(&self.shared.hits), fetched: of(&self.shared.fetched) }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.stop_listening();
    }
}

/// A port outside of the kernel's ephemeral range: an ephemeral port could, without a listener, connect a client to
/// itself. Ports are unique in this process, so that a restarted proxy gets its own again.
pub fn quiet_listener() -> TcpListener {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Processes with neighbouring numbers begin far from one another.
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
                    // An error is the client's leaving, or the origin's.
                    let _ = shared.connection(stream);
                    // The copy would hold it open.
                    shared.open.lock().unwrap().remove(&number);
                });
            }
        })
    }

    fn connection(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        while let Some(asked) = Asked::read(&mut reader)? {
            let number = self.requests.fetch_add(1, Ordering::AcqRel);
            let closes = asked.version == "HTTP/1.0" || asked.has("connection", "close");
            let answer = self.answer(&asked, number).unwrap_or_else(|_| Arc::new(Answer::plain(502)));
            let answer = self.broken(&asked, answer, number);
            answer.write(&mut writer, asked.method == "HEAD", closes)?;
            if closes {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, asked: &Asked, number: u64) -> Result<Arc<Answer>> {
        if let Fault::Fails(of_ten) = self.fault
            && number % 10 < of_ten
        {
            return Ok(Arc::new(Answer::plain(502)));
        }
        if self.fault == Fault::RedirectsToItself {
            let back = ("Location".to_owned(), asked.target.clone());
            return Ok(Arc::new(Answer { status: 302, fields: vec![back], body: Vec::new() }));
        }
        let is_read = asked.method == "GET" || asked.method == "HEAD";
        // One that loops would wait for itself to fetch.
        if !is_read || self.fault == Fault::Loops {
            return self.fetch(asked).map(Arc::new);
        }
        let reload = asked.has("cache-control", "no-cache") || asked.has("pragma", "no-cache");
        let gzip = asked.has("accept-encoding", "gzip");
        let copy = if reload && self.fault != Fault::IgnoresReload {
            None
        } else {
            self.copy_or_claim(&asked.target, gzip, asked.method == "GET" && asked.value("if-modified-since").is_none())
        };
        if let Some(copy) = copy {
            self.hits.fetch_add(1, Ordering::AcqRel);
            let since = asked.value("if-modified-since");
            let unchanged = since.is_some_and(|since| copy.not_changed_since(since));
            return Ok(if unchanged || (since.is_some() && self.fault == Fault::AlwaysNotModified) {
                Arc::new(copy.not_modified())
            } else {
                copy
            });
        }
        let fetched = self.fetch(asked).map(Arc::new);
        self.keep(asked, gzip, fetched.as_ref().ok());
        fetched
    }

    /// A copy that may be used. Where there is none and this request will bring one (`fills`), others wait for it.
    fn copy_or_claim(&self, url: &str, gzip: bool, fills: bool) -> Option<Arc<Answer>> {
        let mut store = self.store.lock().unwrap();
        loop {
            // Before the first response it is unknown whether the URL varies: then each coding has its own entry.
            let varies = store.varies.get(url).copied();
            let key = (url.to_owned(), gzip && varies.unwrap_or(true) && self.fault != Fault::IgnoresVary);
            match store.copies.get(&key) {
                Some(Slot::Kept(copy)) if self.fault == Fault::NeverExpires || copy.is_fresh() => {
                    return Some(Arc::clone(copy));
                }
                Some(Slot::Coming) => store = self.filled.wait(store).unwrap(),
                Some(Slot::Kept(_)) | None => {
                    if fills && !store.uncacheable.contains(url) {
                        store.copies.insert(key, Slot::Coming);
                    }
                    return None;
                }
            }
        }
    }

    /// Stores the response if it is cacheable, and releases the waiting requests.
    fn keep(&self, asked: &Asked, gzip: bool, answer: Option<&Arc<Answer>>) {
        let mut store = self.store.lock().unwrap();
        let url = &asked.target;
        let known = store.varies.get(url).copied();
        let claimed = (url.clone(), gzip && known.unwrap_or(true) && self.fault != Fault::IgnoresVary);
        if matches!(store.copies.get(&claimed), Some(Slot::Coming)) && asked.method == "GET" {
            store.copies.remove(&claimed);
        }
        if let Some(answer) = answer.filter(|answer| answer.status == 200 && asked.method == "GET") {
            let varies = answer.field("vary").is_some();
            if self.fault == Fault::Forgets {
                // As if it had never come.
            } else if answer.may_be_kept() || self.fault == Fault::KeepsUncacheable {
                store.varies.insert(url.clone(), varies);
                let key = (url.clone(), gzip && varies && self.fault != Fault::IgnoresVary);
                store.copies.insert(key, Slot::Kept(Arc::clone(answer)));
                if store.any.len() < 100 {
                    store.any.push((url.clone(), Arc::clone(answer)));
                }
            } else {
                store.uncacheable.insert(url.clone());
            }
        }
        drop(store);
        self.filled.notify_all();
    }

    fn fetch(&self, asked: &Asked) -> Result<Answer> {
        self.fetched.fetch_add(1, Ordering::AcqRel);
        let refuse = |why: &str| Error::new(ErrorKind::InvalidData, why.to_owned());
        let (to, path) = match (self.to, asked.target.strip_prefix("http://")) {
            (Some(to), None) => (to, asked.target.as_str()),
            (_, Some(rest)) => {
                let slash = rest.find('/').ok_or_else(|| refuse("no path"))?;
                (rest[..slash].parse().map_err(|_| refuse("no address"))?, &rest[slash..])
            }
            (None, None) => return Err(refuse("not a URL")),
        };
        let to = if self.fault == Fault::Loops { self.once_more(asked)? } else { to };
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        // A request loop is recognised by the requested URL.
        let target = if self.fault == Fault::Loops { asked.target.as_str() } else { path };
        let mut head = format!("{} {target} HTTP/1.1\r\n", asked.method);
        for (name, value) in &asked.fields {
            let is_dropped = match name.to_ascii_lowercase().as_str() {
                "connection" | "proxy-connection" | "keep-alive" => true,
                "x-yamabiko-request-id" => self.fault == Fault::DropsAsk,
                _ => false,
            };
            if !is_dropped {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str("Connection: close\r\nVia: 1.1 test\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&asked.body)?;
        Answer::read(&mut BufReader::new(stream), asked.method == "HEAD")
    }

    /// Itself, unless the request has gone round too often: then it is not heard of again.
    fn once_more(&self, asked: &Asked) -> Result<SocketAddr> {
        let turns = asked.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("via")).count();
        if turns < HOPS_MAX {
            return Ok(self.address);
        }
        while !self.ended.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// The response as sent, with the fault applied.
    fn broken(&self, asked: &Asked, answer: Arc<Answer>, number: u64) -> Arc<Answer> {
        if number % 10 != 9 || answer.status != 200 || answer.body.len() < 2 {
            return answer;
        }
        let half = answer.body.len() / 2;
        let of_another_url = || {
            let store = self.store.lock().unwrap();
            store.any.iter().find(|(url, _)| *url != asked.target).map(|(_, other)| Arc::clone(other))
        };
        match self.fault {
            Fault::WrongObject => of_another_url().unwrap_or(answer),
            Fault::MixesHeads if answer.may_be_kept() => match of_another_url() {
                Some(other) => Arc::new(answer.made_as(&other)),
                None => answer,
            },
            Fault::Lengthens => Arc::new(answer.with_body([&answer.body[..], b"more"].concat())),
            Fault::AnswersItself => {
                Arc::new(Answer { status: 200, fields: Vec::new(), body: b"Please log in.".to_vec() })
            }
            Fault::Truncates => Arc::new(answer.with_body(answer.body[..half].to_vec())),
            Fault::Flips => {
                let mut body = answer.body.clone();
                body[half] ^= 1;
                Arc::new(answer.with_body(body))
            }
            _ => answer,
        }
    }
}

impl Asked {
    /// The next request; `None` where the client is done.
    fn read(reader: &mut impl BufRead) -> Result<Option<Asked>> {
        let Some((line, fields)) = head(reader)? else { return Ok(None) };
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let mut asked = Asked { method: word(), target: word(), version: word(), fields, body: Vec::new() };
        if let Some(length) = asked.value("content-length").and_then(|length| length.parse::<usize>().ok()) {
            asked.body = vec![0; length];
            reader.read_exact(&mut asked.body)?;
        }
        Ok(Some(asked))
    }

    fn value(&self, name: &str) -> Option<&str> {
        value(&self.fields, name)
    }

    fn has(&self, name: &str, word: &str) -> bool {
        self.value(name).is_some_and(|value| value.to_ascii_lowercase().contains(word))
    }
}

impl Answer {
    /// Without a body.
    fn plain(status: u16) -> Answer {
        Answer { status, fields: Vec::new(), body: Vec::new() }
    }

    fn read(reader: &mut impl BufRead, of_head: bool) -> Result<Answer> {
        let cut = || Error::from(ErrorKind::UnexpectedEof);
        let (line, fields) = head(reader)?.ok_or_else(cut)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
        let mut answer = Answer { status, fields, body: Vec::new() };
        if of_head || status == 304 {
            return Ok(answer);
        }
        match answer.field("content-length").and_then(|length| length.parse::<u64>().ok()) {
            Some(length) => {
                reader.take(length).read_to_end(&mut answer.body)?;
                // Truncated by the origin: must not be forwarded as complete.
                if answer.body.len() as u64 != length {
                    return Err(cut());
                }
            }
            None => drop(reader.read_to_end(&mut answer.body)?),
        }
        Ok(answer)
    }

    fn field(&self, name: &str) -> Option<&str> {
        value(&self.fields, name)
    }

    fn may_be_kept(&self) -> bool {
        let control = self.field("cache-control").unwrap_or_default().to_ascii_lowercase();
        !control.contains("no-store") && !control.contains("private")
    }

    /// By max-age from Date, else by Expires; without either it is stored permanently, since the origin does not
    /// object.
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

    fn not_modified(&self) -> Answer {
        Answer { status: 304, fields: self.fields.clone(), body: Vec::new() }
    }

    fn with_body(&self, body: Vec<u8>) -> Answer {
        Answer { status: self.status, fields: self.fields.clone(), body }
    }

    /// With the name of the request that the other was made for: two parts of the identity, as the origin writes it.
    fn made_as(&self, other: &Answer) -> Answer {
        const STAMP: &str = "x-yamabiko";
        let parts = |answer: &Answer| -> Vec<String> {
            answer.field(STAMP).unwrap_or_default().split('.').map(str::to_owned).collect()
        };
        let (mut own, others) = (parts(self), parts(other));
        if own.len() == 7 && others.len() == 7 {
            own[4..6].clone_from_slice(&others[4..6]);
        }
        let fields = self.fields.iter().map(|(name, value)| {
            let value = if name.eq_ignore_ascii_case(STAMP) { own.join(".") } else { value.clone() };
            (name.clone(), value)
        });
        Answer { status: self.status, fields: fields.collect(), body: self.body.clone() }
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

/// A first line and fields.
#[allow(clippy::type_complexity, reason = "read here and taken apart at once")]
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
