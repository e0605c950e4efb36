//! The other end of a real gateway.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use anyhow::Result;
use gateway::tester::{Secret, ServerEvent, ServerSpec, serve};
use report::figures::plain;
use sys::signal::Interrupts;

use crate::args::GatewayServer;
use crate::exit::Exit;
use crate::terminal::say;
use crate::token::Token;

/// Serves as typed, until it is interrupted or what was typed is over.
pub fn run(typed: &GatewayServer) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let token = Token::find(typed.token_file.as_deref())?;
    let spec = ServerSpec {
        listen: typed.listen,
        secret: token.as_ref().map_or_else(Secret::none, |token| Secret::new(token.bytes())),
        sessions: typed.sessions,
        lasts: typed.duration,
    };
    serve(&spec, interrupts.as_fd(), &mut |told| say(line(&told, token.is_some())))?;
    Ok(Exit::Success)
}

fn line(told: &ServerEvent, with_token: bool) -> String {
    match told {
        ServerEvent::Listening { at } => {
            let guard = if with_token { "with the secret" } else { "on this host, without a secret" };
            let version = env!("CARGO_PKG_VERSION");
            format!("yamabiko {version}: listening on {at}, TCP and UDP, for `gateway client` {guard} (Ctrl-C ends it)")
        }
        ServerEvent::Begun { peer } => format!("{}: a session begins", of(peer)),
        ServerEvent::Ended { peer, how } => format!("{}: the session has ended: {}", of(peer), plain(how)),
        ServerEvent::Refused { peer, why, in_all } => {
            format!("refused {}: {} ({in_all} refused in all)", of(peer), plain(why))
        }
    }
}

/// As people write it, also where a socket of IPv6 speaks IPv4.
fn of(peer: &SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
