//! Which rows are sent, and what stands for an address in them. After this nothing knows what was left out.

use std::net::IpAddr;

use ring::hmac;
use schema::TapExchange;
use stats::Rng;
use tap::Only;
use tap::filter::service_port;

use schema::{TapAddress, TapRow};
use tap_protocol::Settings;

/// Chooses by the settings, and makes rows of what is chosen.
#[derive(Debug)]
pub(crate) struct Chooser {
    only: Vec<Only>,
    programs: Vec<String>,
    share: f64,
    seed: u64,
    key: Option<hmac::Key>,
}

/// What became of an exchange.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum Choice {
    /// It is sent.
    Row(TapRow),
    /// The filter leaves it out.
    Filtered,
    /// Its connection was not drawn.
    NotDrawn,
}

impl Chooser {
    /// Goes by `settings`; draws connections by `seed`; hashes addresses under `key`, where there is one.
    pub fn new(settings: &Settings, seed: u64, key: Option<&[u8; 32]>) -> Chooser {
        let key = key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, key));
        let mut chooser = Chooser { only: Vec::new(), programs: Vec::new(), share: 1.0, seed, key };
        chooser.go_by(settings);
        chooser
    }

    /// From now on these count. What [`check`] refuses is not meant to come here: of it nothing is sent that was not asked for.
    pub fn go_by(&mut self, settings: &Settings) {
        self.only = settings.only.iter().filter_map(|typed| typed.parse().ok()).collect();
        self.programs.clone_from(&settings.programs);
        self.share = settings.share;
    }

    /// What becomes of `exchange`. All rows of a connection are drawn, or none.
    pub fn choose(&self, exchange: &TapExchange) -> Choice {
        let port = service_port(exchange);
        let meant = self.only.is_empty() || self.only.iter().any(|only| only.matches(exchange.peer, port));
        let named = || exchange.program.as_deref().is_some_and(|name| self.programs.iter().any(|one| one == name));
        if !meant || !(self.programs.is_empty() || named()) {
            return Choice::Filtered;
        }
        if self.share < 1.0 {
            // A lookup without a connection is drawn by itself.
            let number = exchange.connection.unwrap_or(exchange.opened_at.as_nanos() ^ (u64::from(exchange.pid) << 40));
            if Rng::new(self.seed, number).uniform() >= self.share {
                return Choice::NotDrawn;
            }
        }
        Choice::Row(TapRow::of(exchange, &|ip| self.address(ip)))
    }

    fn address(&self, ip: IpAddr) -> TapAddress {
        // The same machine has the same hash, whichever way its address was written.
        let ip = ip.to_canonical();
        let Some(key) = &self.key else { return TapAddress::Plain(ip) };
        let tag = match ip {
            IpAddr::V4(ip) => hmac::sign(key, &ip.octets()),
            IpAddr::V6(ip) => hmac::sign(key, &ip.octets()),
        };
        let first = tag.as_ref().first_chunk::<8>().expect("SHA-256 has 32 bytes");
        TapAddress::Hashed(u64::from_be_bytes(*first))
    }
}

/// Whether settings can be gone by.
///
/// # Errors
/// What is wrong with them, in words.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    if !(settings.share > 0.0 && settings.share <= 1.0) {
        return Err(format!("a share of {} is not above 0 and at most 1", settings.share));
    }
    if settings.version == 0 {
        return Err("their version is 0".to_owned());
    }
    match settings.only.iter().find_map(|typed| typed.parse::<Only>().err()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::TapSide;

    fn exchange(connection: u64) -> TapExchange {
        TapExchange {
            connection: Some(connection),
            peer: Some("192.0.2.7:443".parse().unwrap()),
            local: Some("[::ffff:192.0.2.1]:50000".parse().unwrap()),
            program: Some("curl".into()),
            side: TapSide::Client,
            ..TapExchange::BLANK
        }
    }

    fn settings(only: &[&str], programs: &[&str], share: f64) -> Settings {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Settings { version: 2, only: owned(only), programs: owned(programs), share }
    }

    #[test]
    fn a_row_is_left_out_by_peer_port_and_program() {
        for (only, programs, is_chosen) in [
            (&[][..], &[][..], true),
            (&["443"], &[], true),
            (&["80", "192.0.2.0/24"], &["wget", "curl"], true),
            (&["80"], &[], false),
            (&[], &["wget"], false),
            (&["443"], &["cur"], false),
        ] {
            let chooser = Chooser::new(&settings(only, programs, 1.0), 1, None);
            let choice = chooser.choose(&exchange(1));
            assert_eq!(matches!(choice, Choice::Row(_)), is_chosen, "{only:?} {programs:?}");
        }
        let lookup = TapExchange { connection: None, peer: None, local: None, ..exchange(1) };
        assert_eq!(Chooser::new(&settings(&["443"], &[], 1.0), 1, None).choose(&lookup), Choice::Filtered);
    }

    #[test]
    fn whole_connections_are_drawn_as_often_as_they_should() {
        let chooser = Chooser::new(&settings(&[], &[], 0.25), 7, None);
        let is_drawn = |number| matches!(chooser.choose(&exchange(number)), Choice::Row(_));
        let drawn = (0..10_000).filter(|number| is_drawn(*number)).count();
        // Three standard deviations are 130.
        assert!((2_350..2_650).contains(&drawn), "{drawn}");
        assert!((0..1_000).all(|number| is_drawn(number) == is_drawn(number)));
        // More of them holds those that fewer had: the operator may widen the view without losing a connection.
        let wider = Chooser::new(&settings(&[], &[], 0.5), 7, None);
        let both = |number| !is_drawn(number) || matches!(wider.choose(&exchange(number)), Choice::Row(_));
        assert!((0..1_000).all(both));
    }

    #[test]
    fn a_hash_tells_addresses_apart_and_nothing_else() {
        let hashed = |key: &[u8; 32]| {
            let Choice::Row(row) = Chooser::new(&Settings::default(), 1, Some(key)).choose(&exchange(1)) else {
                panic!()
            };
            (row.peer.unwrap(), row.local.unwrap())
        };
        let (peer, own) = hashed(&[1; 32]);
        assert_eq!((peer.port, own.port), (443, 50_000));
        assert!(matches!((peer.address, own.address), (TapAddress::Hashed(a), TapAddress::Hashed(b)) if a != b));
        assert_eq!(hashed(&[1; 32]), (peer.clone(), own.clone()));
        assert_ne!(hashed(&[2; 32]).0, peer);
        // One written as IPv6 and as IPv4 is one.
        let chooser = Chooser::new(&Settings::default(), 1, Some(&[1; 32]));
        assert_eq!(chooser.address("192.0.2.1".parse().unwrap()), own.address);
        // HMAC-SHA-256 of the four bytes under 32 times 1, by another program.
        assert_eq!(own.address.to_string(), "h:6cf5eedfd3530cb1");
    }

    #[test]
    fn settings_that_cannot_be_gone_by_are_refused() {
        assert_eq!(check(&settings(&["443"], &["curl"], 0.001)), Ok(()));
        for wrong in [
            settings(&[], &[], 0.0),
            settings(&[], &[], 1.01),
            settings(&[], &[], f64::NAN),
            settings(&["x"], &[], 1.0),
        ] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
        assert!(check(&Settings { version: 0, ..Settings::default() }).is_err());
    }
}
