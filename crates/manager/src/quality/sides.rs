//! Which ends of connections a question is about.

use schema::TapSide;
use serde::{Deserialize, Serialize};

/// Ends of connections. A client's times and a server's own time are two things: both together only where that is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// Those that connect.
    #[default]
    Client,
    /// Those that accept.
    Server,
    /// Both.
    Both,
}

impl Sides {
    /// Whether an end of this name is meant.
    pub fn has(self, side: &str) -> bool {
        match self {
            Sides::Client => side == TapSide::Client.as_str(),
            Sides::Server => side == TapSide::Server.as_str(),
            Sides::Both => true,
        }
    }
}
