//! A link of the gateway, in words.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::emulation::LinkWords;
use serde::{Deserialize, Serialize};
use units::time::text::exact;
use units::{BitRate, Bytes, Limit, Probability, parse_duration};

/// What one of the gateway's two links does, each way; the other one does the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Link {
    /// Its rate; unlimited: as fast as this machine carries packets.
    pub rate: Limit<BitRate>,
    /// What waits in front of it at most, where it has a rate.
    pub queue: Bytes,
    /// Loss of each packet.
    pub loss: Probability,
    /// It takes so long there and back: 1 s at most.
    pub rtt: Duration,
}

/// In front of a link with a rate.
const QUEUE: Bytes = LinkWords::QUEUE;
/// A full packet must find room.
const QUEUE_MIN: Bytes = Bytes(1_500);
/// Through both links it takes twice as long, and whoever connects waits 5 s, whoever waits for a first datagram 3 s: a longer way
/// would look like none.
const RTT_MAX: Duration = Duration::from_secs(1);

const WANTED: &str =
    "a link is written like 10Mbit, unlimited or '10Mbit,queue=64KiB,loss=1%,rtt=2ms': a rate first, then what differs";

impl Link {
    /// As fast as this machine carries packets.
    pub const UNLIMITED: Link =
        Link { rate: Limit::Unlimited, queue: QUEUE, loss: Probability::ZERO, rtt: Duration::ZERO };

    /// With this rate and nothing else.
    pub const fn of(rate: BitRate) -> Link {
        Link { rate: Limit::At(rate), ..Link::UNLIMITED }
    }

    /// As the lab has it.
    pub fn words(&self) -> LinkWords {
        LinkWords { rate: self.rate, queue: self.queue, loss: self.loss, delay: self.rtt / 2 }
    }

    /// Bits a second; none where there is no limit.
    pub fn bits_per_s(&self) -> Option<f64> {
        self.rate.value().map(|rate| rate.bits_per_second() as f64)
    }
}

/// Links as typed on one line: a comma before a rate or `unlimited` begins the next, one before `name=value` goes on with the same.
///
/// # Errors
/// One sentence.
pub fn links(typed: &str) -> Result<Vec<Link>, String> {
    let mut each: Vec<String> = Vec::new();
    for word in typed.split(',') {
        match each.last_mut() {
            Some(link) if word.contains('=') => {
                link.push(',');
                link.push_str(word);
            }
            _ => each.push(word.to_owned()),
        }
    }
    each.iter().map(|link| link.parse()).collect()
}

impl FromStr for Link {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let mut words = typed.split(',').map(str::trim);
        let first = words.next().unwrap_or_default();
        let mut link = match first {
            "unlimited" => Link::UNLIMITED,
            "" => return Err(WANTED.to_owned()),
            rate if rate.contains('=') => return Err(format!("`{rate}` comes before the rate; {WANTED}")),
            rate => Link::of(rate.parse::<BitRate>().map_err(|error| format!("{error}, or unlimited"))?),
        };
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: {WANTED}"))?;
            let value = value.trim();
            match name.trim() {
                "queue" if link.rate == Limit::Unlimited => {
                    return Err("nothing waits in front of a link without a rate: leave queue out".to_owned());
                }
                "queue" => link.queue = value.parse().map_err(|error| format!("queue: {error}"))?,
                "loss" => link.loss = value.parse().map_err(|error| format!("loss: {error}"))?,
                "rtt" => link.rtt = parse_duration(value).map_err(|error| format!("rtt: {error}"))?,
                other => return Err(format!("a link has no `{other}`; {WANTED}")),
            }
        }
        if link.queue < QUEUE_MIN {
            return Err(format!("queue={}: a full packet of {QUEUE_MIN} must find room", link.queue));
        }
        if link.rtt > RTT_MAX {
            return Err("rtt: at most 1s".to_owned());
        }
        if link.loss.value() >= 1.0 {
            return Err("loss: of a link that loses everything nothing is to be measured".to_owned());
        }
        Ok(link)
    }
}

impl TryFrom<String> for Link {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse().map_err(|why| format!("link `{typed}`: {why}"))
    }
}

impl From<Link> for String {
    fn from(link: Link) -> String {
        link.to_string()
    }
}

impl fmt::Display for Link {
    /// Reads back to the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Limit::At(rate) => write!(f, "{rate}")?,
            Limit::Unlimited => f.write_str("unlimited")?,
        }
        if self.queue != QUEUE {
            write!(f, ",queue={}", self.queue)?;
        }
        if self.loss != Probability::ZERO {
            write!(f, ",loss={}", self.loss)?;
        }
        if !self.rtt.is_zero() {
            write!(f, ",rtt={}", exact(self.rtt))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_links_is_cut_where_a_rate_begins() {
        let read = links("10Mbit,queue=64KB,loss=1%,rtt=2ms,unlimited,100Mbit").unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!((read[0].queue, read[0].loss.value(), read[0].rtt), (Bytes(64_000), 0.01, Duration::from_millis(2)));
        assert_eq!(read[1], Link::UNLIMITED);
        assert_eq!(read[2], Link { queue: QUEUE, ..Link::of(BitRate::from_bits_per_second(100_000_000).unwrap()) });
    }

    #[test]
    fn what_is_printed_reads_back() {
        for typed in ["unlimited", "10Mbit", "10Mbit,queue=1500B,loss=0.5,rtt=1500us", "unlimited,loss=0.001,rtt=1s"] {
            let link: Link = typed.parse().unwrap();
            assert_eq!(link.to_string().parse(), Ok(link), "{typed}");
        }
        assert_eq!("10Mbit,queue=64KiB".parse::<Link>().unwrap().to_string(), "10Mbit");
    }

    #[test]
    fn what_is_no_link_is_refused() {
        for wrong in [
            "",
            "10",
            "fast",
            "loss=1%",
            "10Mbit,loss",
            "10Mbit,delay=1ms",
            "10Mbit,queue=1499B",
            "10Mbit,loss=100%",
            "10Mbit,rtt=1001ms",
            "unlimited,queue=64KB",
            "10Mbit,,rtt=1ms",
        ] {
            assert!(wrong.parse::<Link>().is_err(), "{wrong}");
        }
        assert!(links("10Mbit,,1Mbit").is_err());
    }
}
