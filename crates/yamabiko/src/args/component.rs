//! Hidden arguments `serve --component`: one component of a server alone, which `predict --components` measures.

use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use units::{Bytes, parse_duration};

#[derive(Args, Debug)]
pub struct ComponentOptions {
    /// Repeat one component of a server in this folder, and print its cost; `exchange` serves
    #[arg(long, value_enum, value_name = "COMPONENT", requires = "dir", conflicts_with = "only", hide = true)]
    pub component: Option<ComponentAlone>,
    /// Bytes of a file, head or response
    #[arg(long, value_name = "SIZE", default_value = "0B", requires = "component", hide = true)]
    pub component_bytes: Bytes,
    /// Rounds
    #[arg(long, value_name = "NUMBER", default_value_t = 5, requires = "component", hide = true)]
    pub component_rounds: u32,
    /// CPU time of a round
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration, requires = "component", hide = true)]
    pub component_time: Duration,
    /// How `exchange` waits
    #[arg(long, value_enum, default_value_t = ComponentWaits::Epoll, requires = "component", hide = true)]
    pub component_waits: ComponentWaits,
    /// Send a file by sendfile in `exchange`, instead of sending from memory
    #[arg(long, requires = "component", hide = true)]
    pub component_sendfile: bool,
    /// Close after each response in `exchange`
    #[arg(long, requires = "component", hide = true)]
    pub component_close: bool,
}

/// Named as in the crate that implements them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentAlone {
    /// A component without network.
    Local(serve::LocalComponent),
    /// The component that serves.
    Exchange,
}

impl ValueEnum for ComponentAlone {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ComponentAlone; serve::LocalComponent::ALL.len() + 1] = {
            let mut all = [ComponentAlone::Exchange; serve::LocalComponent::ALL.len() + 1];
            let mut at = 0;
            while at < serve::LocalComponent::ALL.len() {
                all[at] = ComponentAlone::Local(serve::LocalComponent::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            ComponentAlone::Local(part) => part.name(),
            ComponentAlone::Exchange => "exchange",
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ComponentWaits {
    Epoll,
    #[value(name = "io_uring")]
    Uring,
    Threads,
}

impl From<ComponentWaits> for serve::WaitMode {
    fn from(mode: ComponentWaits) -> Self {
        match mode {
            ComponentWaits::Epoll => serve::WaitMode::Epoll,
            ComponentWaits::Uring => serve::WaitMode::Uring,
            ComponentWaits::Threads => serve::WaitMode::Threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The experiment uses the names of the crate that implements the components.
    #[test]
    fn components_are_typed_by_name() {
        for part in serve::LocalComponent::ALL {
            assert_eq!(ComponentAlone::from_str(part.name(), false), Ok(ComponentAlone::Local(part)));
        }
        assert_eq!(ComponentAlone::from_str("exchange", false), Ok(ComponentAlone::Exchange));
    }
}
