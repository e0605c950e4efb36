//! The origin of a cache benchmark, `[origin]`: behind the proxy under test, perhaps with a link of its own.

use std::net::SocketAddr;

use ::path::AddressPlan;
use serde::{Deserialize, Serialize};

use super::{PathPlan, Plan};

/// An origin that the lab starts in the clients' namespace, behind a proxy that it starts, too (`[server]`): the path
/// carries what the proxy asks it for, as one more client that is called instead of calling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginPlan {
    /// Shell command; `yamabiko cache` gives its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where it listens: the address after the last client's, and a port that is not the proxy's; absent: that address and
    /// port 8400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Its own link, between it and the proxy; absent: no distance. A link that all clients share carries it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathPlan>,
}

impl OriginPlan {
    /// The port where the plan says none; the doc comment of `listen` has its number.
    pub const PORT: u16 = 8400;

    /// Where it listens beside so many clients.
    pub fn at(&self, clients: u32) -> SocketAddr {
        let plan = AddressPlan { first_client: AddressPlan::FIRST_CLIENT, clients: clients.saturating_add(1) };
        self.listen.unwrap_or_else(|| SocketAddr::new(plan.address(clients).into(), Self::PORT))
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), String> {
        let clients = plan.load.clients;
        if plan.path.is_none() || plan.server.is_none() {
            return Err("[origin] is started behind a proxy that the lab starts, on the path: [path] and [server] are wanted, too; \
                        without them start it yourself (yamabiko serve --workload), or let `yamabiko cache` do it"
                .into());
        }
        if self.command.as_deref().is_none_or(|command| command.trim().is_empty()) {
            return Err(
                "[origin] without a command starts nothing: give one, such as yamabiko serve --workload ..".into()
            );
        }
        if clients >= AddressPlan::CLIENTS_MAX {
            return Err(format!("{clients} clients leave no address for the origin: at least one fewer is possible"));
        }
        let wanted = OriginPlan { listen: None, ..OriginPlan::default() }.at(clients).ip();
        let at = self.at(clients);
        if at.ip() != wanted {
            return Err(format!(
                "[origin] listen = \"{at}\": on this path it has the address after the last client's, {}",
                SocketAddr::new(wanted, at.port())
            ));
        }
        let Some(path) = &self.path else { return Ok(()) };
        if !path.changes.is_empty() {
            return Err("[origin.path] changes: the origin's link stays as it is; leave them out".into());
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
    fn it_has_the_address_after_the_last_client() {
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
    fn what_it_cannot_be() {
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
