//! The five conditions of the school gateway paper.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Functions of the gateway besides forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Condition {
    /// Forwarding only.
    None,
    /// Address translation.
    Nat,
    /// Address translation and an idle proxy.
    NatProxyIdle,
    /// Address translation and a loaded proxy.
    NatProxyLoaded,
    /// A loaded proxy without address translation.
    ProxyLoaded,
}

impl Condition {
    /// All, in the order of the paper.
    pub const ALL: [Condition; 5] =
        [Condition::None, Condition::Nat, Condition::NatProxyIdle, Condition::NatProxyLoaded, Condition::ProxyLoaded];

    /// Name on the command line and in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::None => "none",
            Condition::Nat => "nat",
            Condition::NatProxyIdle => "nat-proxy-idle",
            Condition::NatProxyLoaded => "nat-proxy-loaded",
            Condition::ProxyLoaded => "proxy-loaded",
        }
    }

    /// Number in the paper, from 1.
    pub const fn number(self) -> u8 {
        match self {
            Condition::None => 1,
            Condition::Nat => 2,
            Condition::NatProxyIdle => 3,
            Condition::NatProxyLoaded => 4,
            Condition::ProxyLoaded => 5,
        }
    }

    /// Whether addresses are translated.
    pub const fn nat(self) -> bool {
        matches!(self, Condition::Nat | Condition::NatProxyIdle | Condition::NatProxyLoaded)
    }

    /// Whether a proxy runs.
    pub const fn proxy(self) -> bool {
        matches!(self, Condition::NatProxyIdle | Condition::NatProxyLoaded | Condition::ProxyLoaded)
    }

    /// Whether the proxy is loaded.
    pub const fn loaded(self) -> bool {
        matches!(self, Condition::NatProxyLoaded | Condition::ProxyLoaded)
    }
}

impl FromStr for Condition {
    type Err = String;

    /// Parses a name, or the paper's number.
    fn from_str(typed: &str) -> Result<Self, String> {
        let typed = typed.trim();
        let known = |condition: &Condition| condition.name() == typed || condition.number().to_string() == typed;
        Condition::ALL.into_iter().find(known).ok_or_else(|| {
            let names = Condition::ALL.map(Condition::name).join(", ");
            format!("not a valid condition; expected one of {names}, or 1 to 5, the paper's numbers")
        })
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse().map_err(|why| format!("`{typed}`: {why}"))
    }
}

impl From<Condition> for String {
    fn from(condition: Condition) -> String {
        condition.name().to_owned()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_parsed_from_names_and_numbers() {
        for (at, condition) in Condition::ALL.into_iter().enumerate() {
            assert_eq!(condition.to_string().parse(), Ok(condition));
            assert_eq!((at + 1).to_string().parse(), Ok(condition));
        }
        for wrong in ["0", "6", "NAT", "", "proxy"] {
            assert!(wrong.parse::<Condition>().unwrap_err().contains("nat-proxy-idle"), "{wrong}");
        }
        assert!(Condition::ProxyLoaded.proxy() && !Condition::ProxyLoaded.nat());
        assert!(!Condition::NatProxyIdle.loaded());
    }
}
