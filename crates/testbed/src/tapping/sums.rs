//! Sums over the rows of a run.

use schema::{TapExchange, TapOutcome, TapSide};
use stats::Histogram;
use store::RunFolder;
use units::Timestamp;

use super::gauges::TapSampler;
use validity::evidence::{ClientTotals, Outside};

/// All sums.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) outside: Outside,
    pub(super) client: ClientTotals,
    pub(super) sampler: Option<TapSampler>,
    pub(super) responses: Responses,
}

impl Sums {
    pub(super) fn new(sampler: Option<TapSampler>) -> Self {
        let (outside, client) = (Outside::default(), ClientTotals::default());
        Sums { outside, client, sampler, responses: Responses::default() }
    }

    pub(super) fn add(&mut self, row: &TapExchange) {
        self.outside.add(row);
        self.client.add(row);
        self.responses.add(row);
        if let Some(sampler) = &mut self.sampler {
            sampler.add(row);
        }
    }
}

/// Response times of successful exchanges, in ns.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    /// Response times as seen by clients.
    pub client: Histogram,
    /// Response times as seen by servers.
    pub server: Histogram,
}

impl Responses {
    fn add(&mut self, row: &TapExchange) {
        if row.outcome == TapOutcome::Succeeded
            && let Some(response_ns) = row.response_ns()
        {
            let side = if row.side == TapSide::Client { &mut self.client } else { &mut self.server };
            side.record(response_ns);
        }
    }

    /// Stores the histograms as `tap_client.hlog` and `tap_server.hlog`, unless they are empty, so that a report
    /// need not read every row. `until`: the end of the run, since its zero.
    ///
    /// # Errors
    /// The errors of the run store.
    pub fn store(&self, folder: &RunFolder, until: Timestamp) -> store::Result<()> {
        let both = [("tap_client", &self.client), ("tap_server", &self.server)];
        both.into_iter()
            .filter(|(_, times)| !times.is_empty())
            .try_for_each(|(name, times)| folder.write_hlog(name, &[(0, until.as_nanos(), times)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_clients_are_summed_also_without_a_connection() {
        let row = TapExchange {
            connection: Some(1),
            peer: Some("127.0.0.1:80".parse().unwrap()),
            sent_bytes: 80,
            received_bytes: 500,
            ..TapExchange::BLANK
        };
        let mut sums = Sums::new(None);
        sums.add(&TapExchange { exchange: Some(0), ..row.clone() });
        sums.add(&TapExchange { exchange: Some(1), last: true, outcome: TapOutcome::Cut, ..row.clone() });
        let failed = TapExchange { sent_bytes: 0, received_bytes: 0, ..row.clone() };
        sums.add(&TapExchange { last: true, outcome: TapOutcome::Failed, ..failed });
        sums.add(&TapExchange { side: TapSide::Server, last: true, ..row.clone() });
        sums.add(&TapExchange { connection: None, last: true, outcome: TapOutcome::Failed, ..row });
        let client = ClientTotals { called: 2, succeeded: 1, sent_bytes: 160, received_bytes: 1_000 };
        assert_eq!(
            (sums.client, sums.outside),
            (client, Outside::default()),
            "loopback traffic does not leave the machine"
        );
    }
}
