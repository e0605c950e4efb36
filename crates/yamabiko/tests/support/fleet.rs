//! A trial of agents and manager as real processes: programs under the agents' taps record their own exchanges, while
//! agents and manager are killed and the network is cut.
//!
//! ```text
//!   agents' network (cut at times)                                          manager's network
//!   talker client ─rings─▶ yamabiko tap agent (killed at times) ══ veth ══▶ yamabiko tap manager (killed at times)
//!      │   ▲   each agent has its own folder and data,                        │
//!      │   └ talker serve   some a wall clock with an error of minutes        ├─▶ days/*/*.parquet ─┐
//!      ▼                                                                      └─▶ index.sqlite ─────┤
//!   accounts: recorded exchanges of each program ────────────────────────────▶ readers/fleet.py ◀────┘
//! ```
//!
//! [`trial::Trial::run`] runs a trial. A Python script compares accounts and rows, with DuckDB and SQLite,
//! independently of agent and manager. The tests of `real_fleet` and `cargo xtask bench fleet` use this module, which
//! needs only std, nix, serde_json and tempfile.

#[path = "fleet/faults.rs"]
pub mod faults;
#[path = "fleet/networks.rs"]
pub mod networks;
#[path = "fleet/outcome.rs"]
pub mod outcome;
#[path = "fleet/parties.rs"]
pub mod parties;
#[path = "fleet/process.rs"]
pub mod process;
#[path = "fleet/trial.rs"]
pub mod trial;

use std::time::Duration;

/// An error of the trial itself.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of a step of a trial.
pub type Result<T> = std::result::Result<T, Error>;

/// Timeout of each step: far more than a step takes on a slow and busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);
