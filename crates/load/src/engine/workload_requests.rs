//! Schedules, sends and verifies the requests of a cache workload, with the embedded objects of pages.

use schema::FailureCause;
use units::Timestamp;

use super::Load;
use super::closing::note_response;
use super::dispatch::BacklogRequest;
use super::evaluation::Ended;
use crate::due::Wake;
use crate::in_flight::{FollowUp, InFlightRequest, Purpose, PurposeKey};
use crate::virtual_users::{CacheCounters, Reply, WorkloadRequest};

impl Load {
    /// The current counters of the cache workload; all 0 for other workloads.
    pub fn cache_counters(&self) -> CacheCounters {
        self.virtual_users.as_ref().map_or_else(CacheCounters::default, |virtual_users| virtual_users.live())
    }

    /// The bytes of the workload's first request; of a cache workload, those of the first request sent. Empty before
    /// that.
    pub fn first_request(&self) -> &[u8] {
        match &self.virtual_users {
            Some(virtual_users) => virtual_users.first_request().unwrap_or_default(),
            None => self.prepared.of(0),
        }
    }

    /// Counts the request of arrival `number` as scheduled at `at`.
    pub(super) fn schedule_workload_request(&mut self, at: Timestamp, number: u64, client: u32) -> BacklogRequest {
        let virtual_users = self.virtual_users.as_mut().expect("a load with a cache workload");
        let workload_request = virtual_users.draw(number, at.since(self.start), at);
        let (url, purpose_key) = self.begin_workload_request(workload_request);
        self.count_scheduled(at);
        BacklogRequest { sequence: number, scheduled_at: at, client, url, session: None, purpose_key, queued: false }
    }

    fn begin_workload_request(&mut self, workload_request: WorkloadRequest) -> (u32, PurposeKey) {
        let url = self.virtual_users.as_ref().expect("a load with a cache workload").request_of(&workload_request.ask);
        (url, self.purposes.begin(Purpose { workload_request: Some(Box::new(workload_request)), ..Purpose::default() }))
    }

    /// Records the send time of the request of connection `index`, which is about to be written.
    #[inline]
    pub(super) fn note_request_time(&mut self, now: Timestamp, index: u32) {
        let Some(virtual_users) = &self.virtual_users else { return };
        let request = self.pool.slot(index).request.as_ref();
        if let Some(workload_request) =
            request.and_then(|request| self.purposes.workload_request_mut(request.purpose_key))
        {
            workload_request.set_requested_unix_ms(virtual_users.unix_ms(now));
        }
    }

    /// Attaches the checker of the response to connection `index`, whose request is being sent.
    #[inline]
    pub(super) fn attach_checker(&mut self, index: u32) {
        let Some(virtual_users) = &self.virtual_users else { return };
        let connection = self.pool.at(index);
        if let Some(workload_request) =
            connection.request.as_ref().and_then(|request| self.purposes.workload_request(request.purpose_key))
        {
            let (checker, checks_body) = virtual_users.checker(workload_request);
            connection.response.attach_checker(checker, checks_body);
        }
    }

    /// Counts connection `index` as opened by its client.
    #[inline]
    pub(super) fn note_opens(&mut self, index: u32) {
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.opens(self.pool.slot(index).client);
        }
    }

    /// Counts connection `index` as closed by its client.
    #[inline]
    pub(super) fn note_closes(&mut self, index: u32) {
        if let Some(virtual_users) = &mut self.virtual_users {
            virtual_users.closes(self.pool.slot(index).client);
        }
    }

    /// Ends the request of connection `index`: with a complete response, one that the client aborts as planned, or a
    /// failure.
    #[inline(never)]
    pub(super) fn end_workload_request(
        &mut self,
        done_at: Timestamp,
        index: u32,
        failure: Option<FailureCause>,
    ) -> Option<FollowUp> {
        let connection = self.pool.at(index);
        let mut request = connection.request.take()?;
        note_response(&mut request.record, &connection.response, failure.is_none());
        // Until the request is sent, the connection may still have the checker of the previous response.
        let answered = request.record.first_byte_at.is_some();
        let checked = connection.response.take_checked().filter(|_| answered);
        let reply = Reply { checked, is_cut: answered && connection.response.is_cut() };
        self.conclude_workload_request(done_at, request, reply, failure)
    }

    /// Ends a request of a cache workload: stores its record and its exchange, and schedules embedded objects.
    pub(super) fn conclude_workload_request(
        &mut self,
        done_at: Timestamp,
        mut in_flight: InFlightRequest,
        reply: Reply,
        failure: Option<FailureCause>,
    ) -> Option<FollowUp> {
        in_flight.record.done_at = done_at;
        let virtual_users = self.virtual_users.as_mut().expect("a load with a cache workload");
        let workload_request = self
            .purposes
            .take_workload_request(in_flight.purpose_key)
            .expect("every request of a cache workload has its own entry");
        let exchange = virtual_users.conclude(&workload_request, &in_flight.record, reply, failure);
        let verdict = exchange.failure.map_or(Ok(()), Err);
        in_flight.record.failure = verdict.err();
        let is_whole_page = verdict.is_ok() && in_flight.record.status == 200 && !reply.is_cut && failure.is_none();
        let page = match workload_request.page() {
            Some(page) => {
                virtual_users.end_one(page);
                Some(page)
            }
            None if is_whole_page => virtual_users.open_page(&workload_request, in_flight.record.client),
            None => None,
        };
        let ended = Ended::of(&in_flight, verdict);
        self.records.push(in_flight.record);
        self.exchanges.push(exchange);
        if let Some(page) = page {
            self.schedule_embedded(done_at, page);
        }
        self.settle(done_at, ended, None)
    }

    /// Schedules the next objects of a page at `at`, up to the maximum of concurrent requests.
    fn schedule_embedded(&mut self, at: Timestamp, page: u32) {
        let goes_on = self.phase.admits(at) && !self.phase.is_over();
        let Some(virtual_users) = &mut self.virtual_users else { return };
        if !goes_on {
            virtual_users.drop_rest(page);
        }
        while let Some((client, workload_request)) =
            self.virtual_users.as_mut().and_then(|virtual_users| virtual_users.next_of(page, at))
        {
            let (url, purpose_key) = self.begin_workload_request(workload_request);
            self.due.push(at, Wake::Request { client, url, purpose_key });
        }
    }

    /// Drops a request of a page that will not be scheduled, and the rest of the page.
    pub(super) fn drop_workload_request(&mut self, purpose_key: PurposeKey) {
        let Some(virtual_users) = &mut self.virtual_users else { return };
        if let Some(page) =
            self.purposes.take_workload_request(purpose_key).and_then(|workload_request| workload_request.page())
        {
            virtual_users.end_one(page);
            virtual_users.drop_rest(page);
        }
    }
}
