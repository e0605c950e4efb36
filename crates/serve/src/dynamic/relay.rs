//! The relay: one thread for all exchanges with dynamic programs.
//!
//! ```text
//!   commands ──▶ by (worker, ticket) ──▶ a task for each exchange: cache, queue, upstream ──▶ Client ──▶ events
//!                    Body, Taken, Cancel ──▶ its channel, its window, its end
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::Clock;
use sys::sched::Urgency;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::interval;

use super::admission::LoadState;
use super::cached::{self, Cached};
use super::client::{Client, Piece, RequestBody};
use super::handles::{RelayCommand, RelayHandle, SharedRouting, UnstartedRequest, WorkerHandle};
use super::program::Program;
use super::spec::{DynamicSpec, Route, Transport, Upstream};
use super::upstream::{Changes, RouteState, Scripts, UpstreamResponse, UpstreamState, scripts_directory, send};
use super::usage::{Counts, DynamicUsage, ProgramState};
use super::{ANSWER_WINDOW, RelayRequest, Ticket};
use crate::cache::{Cache, Finding};
use crate::request::Body;
use crate::spec::{ServeError, system};

/// The running relay. Dropping it ends all exchanges, the program and the thread.
#[derive(Debug)]
pub(crate) struct Relay {
    orders: UnboundedSender<RelayCommand>,
    thread: Option<JoinHandle<()>>,
    usage_reader: UsageReader,
    cache: Option<Arc<Cache>>,
    /// Dropped after the thread, which communicates with it.
    program: Option<Program>,
}

/// Reads the counters of the dynamic part from any thread.
#[derive(Clone, Debug)]
pub(crate) struct UsageReader(Arc<Shared>);

/// State shared by relay and readers.
#[derive(Debug)]
struct Shared {
    /// Each route as configured, with its counters.
    routes: Vec<(String, Arc<Counts>)>,
    program: Option<Arc<ProgramState>>,
}

impl UsageReader {
    /// The counters so far.
    pub(crate) fn read(&self) -> DynamicUsage {
        DynamicUsage {
            routes: self.0.routes.iter().map(|(route, counts)| counts.read(route.clone())).collect(),
            program: self.0.program.as_ref().map(|program| program.read()),
        }
    }
}

impl Relay {
    /// Starts the program, if there is one, and the relay for `workers` workers. `served` is the directory of static
    /// files. `runs_here` is called on the new thread. With a program, call it while the process has one thread.
    ///
    /// # Errors
    /// The program cannot be started, a directory of scripts cannot be opened, or no thread or descriptor is available.
    pub(crate) fn start(
        spec: &DynamicSpec,
        served: &Path,
        workers: usize,
        clock: Clock,
        runs_here: impl FnOnce() + Send + 'static,
    ) -> Result<(Relay, Vec<RelayHandle>), ServeError> {
        let mut program = match (&spec.program, spec.routes.first()) {
            (Some(program), Some(route)) => Some(Program::start(program, route.upstream.transport())?),
            _ => None,
        };
        let counts: Vec<Arc<Counts>> = spec.routes.iter().map(|_| Arc::default()).collect();
        let routes = spec.routes.iter().map(ToString::to_string).zip(counts.iter().cloned()).collect();
        let shared = Arc::new(Shared { routes, program: program.as_ref().map(Program::state) });
        let mut scripts = Vec::with_capacity(spec.routes.len());
        for route in &spec.routes {
            let opened = scripts_directory(&route.upstream, served)
                .map(|root| Scripts::open(root).map_err(|source| ServeError::Root { root: root.to_owned(), source }));
            scripts.push(opened.transpose()?);
        }
        let load_states = load_states_of(&spec.routes);
        let routing = Arc::new(SharedRouting::new(
            &spec.routes,
            counts.iter().cloned().zip(load_states.iter().cloned()).collect(),
        ));
        let (orders, received) = unbounded_channel();
        let (mut fronts, mut handles) = (Vec::with_capacity(workers), Vec::with_capacity(workers));
        for worker in 0..workers {
            let (front, back) =
                RelayHandle::pair(worker, Arc::clone(&routing), orders.clone()).map_err(system("eventfd"))?;
            fronts.push(front);
            handles.push(back);
        }
        let cache = spec.cache.as_ref().map(|cache| Arc::new(Cache::new(cache, clock)));
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().build().map_err(system("start the relay"))?;
        let (link, state) = match &mut program {
            Some(program) => (program.link(), Some(program.state())),
            None => (None, None),
        };
        let (spec, shared_cache) = (spec.clone(), cache.clone());
        let work = move || {
            runs_here();
            // Lower priority than the workers, but not the lowest: a busy static server leaves it a tenth of the core.
            Urgency::Low.apply_to_this_thread();
            let local = LocalSet::new();
            let routes = routes_of(&spec, counts, scripts, &load_states, state.as_ref());
            local.block_on(&runtime, async {
                if let (Some(link), Some(state), Some(route)) = (link, state, routes.first()) {
                    spawn_local(super::program::follow(link, state, route.spec.upstream.transport().clone()));
                }
                spawn_local(sweep(routes.clone()));
                let cached = shared_cache.map(Cached::new);
                RelayState { routing, routes, workers: handles, cached, under_way: Rc::default(), serial: 0 }
                    .work(received)
                    .await;
            });
            // Drop the tasks before their runtime; a pending name lookup is not waited for.
            drop(local);
            Runtime::shutdown_background(runtime);
        };
        let thread = std::thread::Builder::new().name("yamabiko-relay".to_owned()).spawn(work);
        let thread = Some(thread.map_err(system("start the relay's thread"))?);
        Ok((Relay { orders, thread, usage_reader: UsageReader(shared), cache, program }, fronts))
    }

    /// The result cache, for the workers' fast path.
    pub(crate) fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.clone()
    }

    /// Access to the counters.
    pub(crate) fn usage_reader(&self) -> UsageReader {
        self.usage_reader.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.orders.send(RelayCommand::Stop);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
        drop(self.program.take());
    }
}

/// The load state of each route's upstream.
fn load_states_of(routes: &[Route]) -> Vec<Arc<LoadState>> {
    let mut load_states: Vec<Arc<LoadState>> = Vec::with_capacity(routes.len());
    for (at, route) in routes.iter().enumerate() {
        let same = routes[..at].iter().position(|earlier| upstream_of(earlier) == upstream_of(route));
        load_states.push(same.map_or_else(Arc::default, |same| Arc::clone(&load_states[same])));
    }
    load_states
}

/// The key by which routes share slots and connections.
fn upstream_of(route: &Route) -> (&Transport, bool) {
    (route.upstream.transport(), matches!(route.upstream, Upstream::Http { .. }))
}

/// The routes of the relay's thread: routes to one upstream share its slots and connections.
fn routes_of(
    spec: &DynamicSpec,
    counts: Vec<Arc<Counts>>,
    scripts: Vec<Option<Scripts>>,
    load_states: &[Arc<LoadState>],
    program: Option<&Arc<ProgramState>>,
) -> Vec<Rc<RouteState>> {
    let mut gates: Vec<((&Transport, bool), Rc<UpstreamState>)> = Vec::new();
    let mut routes = Vec::with_capacity(spec.routes.len());
    for (((route, counts), scripts), load_state) in spec.routes.iter().zip(counts).zip(scripts).zip(load_states) {
        let key = upstream_of(route);
        let upstream_state = match gates.iter().find(|(known, _)| *known == key) {
            Some((_, upstream_state)) => Rc::clone(upstream_state),
            None => {
                gates.push((key, Rc::new(UpstreamState::new(&spec.limits, Arc::clone(load_state)))));
                Rc::clone(&gates[gates.len() - 1].1)
            }
        };
        // Only the first route's upstream is the program that this server runs.
        let own = spec.routes.first().is_some_and(|first| first.upstream.transport() == route.upstream.transport());
        let program = program.filter(|_| own).cloned();
        let limits = spec.limits.clone();
        routes.push(Rc::new(RouteState::new(route.clone(), limits, counts, upstream_state, program, scripts)));
    }
    routes
}

/// Closes connections that were idle for a while.
async fn sweep(routes: Vec<Rc<RouteState>>) {
    let mut every = interval(SWEEP_INTERVAL);
    loop {
        every.tick().await;
        for route in &routes {
            route.upstream_state.http.sweep();
            route.upstream_state.fastcgi.sweep();
        }
    }
}

/// State of the relay's thread.
struct RelayState {
    routing: Arc<SharedRouting>,
    routes: Vec<Rc<RouteState>>,
    workers: Vec<WorkerHandle>,
    cached: Option<Rc<Cached>>,
    under_way: Rc<RefCell<HashMap<(usize, Ticket), ExchangeInFlight>>>,
    serial: u64,
}

/// An exchange in flight.
struct ExchangeInFlight {
    /// Distinguishes this exchange from an earlier one with the same ticket.
    serial: u64,
    body: Option<UnboundedSender<Piece>>,
    window: Arc<Semaphore>,
    task: AbortHandle,
}

impl RelayState {
    async fn work(mut self, mut orders: UnboundedReceiver<RelayCommand>) {
        while let Some(order) = orders.recv().await {
            match order {
                RelayCommand::RelayRequest(worker, request) => self.begin(worker, request),
                RelayCommand::Body(worker, ticket, bytes) => self.pass(worker, ticket, Piece::Bytes(bytes)),
                RelayCommand::BodyEnded(worker, ticket) => self.pass(worker, ticket, Piece::End),
                RelayCommand::Taken(worker, ticket, bytes) => {
                    if let Some(exchange) = self.under_way.borrow().get(&(worker, ticket)) {
                        exchange.window.add_permits(bytes);
                    }
                }
                RelayCommand::Cancel(worker, ticket) => {
                    let cancelled = self.under_way.borrow_mut().remove(&(worker, ticket));
                    if let Some(exchange) = cancelled {
                        exchange.window.close();
                        exchange.task.abort();
                    }
                }
                RelayCommand::Stop => break,
            }
        }
    }

    fn begin(&mut self, worker: usize, request: RelayRequest) {
        let unread = UnstartedRequest::of(&self.routing);
        self.serial += 1;
        let (key, serial) = ((worker, request.ticket), self.serial);
        let back = self.workers[worker].clone();
        let window = Arc::new(Semaphore::new(ANSWER_WINDOW));
        let head_only = request.head.starts_with(b"HEAD ");
        let client = Client::new(request.ticket, back.clone(), Arc::clone(&window), head_only);
        let (sender, body) = match request.body {
            Body::None => (None, None),
            Body::Bytes(length) => {
                let (sender, pieces) = unbounded_channel();
                (Some(sender), Some(RequestBody::new(request.ticket, back, pieces, Some(length))))
            }
            Body::Chunked => {
                let (sender, pieces) = unbounded_channel();
                (Some(sender), Some(RequestBody::new(request.ticket, back, pieces, None)))
            }
        };
        let route = Rc::clone(&self.routes[request.route]);
        let under_way = Rc::clone(&self.under_way);
        let cached = self.cached.clone();
        let task = spawn_local(async move {
            drop(unread);
            match cached {
                Some(cached) => cached::exchange(&cached, &route, request, body, client).await,
                None => plain(&route, request, body, client).await,
            }
            let mut under_way = under_way.borrow_mut();
            if under_way.get(&key).is_some_and(|exchange| exchange.serial == serial) {
                under_way.remove(&key);
            }
        });
        let exchange = ExchangeInFlight { serial, body: sender, window, task: task.abort_handle() };
        self.under_way.borrow_mut().insert(key, exchange);
    }

    fn pass(&self, worker: usize, ticket: Ticket, piece: Piece) {
        if let Some(exchange) = self.under_way.borrow_mut().get_mut(&(worker, ticket)) {
            let ended = matches!(piece, Piece::End);
            if let Some(body) = &exchange.body {
                // An upstream that has responded already does not read the rest of the body.
                let _ = body.send(piece);
            }
            if ended {
                exchange.body = None;
            }
        }
    }
}

/// An exchange without a cache.
async fn plain(route: &Rc<RouteState>, request: RelayRequest, body: Option<RequestBody>, client: Client) {
    let changes = Changes { hints: Some(client.hints()), ..Changes::default() };
    let answer = match send(route, &request, &changes, body).await {
        Ok(answer) => answer,
        Err(failure) => failure.answer(),
    };
    forward(answer, client, Finding::NONE).await;
}

/// Forwards a response to a client as it arrives.
pub(super) async fn forward(answer: UpstreamResponse, mut client: Client, finding: Finding) {
    let UpstreamResponse { status, fields, length, mut body } = answer;
    if client.head(status, fields, length, finding).await.is_err() {
        return;
    }
    loop {
        match body.next().await {
            Ok(Some(bytes)) => {
                if client.body(bytes).await.is_err() {
                    return;
                }
            }
            Ok(None) => return client.end(),
            Err(_) => return client.broken(),
        }
    }
}

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
