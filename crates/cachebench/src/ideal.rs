//! Simulates one cache to find the best hit ratio that the recorded requests of a run allow.
//!
//! ```text
//!   cache_exchanges.parquet ──> in sending order ──>        ideal(without limit)  ──> ideal
//!                                                      └──> ideal(size, LRU)      ──> ideal_lru
//! ```
//!
//! The result is an independent check of the hit ratio that the generator reports as offered. The simulation therefore
//! shares no code with the generator: its only inputs are the requests, their order, and the lifetimes of the
//! responses.
//!
//! The simulated cache is better than any real one in three respects. A miss fills it immediately, so that overlapping
//! requests for one object are one miss and hits (a real cache without request collapsing misses each). It stores
//! bodies only, where a real cache also stores heads and metadata. And no request fails.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use schema::{CacheExchange, CacheFigures, CacheForm, Method};
use units::{Bytes, Limit, Timestamp};

/// One request, as the simulated cache receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch<K> {
    /// Identity of the requested object variant; equal only for the same world, object and variant.
    pub url: K,
    /// Length of the body.
    pub bytes: u64,
    /// Whether a cache may store the response.
    pub cacheable: bool,
    /// Whether a miss transfers a complete body, which the cache can store.
    pub fills: bool,
    /// Whether a stored copy may answer the request; false for a reload.
    pub may_hit: bool,
    /// Whether the request is counted: a basic GET in the measured phase.
    pub counts: bool,
    /// Version of the object at the origin.
    pub version: u32,
    /// Whether an expired, unchanged copy can be validated: the origin responds with 304 instead of the body, and the
    /// request is a hit.
    pub renewable: bool,
    /// Expiry of the origin's response in s since 1970; `i64::MAX` if the origin states none.
    pub expires_unix_s: i64,
    /// Time of the request in s since 1970.
    pub at_unix_s: i64,
}

/// Counts of a simulated cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdealRatios {
    /// Counted requests.
    pub requests: u64,
    /// Hits among the counted requests.
    pub hits: u64,
    /// Body bytes of the counted requests.
    pub bytes: u64,
    /// Body bytes of the hits.
    pub hit_bytes: u64,
    /// Copies evicted for lack of space.
    pub evicted: u64,
    /// Peak of the stored bytes.
    pub stored_bytes_max: u64,
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

/// Simulates an LRU cache that stores at most `size` bytes of bodies. A body larger than `size` is not stored. `stream`
/// is in sending order.
pub fn ideal<K: Hash + Eq + Clone>(stream: impl IntoIterator<Item = Fetch<K>>, size: Limit<Bytes>) -> IdealRatios {
    let mut simulation = Simulation::new(size);
    stream.into_iter().for_each(|fetch| simulation.process(&fetch));
    simulation.end()
}

/// A simulated cache and its counts so far.
struct Simulation<K> {
    cache: Cache<K>,
    ratios: IdealRatios,
}

impl<K: Hash + Eq + Clone> Simulation<K> {
    fn new(size: Limit<Bytes>) -> Self {
        Simulation { cache: Cache::new(size.value().map_or(u64::MAX, |size| size.0)), ratios: IdealRatios::default() }
    }

    fn process(&mut self, fetch: &Fetch<K>) {
        let hit = self.cache.process(fetch);
        if fetch.counts {
            let ratios = &mut self.ratios;
            ratios.requests += 1;
            ratios.bytes += fetch.bytes;
            ratios.hits += u64::from(hit);
            ratios.hit_bytes += if hit { fetch.bytes } else { 0 };
        }
    }

    fn end(self) -> IdealRatios {
        IdealRatios { evicted: self.cache.evicted, stored_bytes_max: self.cache.stored_bytes_max, ..self.ratios }
    }
}

/// Ideal hit ratios of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ideals {
    /// Counts of a cache without size limit.
    pub infinite: IdealRatios,
    /// Counts of an LRU cache of the configured size.
    pub lru: Option<IdealRatios>,
}

impl Ideals {
    /// Sets the ideal ratios in figures of the verifier. Returns false and leaves them absent if the simulation counted
    /// another number of requests than the verifier: the table is then incomplete, and a part has no ideal ratio.
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

/// Simulates the recorded requests of a run, given in any order. All requests fill the cache; those scheduled within
/// `measured` are counted. `exchanges` must be complete, since a sample cannot be simulated.
pub fn ideals_of(exchanges: &[CacheExchange], measured: Range<Timestamp>, size: Option<Bytes>) -> Ideals {
    let mut rows: Vec<_> = exchanges.iter().map(|row| (sending_order(row), row)).collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    let in_order = rows.into_iter().map(|(_, row)| Ok::<_, std::convert::Infallible>(*row));
    let Ok(ideals) = ideals_in_order(in_order, measured, size);
    ideals
}

/// The same as [`ideals_of`] for requests in order of [`sending_order`], read one at a time.
///
/// # Errors
/// The first error of the iterator.
pub fn ideals_in_order<E>(
    exchanges: impl Iterator<Item = Result<CacheExchange, E>>,
    measured: Range<Timestamp>,
    size: Option<Bytes>,
) -> Result<Ideals, E> {
    let mut infinite = Simulation::new(Limit::Unlimited);
    let mut lru = size.map(|size| Simulation::new(Limit::At(size)));
    for row in exchanges {
        let fetch = fetch_of(&row?, &measured);
        infinite.process(&fetch);
        lru.iter_mut().for_each(|lru| lru.process(&fetch));
    }
    Ok(Ideals { infinite: infinite.end(), lru: lru.map(Simulation::end) })
}

/// A recorded object variant: world, kind, object, whether gzip.
type Url = (u32, u8, u64, bool);

/// Sort key of a request: its sending time, then its number. A request that was never sent is ordered by its scheduled
/// time, since the simulated stream consists of the scheduled requests.
pub fn sending_order(row: &CacheExchange) -> (Timestamp, u64) {
    (row.sent_at.unwrap_or(row.scheduled_at), row.sequence)
}

/// The properties of a recorded request that the simulation uses.
fn fetch_of(row: &CacheExchange, measured: &Range<Timestamp>) -> Fetch<Url> {
    // A proxy cannot read requests in a TLS tunnel and must not store responses to POST.
    let visible_to_proxy = !row.secure && row.method == Method::Get;
    Fetch {
        url: (row.world, row.kind, row.object, row.variant_gzip),
        bytes: row.object_bytes,
        cacheable: row.cacheable && visible_to_proxy,
        fills: row.could_fill(),
        may_hit: visible_to_proxy && row.form != CacheForm::Reload,
        counts: row.is_basic() && measured.contains(&row.scheduled_at),
        version: row.expected_version,
        renewable: row.renewable,
        expires_unix_s: row.expires_unix_s,
        at_unix_s: i64::try_from(row.requested_unix_ms / 1000).unwrap_or(i64::MAX),
    }
}

/// LRU cache: copies by URL, in a linked list from the most to the least recently used. The links are indexes into one
/// vector, so that every operation takes constant time.
struct Cache<K> {
    size: u64,
    stored_bytes: u64,
    stored_bytes_max: u64,
    evicted: u64,
    indexes: HashMap<K, usize>,
    copies: Vec<StoredCopy<K>>,
    free: Vec<usize>,
    /// Index of the most recently used copy; [`NONE`] if the cache is empty.
    first: usize,
    /// Index of the least recently used copy.
    last: usize,
}

struct StoredCopy<K> {
    url: K,
    bytes: u64,
    version: u32,
    expires_unix_s: i64,
    newer: usize,
    older: usize,
}

const NONE: usize = usize::MAX;

impl<K: Hash + Eq + Clone> Cache<K> {
    fn new(size: u64) -> Self {
        Cache {
            size,
            stored_bytes: 0,
            stored_bytes_max: 0,
            evicted: 0,
            indexes: HashMap::new(),
            copies: Vec::new(),
            free: Vec::new(),
            first: NONE,
            last: NONE,
        }
    }

    /// Processes a request and returns whether it is a hit; stores the response to a miss.
    fn process(&mut self, fetch: &Fetch<K>) -> bool {
        if !fetch.cacheable {
            return false;
        }
        let index = self.indexes.get(&fetch.url).copied();
        if let Some(index) = index
            && fetch.may_hit
            && self.can_answer(index, fetch)
        {
            self.unlink(index);
            self.push_front(index);
            return true;
        }
        if fetch.fills {
            if let Some(index) = index {
                self.remove(index);
            }
            self.store(fetch);
        }
        false
    }

    /// Whether the copy may answer: it is fresh, or the origin renews it.
    fn can_answer(&mut self, index: usize, fetch: &Fetch<K>) -> bool {
        let copy = &mut self.copies[index];
        if fetch.at_unix_s < copy.expires_unix_s {
            return true;
        }
        let renewed = fetch.renewable && copy.version == fetch.version;
        if renewed {
            copy.expires_unix_s = fetch.expires_unix_s;
        }
        renewed
    }

    fn store(&mut self, fetch: &Fetch<K>) {
        if fetch.bytes > self.size {
            return;
        }
        while self.stored_bytes + fetch.bytes > self.size {
            self.remove(self.last);
            self.evicted += 1;
        }
        let copy = StoredCopy {
            url: fetch.url.clone(),
            bytes: fetch.bytes,
            version: fetch.version,
            expires_unix_s: fetch.expires_unix_s,
            newer: NONE,
            older: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.copies[index] = copy;
                index
            }
            None => {
                self.copies.push(copy);
                self.copies.len() - 1
            }
        };
        self.indexes.insert(fetch.url.clone(), index);
        self.push_front(index);
        self.stored_bytes += fetch.bytes;
        self.stored_bytes_max = self.stored_bytes_max.max(self.stored_bytes);
    }

    fn remove(&mut self, index: usize) {
        self.unlink(index);
        self.indexes.remove(&self.copies[index].url);
        self.stored_bytes -= self.copies[index].bytes;
        self.free.push(index);
    }

    fn unlink(&mut self, index: usize) {
        let (newer, older) = (self.copies[index].newer, self.copies[index].older);
        match newer {
            NONE => self.first = older,
            newer => self.copies[newer].older = older,
        }
        match older {
            NONE => self.last = newer,
            older => self.copies[older].newer = newer,
        }
    }

    fn push_front(&mut self, index: usize) {
        let before = self.first;
        self.copies[index].newer = NONE;
        self.copies[index].older = before;
        match before {
            NONE => self.last = index,
            before => self.copies[before].newer = index,
        }
        self.first = index;
    }
}

#[cfg(test)]
mod tests;
