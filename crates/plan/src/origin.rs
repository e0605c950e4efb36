//! The origin of a cache benchmark, `[origin]`: behind the proxy under test, optionally with a link of its own.

use std::net::SocketAddr;

use ::path::AddressPlan;
use serde::{Deserialize, Serialize};

use super::{PathPlan, Plan};

/// An origin that the testbed starts in the clients' namespace, behind the proxy of `[server]`. On the path it is one more
/// client, to which the proxy connects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginPlan {
    /// Shell command; `yamabiko cache` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where the origin listens: the address after the last client's, and another port than the proxy's; absent: that address
    /// and port 8400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Link between origin and proxy; absent: no distance. A link that all clients share carries the origin's packets, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
}

impl OriginPlan {
    /// The default port; the doc comment of `listen` states its number.
    pub const PORT: u16 = 8400;

    /// Where the origin listens with this number of clients.
    pub fn at(&self, clients: u32) -> SocketAddr {
        let plan = AddressPlan { first_client: AddressPlan::FIRST_CLIENT, clients: clients.saturating_add(1) };
        self.listen.unwrap_or_else(|| SocketAddr::new(plan.address(clients).into(), Self::PORT))
    }

    /// Rejects contradictions.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let clients = plan.load.clients;
        if plan.path.is_none() || plan.server.is_none() {
            return Err(
                "[origin] is started behind the proxy of [server], on the path: give [path] and [server], too; \
                        without them start the origin yourself (yamabiko serve --workload), or by `yamabiko cache`"
                    .into(),
            );
        }
        if self.command.as_deref().is_none_or(|command| command.trim().is_empty()) {
            return Err("[origin] has no command: give one, such as yamabiko serve --workload ..".into());
        }
        if clients >= AddressPlan::CLIENTS_MAX {
            return Err(format!("{clients} clients leave no address for the origin: give at least one fewer"));
        }
        let expected = OriginPlan { listen: None, ..OriginPlan::default() }.at(clients).ip();
        let at = self.at(clients);
        if at.ip() != expected {
            return Err(format!(
                "[origin] listen = \"{at}\": on this path expected the address after the last client's, {}",
                SocketAddr::new(expected, at.port())
            ));
        }
        let Some(path) = &self.path else { return Ok(()) };
        if !path.changes.is_empty() {
            return Err("[origin.path] changes: the link of the origin cannot change; leave them out".into());
        }
        path.check().map_err(|why| format!("[origin.path]: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(origin: &str, clients: u32) -> Result<(), String> {
        let text = format!(
            "[load]\nurl = \"http://server/\"\nrequests = 1\nclients = {clients}\n[path]\nrtt = \"1ms\"\n[server]\ncommand = \"true\"\n\
             [origin]\n{origin}"
        );
        let plan = Plan::from_toml(&text, "test").map_err(|error| error.to_string())?;
        plan.check().map_err(|error| error.to_string())
    }

    #[test]
    fn origin_has_the_address_after_the_last_client() {
        let origin = OriginPlan::default();
        assert_eq!(origin.at(1).to_string(), "198.19.0.2:8400");
        assert_eq!(origin.at(255).to_string(), "198.19.1.0:8400");
        assert_eq!(plan("command = \"o\"", 65_533), Ok(()));
        assert!(plan("command = \"o\"", 65_534).unwrap_err().contains("no address for the origin"));
        assert_eq!(plan("command = \"o\"\nlisten = \"198.19.0.3:80\"", 2), Ok(()));
        let wrong = plan("command = \"o\"\nlisten = \"127.0.0.1:80\"", 2).unwrap_err();
        assert!(wrong.contains("198.19.0.3:80"), "{wrong}");
    }

    #[test]
    fn contradictory_origin_plans_are_rejected() {
        assert!(plan("", 2).unwrap_err().contains("command"));
        assert!(
            plan("command = \"o\"\n[origin.path]\nrtt = \"80ms\"\nqueue = \"9KB\"", 2)
                .unwrap_err()
                .contains("[origin.path]")
        );
        let text = "[load]\nurl = \"http://127.0.0.1/\"\nrequests = 1\n[origin]\ncommand = \"o\"";
        let refused = Plan::from_toml(text, "test").and_then(|plan| plan.check()).unwrap_err().to_string();
        assert!(refused.contains("[path] and [server]"), "{refused}");
    }
}
