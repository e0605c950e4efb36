//! The stream of requests.
//!
//! ```text
//!   kind by its share --> POST? a new object
//!                         repeat? one of the window, by popularity       window: [first .. next) of each kind
//!                         else the kind's next number                    replaces the oldest of a frozen or full set
//!     --> form, planned abort --> offered? a repeat of which an earlier request could have left a copy
//!     --> after a page its embedded objects, repeats if the page is one
//! ```
//!
//! Random numbers of a request depend on its number only, so that a setting that changes one request does not shift the
//! next. The stream stores a few bytes per object: whether a cache could have a copy.

use std::sync::Arc;
use std::time::Duration;

use rand_distr::{Distribution as _, Zipf};
use schema::Method;
use stats::Rng;

use crate::world::EMBEDDED_MAX;
use crate::{Object, Popularity, Variant, World};

/// Form of a GET.
pub use schema::CacheForm as Form;

/// A drawn request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawnRequest {
    /// Number of the draw, from 0; an embedded request has that of its page.
    pub number: u64,
    /// Requested object.
    pub object: Object,
    /// Form; basic unless it is a GET.
    pub form: Form,
    /// GET, HEAD or POST.
    pub method: Method,
    /// The client accepts gzip.
    pub gzip: bool,
    /// Inside TLS.
    pub secure: bool,
    /// Whether the object was requested before.
    pub repeat: bool,
    /// Whether an unlimited cache could have a copy: a basic repeat of a cacheable object outside TLS, of whose variant
    /// an earlier request could fill a cache (a GET outside TLS, not answered with 304, not aborted).
    pub offered: bool,
    /// Body bytes after which the client aborts, below the body's size.
    pub abort_after: Option<u32>,
    /// Size of a POST's body in bytes.
    pub post_bytes: u32,
}

/// Draws requests. The same workload, seed and times give the same requests.
#[derive(Clone, Debug)]
pub struct Stream {
    world: Arc<World>,
    seed: u64,
    number: u64,
    posts: u64,
    kinds: Vec<Kind>,
    /// For each directly requested kind the cumulative share.
    choice: Vec<(f64, u8)>,
    /// Objects of all windows, including the mean number of embedded ones.
    window: f64,
    /// Embedded requests of the last draw.
    embedded: Vec<DrawnRequest>,
}

/// Objects of one kind requested so far.
#[derive(Clone, Debug, Default)]
struct Kind {
    /// Oldest object available for repeats.
    first: u64,
    /// Number of the next new object.
    next: u64,
    /// For each object the variants that a cache could have, [`PLAIN_CACHED`] and [`GZIP_CACHED`], and whether the page
    /// was read ([`PAGE_READ`]).
    marks: Vec<u8>,
    /// For pages the same of embedded objects: a bit per object, by variant.
    embedded: Vec<[u64; 2]>,
    /// Weight of an object in the window: 1 plus the mean number of embedded objects.
    weight: f64,
    hot: HotSetPosition,
}

/// Position of the hot set.
#[derive(Clone, Copy, Debug, Default)]
struct HotSetPosition {
    /// First object.
    at: u64,
    /// Objects requested so far when it was placed; 0 initially.
    placed_at: u64,
}

/// A cache could have the plain variant.
const PLAIN_CACHED: u8 = 1;
/// A cache could have the gzip variant.
const GZIP_CACHED: u8 = 2;
/// The page was read and its embedded objects requested.
const PAGE_READ: u8 = 4;

/// First number of posted objects, which are never repeated.
const FIRST_POSTED_OBJECT: u64 = 1 << 56;

/// Distance of neighbours considered by `prefer_small`, as in PolyMix-4.
const NEIGHBOUR_DISTANCE: u64 = 4;

/// Fields of the workload at one time.
#[derive(Clone, Copy)]
struct FieldsNow {
    recurrence: f64,
    special: f64,
    grows: bool,
}

impl Stream {
    /// A stream from its start.
    pub fn new(world: &World) -> Stream {
        let kinds = &world.spec.kinds;
        let shares: f64 = kinds.iter().map(|kind| kind.share).sum();
        let mut sum = 0.0;
        let mut choice = Vec::new();
        for (index, kind) in (0..).zip(kinds) {
            if kind.share > 0.0 {
                sum += kind.share / shares;
                choice.push((sum, index));
            }
        }
        let weight = |kind: &crate::KindSpec| 1.0 + kind.embeds.as_ref().map_or(0.0, |embeds| embeds.count.mean());
        let kinds = kinds.iter().map(|kind| Kind { weight: weight(kind), ..Kind::default() }).collect();
        Stream {
            world: Arc::new(world.clone()),
            seed: Rng::named(world.seed, "asks").next(),
            number: 0,
            posts: 0,
            kinds,
            choice,
            window: 0.0,
            embedded: Vec::new(),
        }
    }

    /// Draws the next request. `since_start` is its scheduled time since the start of the load and must not decrease.
    #[allow(clippy::should_implement_trait, reason = "it needs the time and never ends")]
    pub fn next(&mut self, since_start: Duration) -> DrawnRequest {
        let now = self.at(since_start);
        let number = self.number;
        self.number += 1;
        self.embedded.clear();
        let world = Arc::clone(&self.world);
        let spec = &world.spec;
        let mut rng = Rng::new(self.seed, number);
        let at = rng.uniform();
        let chosen = self.choice.iter().find(|(share, _)| at < *share).or(self.choice.last());
        let kind = chosen.expect("a workload has a requested kind").1;
        let secure = rng.uniform() < spec.https;
        let gzip = rng.uniform() < spec.gzip_clients;
        let method = rng.uniform();
        let mut request = DrawnRequest {
            number,
            object: Object { kind, number: 0 },
            form: Form::Basic,
            method: Method::Get,
            gzip,
            secure,
            repeat: false,
            offered: false,
            abort_after: None,
            post_bytes: 0,
        };
        let (post, head) = (spec.methods.post * now.special, spec.methods.head * now.special);
        if method < post {
            request.method = Method::Post;
            request.object.number = FIRST_POSTED_OBJECT + self.posts;
            self.posts += 1;
            request.post_bytes = spec.post_body.draw(&mut rng).round() as u32;
            self.draw_abort(&mut request, &mut rng);
            return request;
        }
        if method < post + head {
            request.method = Method::Head;
        }
        let index = usize::from(kind);
        let objects = &self.kinds[index];
        request.repeat = objects.next > objects.first && rng.uniform() < now.recurrence;
        request.object.number = if request.repeat {
            self.draw_repeated_object(kind, &mut rng)
        } else {
            self.draw_new_object(index, now.grows)
        };
        self.draw_form_and_abort(&mut request, &mut rng, now.special);
        let index_in_kind = request.object.number as usize;
        let marks = self.kinds[index].marks[index_in_kind];
        let bit = match world.variant(request.object, gzip) {
            Variant::Plain => PLAIN_CACHED,
            Variant::Gzip => GZIP_CACHED,
        };
        let cacheable = world.cacheable(request.object);
        request.offered = could_be_offered(&request, cacheable) && marks & bit != 0;
        if could_fill(&request, cacheable) {
            self.kinds[index].marks[index_in_kind] |= bit;
        }
        if has_complete_body(&request) && spec.kinds[index].embeds.is_some() {
            self.draw_embedded(&request, now, marks & PAGE_READ != 0);
            self.kinds[index].marks[index_in_kind] |= PAGE_READ;
        }
        request
    }

    /// Requests for the objects embedded in the page of the last draw; empty unless that was a GET with a complete
    /// body.
    pub fn embedded(&mut self, _request: &DrawnRequest) -> Vec<DrawnRequest> {
        std::mem::take(&mut self.embedded)
    }

    /// Number of draws, without embedded requests.
    pub fn drawn(&self) -> u64 {
        self.number
    }

    fn draw_embedded(&mut self, page: &DrawnRequest, now: FieldsNow, was_read: bool) {
        let world = Arc::clone(&self.world);
        let index_in_kind = page.object.number as usize;
        for (index, object) in world.embedded(page.object).enumerate() {
            let nth = page.number.wrapping_mul(EMBEDDED_MAX).wrapping_add(index as u64);
            let mut rng = Rng::new(!self.seed, nth);
            let mut request = DrawnRequest { object, form: Form::Basic, repeat: was_read, abort_after: None, ..*page };
            self.draw_form_and_abort(&mut request, &mut rng, now.special);
            let filled = &mut self.kinds[usize::from(page.object.kind)].embedded[index_in_kind];
            let variant = usize::from(world.variant(object, request.gzip) == Variant::Gzip);
            let cacheable = world.cacheable(object);
            request.offered = could_be_offered(&request, cacheable) && filled[variant] >> index & 1 != 0;
            if could_fill(&request, cacheable) {
                filled[variant] |= 1 << index;
            }
            self.embedded.push(request);
        }
    }

    /// Draws the form of a GET and its planned abort.
    fn draw_form_and_abort(&self, request: &mut DrawnRequest, rng: &mut Rng, special: f64) {
        let forms = &self.world.spec.forms;
        let form = rng.uniform() / special;
        if request.method == Method::Get {
            request.form = if form < forms.ims200 {
                Form::Ims200
            } else if form < forms.ims200 + forms.ims304 {
                Form::Ims304
            } else if form < forms.ims200 + forms.ims304 + forms.reload {
                Form::Reload
            } else {
                Form::Basic
            };
        }
        self.draw_abort(request, rng);
    }

    fn draw_abort(&self, request: &mut DrawnRequest, rng: &mut Rng) {
        let planned = self.world.spec.client_abort;
        if planned > 0.0 && rng.uniform() < planned && request.method != Method::Head && request.form != Form::Ims304 {
            // A gzip body may end before this: then it is read completely.
            let size = self.world.size(request.object).min(u64::from(u32::MAX));
            request.abort_after = (size > 1).then(|| 1 + rng.below(size - 1) as u32);
        }
    }

    /// The next new object of a kind. If the working set does not grow, it replaces the oldest of the kind.
    fn draw_new_object(&mut self, index: usize, grows: bool) -> u64 {
        let cap = self.world.spec.working_set.map_or(f64::INFINITY, |objects| objects as f64);
        let kind = &mut self.kinds[index];
        let number = kind.next;
        kind.next += 1;
        kind.marks.push(0);
        if self.world.spec.kinds[index].embeds.is_some() {
            kind.embedded.push([0; 2]);
        }
        self.window += kind.weight;
        if (!grows || self.window > cap) && kind.next - kind.first > 1 {
            kind.first += 1;
            self.window -= kind.weight;
        }
        number
    }

    /// An object of the window.
    fn draw_repeated_object(&mut self, kind: u8, rng: &mut Rng) -> u64 {
        let objects = &mut self.kinds[usize::from(kind)];
        let size = objects.next - objects.first;
        match self.world.spec.popularity {
            Popularity::Uniform => objects.first + rng.below(size),
            Popularity::Zipf { alpha, objects: most } => {
                let ranks = Zipf::new(size.min(most.max(1)) as f64, alpha)
                    .expect("a size of at least 1 and a checked exponent");
                objects.first + (ranks.sample(rng) as u64).clamp(1, size) - 1
            }
            Popularity::HotSet { fraction, probability, prefer_small } => {
                let number = if rng.uniform() < probability {
                    let hot = ((size as f64 * fraction).round() as u64).clamp(1, size);
                    objects.hot_set_start(hot, self.seed ^ u64::from(kind)) + rng.below(hot)
                } else {
                    objects.first + rng.below(size)
                };
                let (first, next) = (objects.first, objects.next);
                if rng.uniform() < prefer_small {
                    self.smallest_cacheable_neighbour(kind, number, first..next)
                } else {
                    number
                }
            }
        }
    }

    /// The smallest cacheable neighbour of a cacheable object. An uncacheable object is not replaced, so that the
    /// offered hit ratio does not change.
    fn smallest_cacheable_neighbour(&self, kind: u8, number: u64, window: std::ops::Range<u64>) -> u64 {
        let object = |number| Object { kind, number };
        if !self.world.cacheable(object(number)) {
            return number;
        }
        let near = number.saturating_sub(NEIGHBOUR_DISTANCE).max(window.start)
            ..=(number + NEIGHBOUR_DISTANCE).min(window.end - 1);
        near.filter(|&near| self.world.cacheable(object(near)))
            .min_by_key(|&near| self.world.size_order(object(near)))
            .unwrap_or(number)
    }

    /// Fields at a time: those of a phase, else those of the workload.
    fn at(&self, since_start: Duration) -> FieldsNow {
        let spec = &self.world.spec;
        let own = FieldsNow { recurrence: spec.recurrence, special: 1.0, grows: true };
        let inside = |phase: &&crate::WorkloadPhase| (phase.from..phase.to).contains(&since_start);
        let Some(phase) = spec.phases.iter().find(inside) else { return own };
        let passed = (since_start - phase.from).as_secs_f64() / (phase.to - phase.from).as_secs_f64();
        let between = |(from, to): (f64, f64)| from + (to - from) * passed;
        FieldsNow {
            recurrence: phase.recurrence.map_or(own.recurrence, between),
            special: between(phase.special),
            grows: phase.grows,
        }
    }
}

impl Kind {
    /// First object of the hot set of `size`. It is placed randomly in the window, and anew when it has left the window
    /// or the number of objects has doubled.
    fn hot_set_start(&mut self, size: u64, seed: u64) -> u64 {
        let HotSetPosition { at, placed_at } = self.hot;
        if placed_at == 0 || at < self.first || at + size > self.next || self.next >= 2 * placed_at {
            let at = self.first + Rng::new(seed, self.next).below(self.next - self.first - size + 1);
            self.hot = HotSetPosition { at, placed_at: self.next };
        }
        self.hot.at
    }
}

/// Whether a cache with a copy could serve the request.
fn could_be_offered(request: &DrawnRequest, cacheable: bool) -> bool {
    request.repeat && cacheable && request.form == Form::Basic && request.method == Method::Get && !request.secure
}

/// Whether the response could fill a cache.
fn could_fill(request: &DrawnRequest, cacheable: bool) -> bool {
    cacheable && has_complete_body(request) && !request.secure
}

/// Whether the response has a complete body.
fn has_complete_body(request: &DrawnRequest) -> bool {
    request.method == Method::Get && request.form != Form::Ims304 && request.abort_after.is_none()
}

#[cfg(test)]
mod tests;
