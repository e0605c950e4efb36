//! The relay: one thread that carries every exchange with a dynamic program.
//!
//! ```text
//!   orders ──▶ by (worker, ticket) ──▶ a task for each exchange: cache, queue, upstream ──▶ Client ──▶ events
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

use super::account::{Account, Counts, ProgramState};
use super::admission::Door;
use super::cached::{self, Cached};
use super::client::{Client, Piece, RequestBody};
use super::front::{Back, Entrance, Front, Order, Unread};
use super::program::Program;
use super::spec::{DynamicSpec, Route, Transport, Upstream};
use super::upstream::{Answer, Changes, Gate, RouteState, Scripts, scripts_directory, send};
use super::{ANSWER_WINDOW, Ask, Ticket};
use crate::cache::{Cache, Finding};
use crate::request::Body;
use crate::spec::{ServeError, system};

/// The running relay. Dropping it ends every exchange, the program, and the thread.
#[derive(Debug)]
pub(crate) struct Relay {
    orders: UnboundedSender<Order>,
    thread: Option<JoinHandle<()>>,
    accounts: Accounts,
    cache: Option<Arc<Cache>>,
    /// After the thread, which speaks with it.
    program: Option<Program>,
}

/// A way to read what the dynamic part did, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Accounts(Arc<Shared>);

/// What relay and readers share.
#[derive(Debug)]
struct Shared {
    /// Route as typed, and its figures.
    routes: Vec<(String, Arc<Counts>)>,
    program: Option<Arc<ProgramState>>,
}

impl Accounts {
    /// What it did so far.
    pub(crate) fn read(&self) -> Account {
        Account {
            routes: self.0.routes.iter().map(|(route, counts)| counts.read(route.clone())).collect(),
            program: self.0.program.as_ref().map(|program| program.read()),
        }
    }
}

impl Relay {
    /// Starts the program, if there is to be one, and the relay for so many workers. `served` is the directory whose files
    /// are served. `runs_here` is called on the new thread. With a program, call it while the process has one thread.
    ///
    /// # Errors
    /// The program cannot be started; a directory of scripts cannot be opened; no thread or descriptor is to be had.
    pub(crate) fn start(
        spec: &DynamicSpec,
        served: &Path,
        workers: usize,
        clock: Clock,
        runs_here: impl FnOnce() + Send + 'static,
    ) -> Result<(Relay, Vec<Front>), ServeError> {
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
        let doors = doors_of(&spec.routes);
        let entrance =
            Arc::new(Entrance::new(&spec.routes, counts.iter().cloned().zip(doors.iter().cloned()).collect()));
        let (orders, received) = unbounded_channel();
        let (mut fronts, mut backs) = (Vec::with_capacity(workers), Vec::with_capacity(workers));
        for worker in 0..workers {
            let (front, back) =
                Front::pair(worker, Arc::clone(&entrance), orders.clone()).map_err(system("eventfd"))?;
            fronts.push(front);
            backs.push(back);
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
            // Behind the workers, but not nowhere: a busy static server leaves it a tenth of the core.
            Urgency::Low.apply_to_this_thread();
            let local = LocalSet::new();
            let routes = routes_of(&spec, counts, scripts, &doors, state.as_ref());
            local.block_on(&runtime, async {
                if let (Some(link), Some(state), Some(route)) = (link, state, routes.first()) {
                    spawn_local(super::program::follow(link, state, route.spec.upstream.transport().clone()));
                }
                spawn_local(sweep(routes.clone()));
                let cached = shared_cache.map(Cached::new);
                Desk { entrance, routes, backs, cached, under_way: Rc::default(), serial: 0 }.work(received).await;
            });
            // Tasks first, then what they run on; a name lookup under way is not waited for.
            drop(local);
            Runtime::shutdown_background(runtime);
        };
        let thread = std::thread::Builder::new().name("yamabiko-relay".to_owned()).spawn(work);
        let thread = Some(thread.map_err(system("start the relay's thread"))?);
        Ok((Relay { orders, thread, accounts: Accounts(shared), cache, program }, fronts))
    }

    /// The result cache, for the workers' fast path.
    pub(crate) fn cache(&self) -> Option<Arc<Cache>> {
        self.cache.clone()
    }

    /// A way to read what it did.
    pub(crate) fn accounts(&self) -> Accounts {
        self.accounts.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
        drop(self.program.take());
    }
}

/// For each route the door of its upstream.
fn doors_of(routes: &[Route]) -> Vec<Arc<Door>> {
    let mut doors: Vec<Arc<Door>> = Vec::with_capacity(routes.len());
    for (at, route) in routes.iter().enumerate() {
        let same = routes[..at].iter().position(|earlier| upstream_of(earlier) == upstream_of(route));
        doors.push(same.map_or_else(Arc::default, |same| Arc::clone(&doors[same])));
    }
    doors
}

/// What routes have to have in common to share places and connections.
fn upstream_of(route: &Route) -> (&Transport, bool) {
    (route.upstream.transport(), matches!(route.upstream, Upstream::Http { .. }))
}

/// The routes as the relay's thread has them: those with one upstream share its places and its connections.
fn routes_of(
    spec: &DynamicSpec,
    counts: Vec<Arc<Counts>>,
    scripts: Vec<Option<Scripts>>,
    doors: &[Arc<Door>],
    program: Option<&Arc<ProgramState>>,
) -> Vec<Rc<RouteState>> {
    let mut gates: Vec<((&Transport, bool), Rc<Gate>)> = Vec::new();
    let mut routes = Vec::with_capacity(spec.routes.len());
    for (((route, counts), scripts), door) in spec.routes.iter().zip(counts).zip(scripts).zip(doors) {
        let key = upstream_of(route);
        let gate = match gates.iter().find(|(known, _)| *known == key) {
            Some((_, gate)) => Rc::clone(gate),
            None => {
                gates.push((key, Rc::new(Gate::new(&spec.limits, Arc::clone(door)))));
                Rc::clone(&gates[gates.len() - 1].1)
            }
        };
        // Upstreams other than the program's own are someone else's to keep running.
        let own = spec.routes.first().is_some_and(|first| first.upstream.transport() == route.upstream.transport());
        let program = program.filter(|_| own).cloned();
        let limits = spec.limits.clone();
        routes.push(Rc::new(RouteState::new(route.clone(), limits, counts, gate, program, scripts)));
    }
    routes
}

/// Lets go of connections that nobody has used for a while.
async fn sweep(routes: Vec<Rc<RouteState>>) {
    let mut every = interval(SWEEP_INTERVAL);
    loop {
        every.tick().await;
        for route in &routes {
            route.gate.http.sweep();
            route.gate.fastcgi.sweep();
        }
    }
}

/// The relay's own state.
struct Desk {
    entrance: Arc<Entrance>,
    routes: Vec<Rc<RouteState>>,
    backs: Vec<Back>,
    cached: Option<Rc<Cached>>,
    under_way: Rc<RefCell<HashMap<(usize, Ticket), UnderWay>>>,
    serial: u64,
}

/// An exchange as the orders see it.
struct UnderWay {
    /// Tells this exchange from an earlier one under the same ticket.
    serial: u64,
    body: Option<UnboundedSender<Piece>>,
    window: Arc<Semaphore>,
    task: AbortHandle,
}

impl Desk {
    async fn work(mut self, mut orders: UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                Order::Ask(worker, ask) => self.begin(worker, ask),
                Order::Body(worker, ticket, bytes) => self.pass(worker, ticket, Piece::Bytes(bytes)),
                Order::BodyEnded(worker, ticket) => self.pass(worker, ticket, Piece::End),
                Order::Taken(worker, ticket, bytes) => {
                    if let Some(exchange) = self.under_way.borrow().get(&(worker, ticket)) {
                        exchange.window.add_permits(bytes);
                    }
                }
                Order::Cancel(worker, ticket) => {
                    let cancelled = self.under_way.borrow_mut().remove(&(worker, ticket));
                    if let Some(exchange) = cancelled {
                        exchange.window.close();
                        exchange.task.abort();
                    }
                }
                Order::Stop => break,
            }
        }
    }

    fn begin(&mut self, worker: usize, ask: Ask) {
        let unread = Unread::of(&self.entrance);
        self.serial += 1;
        let (key, serial) = ((worker, ask.ticket), self.serial);
        let back = self.backs[worker].clone();
        let window = Arc::new(Semaphore::new(ANSWER_WINDOW));
        let head_only = ask.head.starts_with(b"HEAD ");
        let client = Client::new(ask.ticket, back.clone(), Arc::clone(&window), head_only);
        let (sender, body) = match ask.body {
            Body::None => (None, None),
            Body::Bytes(length) => {
                let (sender, pieces) = unbounded_channel();
                (Some(sender), Some(RequestBody::new(ask.ticket, back, pieces, Some(length))))
            }
            Body::Chunked => {
                let (sender, pieces) = unbounded_channel();
                (Some(sender), Some(RequestBody::new(ask.ticket, back, pieces, None)))
            }
        };
        let route = Rc::clone(&self.routes[ask.route]);
        let under_way = Rc::clone(&self.under_way);
        let cached = self.cached.clone();
        let task = spawn_local(async move {
            drop(unread);
            match cached {
                Some(cached) => cached::exchange(&cached, &route, ask, body, client).await,
                None => plain(&route, ask, body, client).await,
            }
            let mut under_way = under_way.borrow_mut();
            if under_way.get(&key).is_some_and(|exchange| exchange.serial == serial) {
                under_way.remove(&key);
            }
        });
        let exchange = UnderWay { serial, body: sender, window, task: task.abort_handle() };
        self.under_way.borrow_mut().insert(key, exchange);
    }

    fn pass(&self, worker: usize, ticket: Ticket, piece: Piece) {
        if let Some(exchange) = self.under_way.borrow_mut().get_mut(&(worker, ticket)) {
            let ended = matches!(piece, Piece::End);
            if let Some(body) = &exchange.body {
                // An upstream that has answered already reads no further.
                let _ = body.send(piece);
            }
            if ended {
                exchange.body = None;
            }
        }
    }
}

/// An exchange without a cache.
async fn plain(route: &Rc<RouteState>, ask: Ask, body: Option<RequestBody>, client: Client) {
    let changes = Changes { hints: Some(client.hints()), ..Changes::default() };
    let answer = match send(route, &ask, &changes, body).await {
        Ok(answer) => answer,
        Err(failure) => failure.answer(),
    };
    pass_on(answer, client, Finding::NONE).await;
}

/// Hands an answer to a client as it comes.
pub(super) async fn pass_on(answer: Answer, mut client: Client, finding: Finding) {
    let Answer { status, fields, length, mut body } = answer;
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
