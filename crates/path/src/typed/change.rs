//! Textual form of changes: time, duration, links, property.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::time::text::exact;
use units::{Probability, parse_duration};

use crate::spec::{ChangeKind, Factor};

/// A change of the path at a given time. On a command line `AT [for TIME] [in [shared] [CLASS]]: WHAT`, where WHAT is
/// `outage`, `rtt x2`, `rate x0.5`, `loss 5%`, `rebind` or `migrate`; in files a table, `{ at = "10s", for = "3s", outage = true }`.
///
/// Without `in` it applies to every client's own links; `in far` to those of the class of this name (or number, from
/// 1); `in shared` to the link that all clients share; `in shared far` to the link that the class shares.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChange {
    /// When the change begins, from the start of the measured phase.
    pub at: Duration,
    /// Duration of the change; `None`: to the end.
    pub duration: Option<Duration>,
    /// A class, by name or by number counted from 1; `None`: all.
    pub class: Option<String>,
    /// The link that the clients share, instead of their own links.
    pub shared: bool,
    /// The property that changes.
    pub kind: ChangeKind,
}

const EXPECTED_FORM: &str = "a change is written AT [for TIME] [in [shared] [CLASS]]: WHAT, where WHAT is outage, rtt x2, \
                      rate x0.5, loss 5%, rebind or migrate; such as 10s for 3s: outage";

impl FromStr for PlannedChange {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("`{typed}`: {why}; {EXPECTED_FORM}");
        let (when, what) = typed.split_once(':').ok_or_else(|| wrong("a colon is missing".into()))?;
        let mut words = when.split_whitespace().peekable();
        let time = |word: Option<&str>, after: &str| {
            let word = word.ok_or_else(|| wrong(format!("a time is missing {after}")))?;
            parse_duration(word).map_err(|error| wrong(error.to_string()))
        };
        let at = time(words.next(), "before the colon")?;
        let duration = match words.next_if_eq(&"for") {
            Some(_) => Some(time(words.next(), "after `for`")?),
            None => None,
        };
        let (mut class, mut shared) = (None, false);
        if words.next_if_eq(&"in").is_some() {
            shared = words.next_if_eq(&"shared").is_some();
            class = words.next().map(str::to_owned);
            if class.is_none() && !shared {
                return Err(wrong("a class or `shared` is missing after `in`".into()));
            }
        }
        if let Some(word) = words.next() {
            return Err(wrong(format!("`{word}` is unknown")));
        }
        let kind = match what.split_whitespace().collect::<Vec<_>>()[..] {
            ["outage"] => ChangeKind::Outage,
            ["rebind"] => ChangeKind::Rebind,
            ["migrate"] => ChangeKind::Migrate,
            ["rtt", by] => ChangeKind::Delay(factor(by).map_err(wrong)?),
            ["rate", by] => ChangeKind::Rate(factor(by).map_err(wrong)?),
            ["loss", loss] => {
                ChangeKind::Loss(loss.parse().map_err(|error: units::ParseError| wrong(error.to_string()))?)
            }
            _ => return Err(wrong(format!("`{}` is not a valid change", what.trim()))),
        };
        let change = PlannedChange { at, duration, class, shared, kind };
        change.check().map_err(wrong)?;
        Ok(change)
    }
}

impl PlannedChange {
    fn check(&self) -> Result<(), String> {
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err("the duration is 0; it must be above 0".into());
        }
        if let ChangeKind::Rebind | ChangeKind::Migrate = self.kind
            && (self.shared || self.duration.is_some())
        {
            return Err("clients change their addresses once, each on its own: leave `for` and `shared` out".into());
        }
        if self.shared && matches!(self.kind, ChangeKind::Delay(_)) {
            return Err("a shared link has no RTT of its own; change the RTT of its clients".into());
        }
        match &self.class {
            Some(name) => name_of_class(name),
            None => Ok(()),
        }
    }
}

/// Rejects names that could be confused with keywords of a change.
pub(crate) fn name_of_class(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    match name {
        "" | "shared" => Err(format!("`{name}` cannot be the name of a class")),
        _ if !name.chars().all(plain) => {
            Err(format!("`{name}` is not a valid class name; use letters, digits, -, _ and ."))
        }
        _ => Ok(()),
    }
}

fn factor(typed: &str) -> Result<Factor, String> {
    // A bare number could be meant as an RTT or a rate.
    let is_marked = typed.contains(['x', 'X', '×', '%']);
    Some(typed)
        .filter(|_| is_marked)
        .and_then(|typed| units::parse_factor(typed).ok())
        .and_then(Factor::new)
        .ok_or_else(|| {
            format!("`{typed}` is not a factor; it is written like 2x, x0.5 or 50%, from 0.000001x to 1000000x")
        })
}

impl fmt::Display for PlannedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&exact(self.at))?;
        if let Some(duration) = self.duration {
            write!(f, " for {}", exact(duration))?;
        }
        match (self.shared, &self.class) {
            (false, None) => {}
            (true, None) => f.write_str(" in shared")?,
            (false, Some(class)) => write!(f, " in {class}")?,
            (true, Some(class)) => write!(f, " in shared {class}")?,
        }
        match self.kind {
            ChangeKind::Outage => f.write_str(": outage"),
            ChangeKind::Rebind => f.write_str(": rebind"),
            ChangeKind::Migrate => f.write_str(": migrate"),
            ChangeKind::Delay(factor) => write!(f, ": rtt x{}", factor.value()),
            ChangeKind::Rate(factor) => write!(f, ": rate x{}", factor.value()),
            ChangeKind::Loss(loss) => write!(f, ": loss {loss}"),
        }
    }
}

/// The table in files.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(with = "units::time::text")]
    at: Duration,
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    duration: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clients: Option<Class>,
    #[serde(default, skip_serializing_if = "is_false")]
    shared: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    outage: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    rebind: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    migrate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rtt: Option<FactorTyped>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<FactorTyped>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Probability>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A class by name or number.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "clients is the name of a class, or its number counted from 1")]
enum Class {
    Number(u32),
    Name(String),
}

struct FactorTyped(Factor);

impl Serialize for FactorTyped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("x{}", self.0.value()))
    }
}

impl<'de> Deserialize<'de> for FactorTyped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        factor(&String::deserialize(deserializer)?).map(FactorTyped).map_err(D::Error::custom)
    }
}

impl Serialize for PlannedChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = Table {
            at: self.at,
            duration: self.duration,
            clients: self.class.clone().map(Class::Name),
            shared: self.shared,
            ..Table::default()
        };
        match self.kind {
            ChangeKind::Outage => table.outage = true,
            ChangeKind::Rebind => table.rebind = true,
            ChangeKind::Migrate => table.migrate = true,
            ChangeKind::Delay(factor) => table.rtt = Some(FactorTyped(factor)),
            ChangeKind::Rate(factor) => table.rate = Some(FactorTyped(factor)),
            ChangeKind::Loss(loss) => table.loss = Some(loss),
        }
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PlannedChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Table::deserialize(deserializer)?;
        let kinds = [
            table.outage.then_some(ChangeKind::Outage),
            table.rebind.then_some(ChangeKind::Rebind),
            table.migrate.then_some(ChangeKind::Migrate),
            table.rtt.map(|factor| ChangeKind::Delay(factor.0)),
            table.rate.map(|factor| ChangeKind::Rate(factor.0)),
            table.loss.map(ChangeKind::Loss),
        ];
        let [Some(kind)] = kinds.into_iter().filter(Option::is_some).collect::<Vec<_>>()[..] else {
            return Err(D::Error::custom(
                "a change is one of: outage = true, rtt = \"x2\", rate = \"x0.5\", loss = \"5%\", rebind = true, migrate = true",
            ));
        };
        let class = table.clients.map(|class| match class {
            Class::Number(number) => number.to_string(),
            Class::Name(name) => name,
        });
        let change = PlannedChange { at: table.at, duration: table.duration, class, shared: table.shared, kind };
        change.check().map_err(D::Error::custom)?;
        Ok(change)
    }
}
