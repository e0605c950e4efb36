//! Turns the events of a run into rows, figures and the table of programs. It reads no rings and does not wait: the
//! owner of the rings calls [`Collector::push`] and [`Collector::process_until`].
//!
//! ```text
//!   rings ──push──> InOrder ──process_until──> Exchanges ──> rows ──> Sides, ProgramTable, the caller (run store)
//! ```

use std::collections::{HashMap, HashSet};

use schema::tap_part::TapPart;
use schema::{TapExchange, TapSide};
use units::Timestamp;

use crate::event::{Event, EventKind, Owner};
use crate::exchange::Exchanges;
use crate::filter::Only;
use crate::indicators::Sides;
use crate::order::{InOrder, event_time};
use crate::program_table::ProgramTable;

/// Collects events, and produces rows and figures.
#[derive(Debug)]
pub struct Collector {
    order: InOrder,
    state: State,
    records: u64,
    unfollowed: u64,
}

#[derive(Debug)]
struct State {
    exchanges: Exchanges,
    programs: ProgramTable,
    sides: Sides,
    /// The latest image of each process.
    images: HashMap<Owner, u32>,
    rows: Vec<TapExchange>,
}

/// Current figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Processes that loaded the library and still run.
    pub processes: u64,
    /// Connections opened so far.
    pub connections: u64,
    /// Connections open.
    pub open: u64,
    /// Exchanges in flight.
    pub in_flight: u64,
    /// Records dropped so far.
    pub dropped: u64,
}

impl Collector {
    /// Follows connections that match one of `only` (empty: all). Windows of availability are `window_ns` long.
    pub fn new(only: Vec<Only>, window_ns: u64) -> Self {
        let state = State {
            exchanges: Exchanges::new(only),
            programs: ProgramTable::default(),
            sides: Sides::new(window_ns),
            images: HashMap::new(),
            rows: Vec::new(),
        };
        Collector { order: InOrder::default(), state, records: 0, unfollowed: 0 }
    }

    /// Adds an event as read from a ring.
    pub fn push(&mut self, event: Event) {
        self.records += 1;
        self.order.push(event);
    }

    /// Processes all events until `until`, the time at which the last round of all rings began. Completed rows are
    /// added to `rows`.
    pub fn process_until(&mut self, until: Timestamp, rows: &mut Vec<TapExchange>) {
        self.process_until_with(until, rows, &mut |_, _| {});
    }

    /// Like `process_until`; before each event, and finally with `until`, calls `before` with the number of concurrent
    /// connections ([`Exchanges::concurrent_connections`]) since the previous event.
    pub fn process_until_with(
        &mut self,
        until: Timestamp,
        rows: &mut Vec<TapExchange>,
        before: &mut dyn FnMut(Timestamp, u64),
    ) {
        let state = &mut self.state;
        self.order.release(until, |event| {
            before(event_time(&event.what), state.exchanges.concurrent_connections());
            state.apply(event);
        });
        before(until, state.exchanges.concurrent_connections());
        state.exchanges.tick(until);
        state.move_rows(rows);
    }

    /// Process numbers, in their own namespaces, of processes that are not known to have ended.
    pub fn processes(&self) -> HashSet<u32> {
        self.state.images.keys().map(|owner| owner.pid).collect()
    }

    /// Ends the open connections of processes that have ended. Call it after their last events were settled.
    pub fn processes_ended(&mut self, pids: &[u32], at: Timestamp, rows: &mut Vec<TapExchange>) {
        for pid in pids {
            let owners = self.state.images.keys().filter(|owner| owner.pid == *pid);
            let mut owners: Vec<Owner> = owners.copied().collect();
            owners.sort_unstable();
            for image in owners.iter().filter_map(|owner| self.state.images.remove(owner)).collect::<Vec<_>>() {
                self.state.image_ended(image, at);
            }
        }
        self.state.move_rows(rows);
    }

    /// The table of programs, to note started and unseen ones.
    pub fn programs(&mut self) -> &mut ProgramTable {
        &mut self.state.programs
    }

    /// Sets the number of connections beyond the programs' tables:
    /// [`Rings::unfollowed`](crate::rings::Rings::unfollowed).
    pub fn unfollowed(&mut self, connections: u64) {
        self.unfollowed = connections;
    }

    /// Current figures.
    pub fn live(&self) -> Live {
        Live {
            processes: self.state.images.len() as u64,
            connections: self.state.exchanges.opened_so_far(),
            open: self.state.exchanges.open() as u64,
            in_flight: self.state.exchanges.in_flight(),
            dropped: self.state.exchanges.lost(),
        }
    }

    /// The figures so far.
    pub fn sides(&self) -> &Sides {
        &self.state.sides
    }

    /// Ends the run: processes waiting events and cuts open connections. `why` gives the reason for a program that
    /// was started and never reported; see [`ProgramTable::end`].
    pub fn end(mut self, rows: &mut Vec<TapExchange>, why: impl FnMut(&str) -> Option<String>) -> TapPart {
        let state = &mut self.state;
        self.order.release_all(|event| state.apply(event));
        state.exchanges.end();
        state.move_rows(rows);
        state.programs.end(why);
        let (programs, programs_left_out) = state.programs.programs();
        TapPart {
            client: state.sides.view(TapSide::Client),
            server: state.sides.view(TapSide::Server),
            lookups: state.sides.lookups.part(),
            programs,
            programs_left_out,
            records: self.records,
            records_dropped: state.exchanges.lost(),
            connections_left_out: state.exchanges.left_out(),
            connections_unfollowed: self.unfollowed,
        }
    }
}

impl State {
    fn apply(&mut self, event: Event) {
        let origin = event.origin;
        self.programs.apply(&event);
        if let EventKind::Loaded { at, .. } | EventKind::Forked { at, .. } | EventKind::Filtered { at, .. } = event.what
            && let Some(before) = self.images.insert(origin.owner(), origin.image)
            && before != origin.image
        {
            // The process runs another program, or the number belongs to another process.
            self.exchanges.apply(event);
            self.image_replaced(before, at);
            return;
        }
        self.exchanges.apply(event);
    }

    fn image_replaced(&mut self, image: u32, at: Timestamp) {
        self.exchanges.replaced(image, at);
        self.programs.image_ended(image);
    }

    fn image_ended(&mut self, image: u32, at: Timestamp) {
        self.exchanges.image_ended(image, at);
        self.programs.image_ended(image);
    }

    fn move_rows(&mut self, rows: &mut Vec<TapExchange>) {
        self.exchanges.drain(&mut self.rows);
        for row in &self.rows {
            self.sides.add(0, row);
            self.programs.add(row);
        }
        rows.append(&mut self.rows);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use schema::TapOutcome;

    use super::*;
    use crate::event::{Opened, Origin, Role, Run};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn event(image: u32, pid: u32, what: EventKind) -> Event {
        Event { origin: Origin { image, pid, tid: pid, space: 0 }, what }
    }

    fn loaded(image: u32, pid: u32, program: &str, millis: u64) -> Event {
        event(image, pid, EventKind::Loaded { at: at(millis), parent_pid: 1, program: program.into() })
    }

    fn opened(image: u32, pid: u32, millis: u64) -> Event {
        let opened = Opened {
            connection: 9,
            at: at(millis),
            role: Role::Connected,
            local: "192.0.2.1:50000".parse().unwrap(),
            peer: "192.0.2.80:80".parse().unwrap(),
            nonblocking: false,
            inherited: false,
        };
        event(image, pid, EventKind::Opened(opened))
    }

    fn run(millis: u64, bytes: u64) -> Run {
        Run {
            connection: 9,
            begin: at(millis),
            first: at(millis),
            end: at(millis),
            bytes,
            calls: 1,
            blocked: Duration::ZERO,
            waited: Duration::ZERO,
            ended: false,
            error: 0,
        }
    }

    #[test]
    fn events_of_threads_that_share_a_connection_are_sorted_by_time() {
        let mut collector = Collector::new(Vec::new(), 1_000_000_000);
        let mut rows = Vec::new();
        // The receiving thread's ring is drained before the sending one's.
        for event in [
            event(1, 7, EventKind::Received(run(30, 500))),
            loaded(1, 7, "threads", 0),
            opened(1, 7, 1),
            event(1, 7, EventKind::Sent(run(10, 80))),
        ] {
            collector.push(event);
        }
        collector.process_until(at(40), &mut rows);
        assert_eq!((collector.live().open, collector.live().in_flight, collector.live().connections), (1, 0, 1));
        collector.processes_ended(&[7], at(50), &mut rows);
        assert_eq!((rows[0].sent_bytes, rows[0].received_bytes, rows[0].outcome), (80, 500, TapOutcome::Cut));
        collector.unfollowed(7);
        let part = collector.end(&mut rows, |_| None);
        assert_eq!((part.records, part.programs[0].connections, part.connections_unfollowed), (4, 1, 7));
        assert_eq!(part.client.unwrap().exchanges_cut, 1);
        assert_eq!(part.server, None);
    }

    #[test]
    fn exec_ends_the_previous_program_of_a_process() {
        let mut collector = Collector::new(Vec::new(), 1_000_000_000);
        let mut rows = Vec::new();
        [loaded(1, 7, "sh", 0), opened(1, 7, 1), loaded(2, 7, "exec", 5)].into_iter().for_each(|e| collector.push(e));
        collector.process_until(at(9), &mut rows);
        assert_eq!(
            (rows.len(), collector.processes()),
            (0, HashSet::from([7])),
            "the next program may still have the connection"
        );
        collector.process_until(at(1_100), &mut rows);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].program.as_deref(), Some("sh"));
        assert_eq!(rows[0].closed_at, Some(at(5)));
    }

    fn inherited_event(image: u32, pid: u32, millis: u64, inherited: bool) -> Event {
        let mut event = opened(image, pid, millis);
        if let EventKind::Opened(opened) = &mut event.what {
            (opened.role, opened.inherited) = (Role::Found, inherited);
        }
        event
    }

    fn closed(image: u32, pid: u32, millis: u64, is_leaving: bool) -> Event {
        use crate::event::{Caveats, Closed};
        let caveats = Caveats { shared: true, ..Caveats::default() };
        let closed = Closed { connection: 9, begin: at(millis), tcp_counts: None, caveats, forks: [0, 1] };
        event(image, pid, if is_leaving { EventKind::Leaving(closed) } else { EventKind::Closed(closed) })
    }

    #[test]
    fn a_socket_inherited_over_exec_stays_one_connection() {
        // The process itself closes it, or the parent closes it before the child's program has reported it.
        let by_itself = vec![closed(1, 7, 20, true), loaded(2, 7, "head", 21), inherited_event(2, 7, 22, true)];
        let by_child = vec![closed(1, 7, 20, false), loaded(2, 8, "head", 21), inherited_event(2, 8, 22, true)];
        for (events, pid) in [(by_itself, 7), (by_child, 8)] {
            let mut collector = Collector::new(Vec::new(), 1_000_000_000);
            let mut rows = Vec::new();
            let begin = [loaded(1, 7, "inetd", 0), opened(1, 7, 1), event(1, 7, EventKind::Sent(run(10, 80)))];
            let end = [event(2, pid, EventKind::Received(run(30, 500))), closed(2, pid, 40, false)];
            begin.into_iter().chain(events).chain(end).for_each(|event| collector.push(event));
            collector.process_until(at(50), &mut rows);
            assert_eq!(
                (rows.len(), collector.live().connections),
                (0, 1),
                "another process may still have the connection"
            );
            collector.process_until(at(2_000), &mut rows);
            let [row] = rows.as_slice() else { panic!("{rows:?}") };
            assert_eq!((row.sent_bytes, row.received_bytes, row.outcome), (80, 500, TapOutcome::Succeeded));
            assert_eq!((row.closed_at, row.side), (Some(at(40)), TapSide::Client));
        }
    }

    #[test]
    fn an_inherited_socket_that_is_never_used_has_no_row() {
        let mut collector = Collector::new(Vec::new(), 1_000_000_000);
        let mut rows = Vec::new();
        [loaded(1, 7, "true", 0), inherited_event(1, 7, 1, true)].into_iter().for_each(|event| collector.push(event));
        collector.process_until(at(9), &mut rows);
        collector.processes_ended(&[7], at(10), &mut rows);
        assert_eq!(rows, []);
        // After its first use it is an ordinary connection.
        let used =
            [loaded(2, 8, "cat", 20), inherited_event(2, 8, 21, true), event(2, 8, EventKind::Received(run(30, 500)))];
        used.into_iter().for_each(|event| collector.push(event));
        collector.process_until(at(40), &mut rows);
        collector.processes_ended(&[8], at(41), &mut rows);
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn the_same_pid_in_two_containers_is_two_processes() {
        let mut collector = Collector::new(Vec::new(), 1_000_000_000);
        let mut rows = Vec::new();
        let within = |space, mut event: Event| {
            event.origin.space = space;
            event
        };
        let events = [within(4, loaded(1, 7, "one", 0)), within(4, opened(1, 7, 1)), within(5, loaded(2, 7, "two", 2))];
        events.into_iter().for_each(|event| collector.push(event));
        collector.process_until(at(9), &mut rows);
        assert_eq!(
            (rows.len(), collector.live().processes),
            (0, 2),
            "equal process numbers in two namespaces are two processes"
        );
        collector.processes_ended(&[7], at(10), &mut rows);
        assert_eq!((rows.len(), collector.live().processes), (1, 0));
    }
}
