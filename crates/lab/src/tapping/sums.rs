//! Sums over the rows of a run, as they become complete.

use ledger::{TapExchange, TapOutcome, TapSide};

use super::levels::TapSampler;

/// All of them.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) outside: Outside,
    pub(super) client: ClientTotals,
    pub(super) sampler: Option<TapSampler>,
}

impl Sums {
    pub(super) fn new(sampler: Option<TapSampler>) -> Self {
        Sums { outside: Outside::default(), client: ClientTotals::default(), sampler }
    }

    pub(super) fn add(&mut self, row: &TapExchange) {
        self.outside.add(row);
        self.client.add(row);
        if let Some(sampler) = &mut self.sampler {
            sampler.add(row);
        }
    }
}

/// What programs did as clients, over the whole run and wherever to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Connections on which connect was called.
    pub called: u64,
    /// Exchanges with an answer and no error.
    pub succeeded: u64,
    /// Bytes that programs handed to the kernel.
    pub sent_bytes: u64,
    /// Bytes that they took from it.
    pub received_bytes: u64,
}

impl ClientTotals {
    fn add(&mut self, row: &TapExchange) {
        if row.side != TapSide::Client || row.connection.is_none() {
            return;
        }
        self.called += u64::from(row.last);
        self.succeeded += u64::from(row.exchange.is_some() && row.outcome == TapOutcome::Succeeded);
        self.sent_bytes += row.sent_bytes;
        self.received_bytes += row.received_bytes;
    }
}

/// Connections that programs opened to elsewhere than the loopback, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Connections that were made.
    pub connections: u64,
    /// Bytes that programs handed to the kernel.
    pub sent_bytes: u64,
    /// Bytes that they took from it.
    pub received_bytes: u64,
}

impl Outside {
    fn add(&mut self, row: &TapExchange) {
        if row.side != TapSide::Client || row.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback()) {
            return;
        }
        let made = row.exchange.is_some() || row.outcome == TapOutcome::Unused;
        self.connections += u64::from(row.last && made);
        self.sent_bytes += row.sent_bytes;
        self.received_bytes += row.received_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_summed_whether_or_not_they_were_connected() {
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
        assert_eq!((sums.client, sums.outside), (client, Outside::default()), "the loopback is not outside");
    }
}
