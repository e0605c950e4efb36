//! Where the rows of an agent go, and the connection to it.

use std::path::PathBuf;
use std::time::Duration;

use broker::{Publisher, StreamAddress};
use http::Uri;
use http::header::AUTHORIZATION;
use tap_protocol::is_name;
use web::post::{Post, Receiver as Address, Roots, is_loopback};

use crate::link::{HttpLink, Link};
use crate::log_link::{LogLink, PAYLOAD_MAX};
use crate::{AgentError, token};

/// Where the rows of an agent go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// To a manager.
    Manager(ManagerAddress),
    /// Into a stream of NATS, from which managers read.
    Stream {
        /// The stream.
        address: StreamAddress,
        /// The agent's name.
        name: String,
    },
}

impl Destination {
    /// Its address, without secrets.
    pub fn text(&self) -> String {
        match self {
            Destination::Manager(manager) => manager.url.clone(),
            Destination::Stream { address, .. } => address.to_string(),
        }
    }
}

/// A manager, and what proves the agent's name to it.
#[derive(Clone, Debug)]
pub struct ManagerAddress {
    /// The manager's URL. http:// only on loopback.
    pub url: String,
    /// File of the token.
    pub token: PathBuf,
    /// Certificates to trust; absent: those of the system.
    pub ca: Option<PathBuf>,
}

/// The agent's name, and its connection to where the rows go.
pub(crate) fn link_of(to: &Destination) -> Result<(String, Box<dyn Link + Send>), AgentError> {
    match to {
        Destination::Manager(manager) => {
            let manager = ManagerAddress { url: base(&manager.url)?, ..manager.clone() };
            let token = token::read(&manager.token)?;
            let name = token.name.clone();
            let post = post(&manager, token)?;
            let of_agent = name.clone();
            let reconnect = Box::new(move || reconnect(&manager, &of_agent).map_err(|error| error.to_string()));
            let link = HttpLink::new(post, &name, reconnect);
            Ok((name, Box::new(link)))
        }
        Destination::Stream { address, name } => {
            if !is_name(name) {
                return Err(AgentError::Plan(format!(
                    "{} cannot be the name of an agent: give --name, 1 to 63 of a-z, 0-9, -, . and _, the first a letter or digit",
                    units::printable(name)
                )));
            }
            let failed = |source| AgentError::Io { what: "starting a thread".into(), source };
            let client = format!("yamabiko tap agent {name}");
            let publisher = Publisher::new(address.clone(), client, PAYLOAD_MAX).map_err(failed)?;
            Ok((name.clone(), Box::new(LogLink::new(publisher, address.stream().to_owned(), name.clone()))))
        }
    }
}

fn post(manager: &ManagerAddress, token: token::Token) -> Result<Post, AgentError> {
    let roots = manager.ca.clone().map_or(Roots::System, Roots::File);
    let headers = vec![(AUTHORIZATION, token.header)];
    Ok(Post::new(Address { url: manager.url.clone(), headers, roots, timeout: RESPONSE_TIMEOUT })?)
}

/// Creates the HTTP client again, with the current token and certificates.
fn reconnect(manager: &ManagerAddress, name: &str) -> Result<Post, AgentError> {
    let token = token::read(&manager.token)?;
    if token.name != name {
        let why = format!(
            "{} contains the token of another agent now: restart this agent to use that name",
            manager.token.display()
        );
        return Err(AgentError::Plan(why));
    }
    post(manager, token)
}

/// Checks the manager's URL; the API paths are appended to the result.
///
/// # Errors
/// The URL is invalid.
pub fn base(url: &str) -> Result<String, AgentError> {
    let invalid = |why: &str| AgentError::Plan(format!("--manager: {why}"));
    let uri: Uri = url.parse().map_err(|_| {
        invalid(
            "not a valid URL: expected for example \
     https://manager.example:7443/",
        )
    })?;
    if uri.host().is_none_or(str::is_empty) || !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(invalid("not a complete URL: expected for example https://manager.example:7443/"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
        return Err(invalid("the URL may have neither a user nor a query: the token is read from --token FILE"));
    }
    if uri.scheme_str() == Some("http") && !is_loopback(url) {
        return Err(invalid(
            "http is accepted for loopback only, since the token would be readable on the way: use https, with --ca \
             FILE for a self-signed certificate of the manager",
        ));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Timeout of one request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_urls_must_be_https_or_loopback() {
        for (typed, url) in [
            ("https://manager.example:7443/", "https://manager.example:7443"),
            ("https://manager.example/taps/", "https://manager.example/taps"),
            ("http://127.0.0.1:80", "http://127.0.0.1:80"),
            ("http://[::1]:80/", "http://[::1]:80"),
        ] {
            assert_eq!(base(typed).unwrap(), url);
        }
        for invalid in
            ["", "manager:7443", "ftp://m/", "http://192.0.2.1/", "https://u:p@m/", "https://m/?a=b", "https://"]
        {
            let error = base(invalid).unwrap_err().to_string();
            assert!(error.starts_with("--manager"), "{invalid}: {error}");
        }
    }
}
