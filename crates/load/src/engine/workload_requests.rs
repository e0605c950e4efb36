//! Requests of a cache workload: scheduled, sent, verified, with the embedded objects of pages.

use schema::FailureCause;
use units::Timestamp;

use super::Load;
use super::closing::note_response;
use super::dispatch::Waiting;
use super::evaluation::Ended;
use crate::due::Wake;
use crate::in_flight::{InFlightRequest, Onward, Purpose, PurposeKey};
use crate::virtual_users::{CacheCounters, Reply, WorkloadRequest};

impl Load {
    /// Counters of the cache workload at this time; all 0 without one.
    pub fn mix_live(&self) -> CacheCounters {
        self.virtual_users.as_ref().map_or_else(CacheCounters::default, |virtual_users| virtual_users.live())
    }

    /// The first request of the plan's requests; with a cache workload the first that was sent. Empty if none was.
    pub fn first_request(&self) -> &[u8] {
        match &self.virtual_users {
            Some(virtual_users) => virtual_users.first_request().unwrap_or_default(),
            None => self.prepared.of(0),
        }
    }

    /// Counts the ask of arrival `number` as intended at `at`.
    pub(super) fn intend_ask(&mut self, at: Timestamp, number: u64, client: u32) -> Waiting {
        let virtual_users = self.virtual_users.as_mut().expect("a load of a mix");
        let asking = virtual_users.draw(number, at.since(self.start), at);
        let (url, purpose_key) = self.begin_ask(asking);
        self.count_intended(at);
        Waiting { sequence: number, scheduled_at: at, client, url, session: None, purpose_key, queued: false }
    }

    fn begin_ask(&mut self, asking: WorkloadRequest) -> (u32, PurposeKey) {
        let url = self.virtual_users.as_ref().expect("a load of a mix").request_of(&asking.ask);
        (url, self.purposes.begin(Purpose { asking: Some(Box::new(asking)), ..Purpose::default() }))
    }

    /// The request of connection `index` is about to be written.
    #[inline]
    pub(super) fn note_asked(&mut self, now: Timestamp, index: u32) {
        let Some(virtual_users) = &self.virtual_users else { return };
        let request = self.pool.slot(index).request.as_ref();
        if let Some(asking) = request.and_then(|request| self.purposes.asking_mut(request.purpose_key)) {
            asking.set_asked(virtual_users.unix_ms(now));
        }
    }

    /// The request of connection `index` goes out: what looks at its reply is put in place.
    #[inline]
    pub(super) fn look_at_reply(&mut self, index: u32) {
        let Some(virtual_users) = &self.virtual_users else { return };
        let connection = self.pool.at(index);
        if let Some(asking) = connection.request.as_ref().and_then(|request| self.purposes.asking(request.purpose_key))
        {
            let (checker, checks_body) = virtual_users.checker(asking);
            connection.response.look(checker, checks_body);
        }
    }

    /// Connection `index` is wanted by its client.
    #[inline]
    pub(super) fn note_opens(&mut self, index: u32) {
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.opens(self.pool.slot(index).client);
        }
    }

    /// Connection `index` is to be closed.
    #[inline]
    pub(super) fn note_closes(&mut self, index: u32) {
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.closes(self.pool.slot(index).client);
        }
    }

    /// Ends the request of connection `index`, an ask: with a whole reply, one that is to be left here, or for a cause.
    #[inline(never)]
    pub(super) fn end_asked(
        &mut self,
        done_at: Timestamp,
        index: u32,
        failure: Option<FailureCause>,
    ) -> Option<Onward> {
        let connection = self.pool.at(index);
        let mut request = connection.request.take()?;
        note_response(&mut request.record, &connection.response, failure.is_none());
        // Until its own request was sent, a connection may still have what looked at another reply.
        let answered = request.record.first_byte_at.is_some();
        let seen = connection.response.seen().filter(|_| answered);
        let reply = Reply { seen, is_cut: answered && connection.response.is_cut() };
        self.conclude_ask(done_at, request, reply, failure)
    }

    /// Ends an ask: its record, its exchange, and what follows from it.
    pub(super) fn conclude_ask(
        &mut self,
        done_at: Timestamp,
        mut in_hand: InFlightRequest,
        reply: Reply,
        failure: Option<FailureCause>,
    ) -> Option<Onward> {
        in_hand.record.done_at = done_at;
        let virtual_users = self.virtual_users.as_mut().expect("a load of a mix");
        let asking = self.purposes.take_asking(in_hand.purpose_key).expect("every request of a mix is an ask");
        let exchange = virtual_users.conclude(&asking, &in_hand.record, reply, failure);
        let verdict = exchange.failure.map_or(Ok(()), Err);
        in_hand.record.failure = verdict.err();
        let is_whole_page = verdict.is_ok() && in_hand.record.status == 200 && !reply.is_cut && failure.is_none();
        let page = match asking.page() {
            Some(page) => {
                virtual_users.one_over(page);
                Some(page)
            }
            None if is_whole_page => virtual_users.open_page(&asking, in_hand.record.client),
            None => None,
        };
        let ended = Ended::of(&in_hand, verdict);
        self.records.push(in_hand.record);
        self.exchanges.push(exchange);
        if let Some(page) = page {
            self.go_on_with(done_at, page);
        }
        self.settle(done_at, ended, None)
    }

    /// Has the next objects of a page asked for at `at`, as many as may be at once.
    fn go_on_with(&mut self, at: Timestamp, page: u32) {
        let goes_on = self.phase.admits(at) && !self.phase.is_over();
        let Some(virtual_users) = &mut self.virtual_users else { return };
        if !goes_on {
            virtual_users.give_up(page);
        }
        while let Some((client, asking)) =
            self.virtual_users.as_mut().and_then(|virtual_users| virtual_users.next_of(page, at))
        {
            let (url, purpose_key) = self.begin_ask(asking);
            self.due.push(at, Wake::Ask { client, url, purpose_key });
        }
    }

    /// An ask that was to follow will not be intended.
    pub(super) fn drop_ask(&mut self, purpose_key: PurposeKey) {
        let Some(virtual_users) = &mut self.virtual_users else { return };
        if let Some(page) = self.purposes.take_asking(purpose_key).and_then(|asking| asking.page()) {
            virtual_users.one_over(page);
            virtual_users.give_up(page);
        }
    }
}
