//! The best hit ratio that recorded requests allow: a plain simulation of one cache.
//!
//! ```text
//!   cache_exchanges.parquet ──> in the order of sending ──> ideal(without limit)  ──> ideal
//!                                                      └──> ideal(size, LRU)      ──> ideal_lru
//! ```
//!
//! It is the second opinion on the hit ratio that the generator says it offers, so it shares no code with the generator:
//! it knows nothing of how requests are drawn, only what was asked, in which order, and how long an answer may be kept.
//!
//! The simulated cache is better than any real one in this: a request that finds no copy fills it at once, so that
//! requests for one object that overlap are one miss and hits (a real cache that does not join them misses each); it
//! counts bodies only, where a real one also keeps heads and its own books; and nothing fails.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use schema::{CacheExchange, CacheFigures, CacheForm, Method};
use units::{Bytes, Limit, Timestamp};

/// One request, as the cache meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch<K> {
    /// What is asked for: world, object and variant, in any form that tells two of them apart.
    pub url: K,
    /// Length of the body.
    pub bytes: u64,
    /// Whether the answer may be kept.
    pub cacheable: bool,
    /// Whether a miss brings a whole body past the cache.
    pub fills: bool,
    /// Whether an old copy may answer: not with a reload.
    pub may_hit: bool,
    /// Whether it counts: a plain GET in the measured phase.
    pub counts: bool,
    /// Version that the origin would send.
    pub version: u32,
    /// Whether the origin would renew an unchanged copy whose lifetime is over: the body is not sent again, and the
    /// request is a hit.
    pub renewable: bool,
    /// Until when, in s since 1970, what the origin would send may be kept; `i64::MAX` where it does not say.
    pub expires_unix_s: i64,
    /// When it is asked, in s since 1970.
    pub at_unix_s: i64,
}

/// What a simulated cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdealRatios {
    /// Requests that count.
    pub requests: u64,
    /// Of these, hits.
    pub hits: u64,
    /// Bytes of the requests that count.
    pub bytes: u64,
    /// Of these, bytes of hits.
    pub hit_bytes: u64,
    /// Copies that had to make room.
    pub evicted: u64,
    /// The most that was kept at a time, in bytes.
    pub kept_bytes_max: u64,
}

impl IdealRatios {
    /// Hits over requests, 0 to 1; `None` if nothing counted.
    pub fn documents(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.hits as f64 / self.requests as f64)
    }

    /// Bytes of hits over bytes, 0 to 1; `None` if no byte counted.
    pub fn byte_share(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.hit_bytes as f64 / self.bytes as f64)
    }
}

/// Simulates a cache that keeps at most `size` bytes of bodies and forgets what was used least recently. A body larger
/// than `size` is not kept. `stream` is in the order of sending.
pub fn ideal<K: Hash + Eq + Clone>(stream: impl IntoIterator<Item = Fetch<K>>, size: Limit<Bytes>) -> IdealRatios {
    let mut simulation = Simulation::new(size);
    stream.into_iter().for_each(|fetch| simulation.ask(&fetch));
    simulation.end()
}

/// A simulated cache and what it did so far.
struct Simulation<K> {
    cache: Cache<K>,
    ratios: IdealRatios,
}

impl<K: Hash + Eq + Clone> Simulation<K> {
    fn new(size: Limit<Bytes>) -> Self {
        Simulation { cache: Cache::new(size.value().map_or(u64::MAX, |size| size.0)), ratios: IdealRatios::default() }
    }

    fn ask(&mut self, fetch: &Fetch<K>) {
        let hit = self.cache.ask(fetch);
        if fetch.counts {
            let ratios = &mut self.ratios;
            ratios.requests += 1;
            ratios.bytes += fetch.bytes;
            ratios.hits += u64::from(hit);
            ratios.hit_bytes += if hit { fetch.bytes } else { 0 };
        }
    }

    fn end(self) -> IdealRatios {
        IdealRatios { evicted: self.cache.evicted, kept_bytes_max: self.cache.kept_max, ..self.ratios }
    }
}

/// The ideals of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ideals {
    /// Of a cache without limit.
    pub infinite: IdealRatios,
    /// Of a cache of the size stated.
    pub lru: Option<IdealRatios>,
}

impl Ideals {
    /// Writes the ideals into the figures that the judge left open. They stay open, and it is false, where the simulation did
    /// not see what the judge counted: requests are missing from the table, and of a part there is no ideal.
    pub fn fill(&self, figures: &mut CacheFigures) -> bool {
        let complete = self.infinite.requests == figures.basic_requests;
        if complete {
            let documents = &mut figures.hit_ratio;
            documents.ideal = self.infinite.documents();
            documents.ideal_lru = self.lru.and_then(|lru| lru.documents());
            let bytes = &mut figures.byte_hit_ratio;
            bytes.ideal = self.infinite.byte_share();
            bytes.ideal_lru = self.lru.and_then(|lru| lru.byte_share());
        }
        complete
    }
}

/// Simulates the recorded requests of a run, in any order; the ones intended in `measured` count, all fill. They must be all: a
/// sample has no order to simulate.
pub fn ideals_of(exchanges: &[CacheExchange], measured: Range<Timestamp>, size: Option<Bytes>) -> Ideals {
    let mut places: Vec<_> = exchanges.iter().map(|row| (place(row), row)).collect();
    places.sort_unstable_by_key(|(place, _)| *place);
    let in_order = places.into_iter().map(|(_, row)| Ok::<_, std::convert::Infallible>(*row));
    let Ok(ideals) = ideals_in_order(in_order, measured, size);
    ideals
}

/// The same of requests that come in the order of their [`place`], however many: one at a time is looked at.
///
/// # Errors
/// The first that came instead of a request.
pub fn ideals_in_order<E>(
    exchanges: impl Iterator<Item = Result<CacheExchange, E>>,
    measured: Range<Timestamp>,
    size: Option<Bytes>,
) -> Result<Ideals, E> {
    let mut infinite = Simulation::new(Limit::Unlimited);
    let mut lru = size.map(|size| Simulation::new(Limit::At(size)));
    for row in exchanges {
        let fetch = fetch_of(&row?, &measured);
        infinite.ask(&fetch);
        lru.iter_mut().for_each(|lru| lru.ask(&fetch));
    }
    Ok(Ideals { infinite: infinite.end(), lru: lru.map(Simulation::end) })
}

/// An object's variant as recorded: world, kind, object, whether gzip.
type Url = (u32, u8, u64, bool);

/// Where a request stands in the order of sending. What was never sent takes its place by its intended moment: the stream is
/// what was asked, whatever became of it.
pub fn place(row: &CacheExchange) -> (Timestamp, u64) {
    (row.sent_at.unwrap_or(row.scheduled_at), row.sequence)
}

/// A recorded request, cut to what the simulation asks.
fn fetch_of(row: &CacheExchange, measured: &Range<Timestamp>) -> Fetch<Url> {
    // A proxy sees neither inside a tunnel nor may it keep the answer to a POST.
    let seen = !row.secure && row.method == Method::Get;
    Fetch {
        url: (row.world, row.kind, row.object, row.variant_gzip),
        bytes: row.object_bytes,
        cacheable: row.cacheable && seen,
        fills: row.could_fill(),
        may_hit: seen && row.form != CacheForm::Reload,
        counts: row.is_basic() && measured.contains(&row.scheduled_at),
        version: row.expected_version,
        renewable: row.renewable,
        expires_unix_s: row.expires_unix_s,
        at_unix_s: i64::try_from(row.requested_unix_ms / 1000).unwrap_or(i64::MAX),
    }
}

/// Copies by URL, in a list from the most to the least recently used. The list is links between places of one vector, so
/// that every step takes the same time whatever is kept.
struct Cache<K> {
    size: u64,
    kept: u64,
    kept_max: u64,
    evicted: u64,
    places: HashMap<K, usize>,
    copies: Vec<Kept<K>>,
    free: Vec<usize>,
    /// Most recently used; [`NOWHERE`] if nothing is kept.
    first: usize,
    /// Least recently used.
    last: usize,
}

struct Kept<K> {
    url: K,
    bytes: u64,
    version: u32,
    expires_unix_s: i64,
    newer: usize,
    older: usize,
}

const NOWHERE: usize = usize::MAX;

impl<K: Hash + Eq + Clone> Cache<K> {
    fn new(size: u64) -> Self {
        Cache {
            size,
            kept: 0,
            kept_max: 0,
            evicted: 0,
            places: HashMap::new(),
            copies: Vec::new(),
            free: Vec::new(),
            first: NOWHERE,
            last: NOWHERE,
        }
    }

    /// Whether a copy answers it; keeps what comes past.
    fn ask(&mut self, fetch: &Fetch<K>) -> bool {
        if !fetch.cacheable {
            return false;
        }
        let place = self.places.get(&fetch.url).copied();
        if let Some(place) = place
            && fetch.may_hit
            && self.answers(place, fetch)
        {
            self.unlink(place);
            self.link_first(place);
            return true;
        }
        if fetch.fills {
            if let Some(place) = place {
                self.forget(place);
            }
            self.keep(fetch);
        }
        false
    }

    /// Whether the copy may answer: its lifetime is not over, or the origin renews it.
    fn answers(&mut self, place: usize, fetch: &Fetch<K>) -> bool {
        let copy = &mut self.copies[place];
        if fetch.at_unix_s < copy.expires_unix_s {
            return true;
        }
        let renewed = fetch.renewable && copy.version == fetch.version;
        if renewed {
            copy.expires_unix_s = fetch.expires_unix_s;
        }
        renewed
    }

    fn keep(&mut self, fetch: &Fetch<K>) {
        if fetch.bytes > self.size {
            return;
        }
        while self.kept + fetch.bytes > self.size {
            self.forget(self.last);
            self.evicted += 1;
        }
        let copy = Kept {
            url: fetch.url.clone(),
            bytes: fetch.bytes,
            version: fetch.version,
            expires_unix_s: fetch.expires_unix_s,
            newer: NOWHERE,
            older: NOWHERE,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.copies[place] = copy;
                place
            }
            None => {
                self.copies.push(copy);
                self.copies.len() - 1
            }
        };
        self.places.insert(fetch.url.clone(), place);
        self.link_first(place);
        self.kept += fetch.bytes;
        self.kept_max = self.kept_max.max(self.kept);
    }

    fn forget(&mut self, place: usize) {
        self.unlink(place);
        self.places.remove(&self.copies[place].url);
        self.kept -= self.copies[place].bytes;
        self.free.push(place);
    }

    fn unlink(&mut self, place: usize) {
        let (newer, older) = (self.copies[place].newer, self.copies[place].older);
        match newer {
            NOWHERE => self.first = older,
            newer => self.copies[newer].older = older,
        }
        match older {
            NOWHERE => self.last = newer,
            older => self.copies[older].newer = newer,
        }
    }

    fn link_first(&mut self, place: usize) {
        let before = self.first;
        self.copies[place].newer = NOWHERE;
        self.copies[place].older = before;
        match before {
            NOWHERE => self.last = place,
            before => self.copies[before].newer = place,
        }
        self.first = place;
    }
}

#[cfg(test)]
mod tests;
