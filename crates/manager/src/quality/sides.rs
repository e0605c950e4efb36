//! Sides of connections in a query.

use schema::TapSide;
use serde::{Deserialize, Serialize};

/// Sides of connections. Response times at clients and at servers differ in meaning: both together only on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sides {
    /// Programs that connect.
    #[default]
    Client,
    /// Programs that accept.
    Server,
    /// Both.
    Both,
}

impl Sides {
    /// Whether this side is included.
    pub fn has(self, side: &str) -> bool {
        match self {
            Sides::Client => side == TapSide::Client.as_str(),
            Sides::Server => side == TapSide::Server.as_str(),
            Sides::Both => true,
        }
    }
}
