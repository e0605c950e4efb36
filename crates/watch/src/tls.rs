//! TLS on one connection whose secrets are in the key log: decrypts its records, and passes what they contain to the
//! protocol inside.
//!
//! TLS 1.3 with all its AES-GCM and ChaCha20 suites, with early data and key updates (RFC 8446); TLS 1.2 with AEAD
//! suites. A connection is read from its first byte on, or not at all: if the capture lost bytes, or a record cannot be
//! decrypted, it is not read any further, since the number of the next record is unknown.

mod keys12;
mod messages;
mod record;
mod waiting;

use std::sync::Arc;

use schema::Direction;
use wire::tls::handshake::{ClientHello, ServerHello, kind};

use crate::crypto::{Keys, Secret, Suite};
use crate::keylog::Secrets;
use crate::out::Out;
use crate::secrets::Lookup;
use crate::stream::{Feed, Stream};
use crate::tcp::Sink;
use keys12::Keys12;
use messages::{Message, Messages};
use record::{HEADER, Next, Records};
use waiting::Waiting;

/// Both directions of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    records: [Records; 2],
    messages: [Messages; 2],
    phases: [Phase; 2],
    /// Number of the next record of each direction under its present keys.
    sequences: [u64; 2],
    client_random: Option<[u8; 32]>,
    /// Encrypted records of the client before the server's hello, and their times.
    early: Vec<(u64, Vec<u8>)>,
    has_keys: bool,
    /// TLS 1.3: the secrets, for the keys after the handshake.
    secrets: Option<Secrets>,
    /// After the server's hello, while the client has not reported the secrets.
    waiting: Option<Box<Waiting>>,
    /// The protocol inside.
    inner: Box<Stream>,
}

/// Protection of a direction's records.
#[derive(Debug, Default)]
enum Phase {
    /// None yet.
    #[default]
    Plain,
    /// TLS 1.3: early data; the keys of the handshake follow.
    Early(Keys, Secret),
    /// TLS 1.3: the handshake; the secret of the data follows.
    Handshake(Keys, Secret),
    /// TLS 1.3: data.
    Data(Keys, Secret),
    /// TLS 1.2: keys that count from the next ChangeCipherSpec on.
    Ready12(Keys12),
    /// TLS 1.2.
    Data12(Keys12),
}

/// The connection is not read any further.
#[derive(Debug)]
struct Stop;

impl Tls {
    /// A connection seen from its start.
    pub(crate) fn new() -> Tls {
        Tls {
            records: Default::default(),
            messages: Default::default(),
            phases: Default::default(),
            sequences: [0; 2],
            client_random: None,
            early: Vec::new(),
            has_keys: false,
            secrets: None,
            waiting: None,
            inner: Box::new(Stream::Unknown { is_fresh: true }),
        }
    }

    /// Number of HTTP requests inside.
    pub(crate) fn requests(&self) -> u32 {
        self.inner.requests()
    }

    /// Processes the next `length` bytes of a direction, of which only `bytes` were captured. False when the connection
    /// is not read any further.
    pub(crate) fn receive(
        &mut self,
        direction: Direction,
        mut bytes: &[u8],
        mut length: u64,
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> bool {
        loop {
            let records = &mut self.records[direction.index()];
            let outcome = match records.read(&mut bytes, &mut length, out) {
                Next::More => return true,
                Next::Lost => Err(Stop),
                Next::Whole(header, content) => self.record(direction, header, content.to_vec(), server_name, out),
                Next::Stored(header) => {
                    let content = records.take(out);
                    self.record(direction, header, content, server_name, out)
                }
            };
            if outcome.is_err() {
                out.reading.undecrypted_tls += 1;
                if let Some(mut waiting) = self.waiting.take() {
                    waiting.release(out);
                }
                return false;
            }
        }
    }

    /// A direction ended with a FIN.
    pub(crate) fn end(&mut self, direction: Direction, server_name: &mut Option<Box<Arc<[u8]>>>, out: &mut Out<'_>) {
        Feed { stream: &mut self.inner, server_name, direction, out }.end();
    }

    /// The connection closed.
    pub(crate) fn close_session(&mut self, out: &mut Out<'_>) {
        self.inner.close_session(out);
    }

    /// The stream ended: records open requests, releases all memory.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        self.inner.finish(out);
        for direction in Direction::BOTH {
            self.records[direction.index()].lose(out);
            self.messages[direction.index()].release(out);
        }
        let early: usize = self.early.drain(..).map(|(_, record)| record.len()).sum();
        out.release(early);
        if let Some(mut waiting) = self.waiting.take() {
            // A client that gave up the handshake sent no data.
            let gave_up = self.client_random.is_some_and(|random| out.secrets.forget(&random));
            let has_data =
                waiting.take(out).iter().any(|record| record.direction == Direction::Up && record.header[0] == DATA);
            out.reading.undecrypted_tls += u64::from(has_data && !gave_up);
        }
    }

    /// A complete record. It waits if the secrets for it were not reported yet.
    fn record(
        &mut self,
        direction: Direction,
        header: [u8; HEADER],
        content: Vec<u8>,
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        self.resume(server_name, out)?;
        match &mut self.waiting {
            Some(waiting) => waiting.push(direction, header, content, out),
            None => self.read_record(direction, header, content, server_name, out),
        }
    }

    /// Reads the records that waited, at their times, if the secrets are known now.
    fn resume(&mut self, server_name: &mut Option<Box<Arc<[u8]>>>, out: &mut Out<'_>) -> Result<(), Stop> {
        let Some(waiting) = &self.waiting else { return Ok(()) };
        let random = self.client_random.ok_or(Stop)?;
        let secrets = match out.secrets.take(&random) {
            Lookup::Known(secrets) => secrets,
            Lookup::Later => return Ok(()),
            Lookup::Unknown => return Err(Stop),
        };
        let hello = waiting.hello;
        let records = self.waiting.take().map(|mut waiting| waiting.take(out)).unwrap_or_default();
        if hello.version == TLS13 {
            self.begin13(&secrets, hello.cipher_suite)?;
            self.secrets = Some(secrets);
            self.open_early(server_name, out)?;
        } else {
            let [up, down] = keys12::keys(&secrets.master, &random, &hello.random, hello.cipher_suite).ok_or(Stop)?;
            self.phases = [Phase::Ready12(up), Phase::Ready12(down)];
        }
        let now = out.at;
        let mut outcome = Ok(());
        for record in records {
            out.at = record.at;
            outcome = self.read_record(record.direction, record.header, record.content, server_name, out);
            if outcome.is_err() {
                break;
            }
        }
        out.at = now;
        outcome
    }

    /// Reads a record with the keys of its direction.
    fn read_record(
        &mut self,
        direction: Direction,
        header: [u8; HEADER],
        mut content: Vec<u8>,
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        let own = direction.index();
        match (&mut self.phases[own], header[0]) {
            // An alert in clear ends the connection; TLS 1.3 sends ChangeCipherSpec only for middleboxes.
            (Phase::Plain, ALERT | CHANGE_CIPHER_SPEC) => Ok(()),
            (Phase::Plain | Phase::Ready12(_), HANDSHAKE) => self.handshake(direction, &content, server_name, out),
            (Phase::Plain, DATA) if direction == Direction::Up => {
                let held: usize = self.early.iter().map(|(_, record)| record.len()).sum();
                if held + content.len() > out.limits.held_per_direction || !out.hold(content.len()) {
                    return Err(Stop);
                }
                self.early.push((out.at, content));
                Ok(())
            }
            (Phase::Ready12(_), CHANGE_CIPHER_SPEC) => {
                if let Phase::Ready12(keys) = std::mem::take(&mut self.phases[own]) {
                    (self.phases[own], self.sequences[own]) = (Phase::Data12(keys), 0);
                }
                Ok(())
            }
            (Phase::Data12(keys), kind) => {
                let plain = keys.open(self.sequences[own], header, &mut content).ok_or(Stop)?.to_vec();
                self.sequences[own] += 1;
                if kind == DATA {
                    self.pass_on(direction, &plain, server_name, out);
                }
                Ok(())
            }
            (Phase::Early(..) | Phase::Handshake(..) | Phase::Data(..), CHANGE_CIPHER_SPEC) => Ok(()),
            (Phase::Early(..) | Phase::Handshake(..) | Phase::Data(..), DATA) => {
                self.protected(direction, header, content, server_name, out)
            }
            _ => Err(Stop),
        }
    }

    /// A record that TLS 1.3 protects.
    fn protected(
        &mut self,
        direction: Direction,
        header: [u8; HEADER],
        mut content: Vec<u8>,
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        let own = direction.index();
        if let Phase::Early(keys, _) = &self.phases[own] {
            let mut copy = content.clone();
            if keys.open(self.sequences[own], &header, &mut copy).is_none() {
                // The server refused the early data, or the client sent no more.
                self.leave_early(own)?;
            }
        }
        let keys = match &self.phases[own] {
            Phase::Early(keys, _) | Phase::Handshake(keys, _) | Phase::Data(keys, _) => keys,
            _ => return Err(Stop),
        };
        let plain = keys.open(self.sequences[own], &header, &mut content).ok_or(Stop)?;
        self.sequences[own] += 1;
        // The type is the last byte that is not padding.
        let end = plain.iter().rposition(|&byte| byte != 0).ok_or(Stop)?;
        let (kind, plain) = (plain[end], plain[..end].to_vec());
        match kind {
            HANDSHAKE => self.handshake(direction, &plain, server_name, out),
            DATA => {
                self.pass_on(direction, &plain, server_name, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Bytes of handshake messages.
    fn handshake(
        &mut self,
        direction: Direction,
        mut bytes: &[u8],
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        while let Some(message) = self.messages[direction.index()].next(&mut bytes, out) {
            self.message(direction, &message, server_name, out)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        direction: Direction,
        message: &Message,
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        let own = direction.index();
        match (message.kind, direction) {
            (kind::CLIENT_HELLO, Direction::Up) => {
                let hello = ClientHello::parse(&message.body).ok_or(Stop)?;
                if let Some(name) = hello.server_name {
                    *server_name = Some(Box::new(out.words.share(name)));
                }
                // The second hello after a HelloRetryRequest has the same random.
                self.client_random = Some(hello.random);
                Ok(())
            }
            (kind::SERVER_HELLO, Direction::Down) if !self.has_keys => {
                let hello = ServerHello::parse(&message.body).ok_or(Stop)?;
                if hello.is_retry {
                    return Ok(());
                }
                self.has_keys = true;
                self.waiting = Some(Box::new(Waiting::new(&hello)));
                self.resume(server_name, out)
            }
            (END_OF_EARLY_DATA, Direction::Up) if matches!(self.phases[own], Phase::Early(..)) => self.leave_early(own),
            (kind::FINISHED, _) if matches!(self.phases[own], Phase::Handshake(..)) => {
                let Phase::Handshake(_, secret) = &self.phases[own] else { return Err(Stop) };
                let traffic = &self.secrets.as_ref().ok_or(Stop)?.traffic[own];
                let secret = Secret::new(secret.suite, traffic).ok_or(Stop)?;
                (self.phases[own], self.sequences[own]) = (Phase::Data(keys_of(&secret)?, secret), 0);
                Ok(())
            }
            (kind::KEY_UPDATE, _) => {
                let Phase::Data(_, secret) = &self.phases[own] else { return Err(Stop) };
                let secret = secret.next("traffic upd");
                (self.phases[own], self.sequences[own]) = (Phase::Data(keys_of(&secret)?, secret), 0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// TLS 1.3: both directions are protected from here on.
    fn begin13(&mut self, secrets: &Secrets, cipher_suite: u16) -> Result<(), Stop> {
        let suite = Suite::of_tls13(cipher_suite).ok_or(Stop)?;
        for own in [0, 1] {
            let secret = Secret::new(suite, &secrets.handshake[own]).ok_or(Stop)?;
            (self.phases[own], self.sequences[own]) = (Phase::Handshake(keys_of(&secret)?, secret), 0);
        }
        if let Some(early) = Secret::new(suite, &secrets.early) {
            let keys = keys_of(&early)?;
            let Phase::Handshake(_, handshake) = std::mem::take(&mut self.phases[0]) else { return Err(Stop) };
            self.phases[0] = Phase::Early(keys, handshake);
        }
        Ok(())
    }

    /// Reads the client's records from before the server's hello, at their times.
    fn open_early(&mut self, server_name: &mut Option<Box<Arc<[u8]>>>, out: &mut Out<'_>) -> Result<(), Stop> {
        let now = out.at;
        let mut outcome = Ok(());
        for (at, record) in std::mem::take(&mut self.early) {
            out.release(record.len());
            // Without the early secret these records cannot be read; those after the handshake can.
            if matches!(self.phases[0], Phase::Early(..)) && outcome.is_ok() {
                out.at = at;
                let header = [DATA, 3, 3, (record.len() >> 8) as u8, record.len() as u8];
                outcome = self.protected(Direction::Up, header, record, server_name, out);
            }
        }
        out.at = now;
        outcome
    }

    /// The client's next record is protected with the keys of the handshake.
    fn leave_early(&mut self, own: usize) -> Result<(), Stop> {
        let Phase::Early(_, secret) = std::mem::take(&mut self.phases[own]) else { return Err(Stop) };
        (self.phases[own], self.sequences[own]) = (Phase::Handshake(keys_of(&secret)?, secret), 0);
        Ok(())
    }

    fn pass_on(
        &mut self,
        direction: Direction,
        plain: &[u8],
        server_name: &mut Option<Box<Arc<[u8]>>>,
        out: &mut Out<'_>,
    ) {
        if !plain.is_empty() {
            Feed { stream: &mut self.inner, server_name, direction, out }.bytes(plain, plain.len() as u64);
        }
    }
}

fn keys_of(secret: &Secret) -> Result<Keys, Stop> {
    secret.keys("key", "iv").ok_or(Stop)
}

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const END_OF_EARLY_DATA: u8 = 5;
const TLS13: u16 = 0x0304;
