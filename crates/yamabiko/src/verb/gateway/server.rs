//! `yamabiko gateway server`: the server behind a real gateway that `yamabiko gateway client` measures.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use anyhow::Result;
use gateway::tester::{Secret, ServerEvent, ServerSpec, serve};
use report::figures::plain;
use sys::signal::Interrupts;

use crate::args::GatewayServer;
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::token::Token;

/// Serves until Ctrl-C, or until the given number of sessions or duration is over.
pub fn run(arguments: &GatewayServer) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let token = Token::find(arguments.token_file.as_deref())?;
    let spec = ServerSpec {
        listen: arguments.listen,
        secret: token.as_ref().map_or_else(Secret::none, |token| Secret::new(token.bytes())),
        sessions: arguments.sessions,
        lasts: arguments.duration,
    };
    serve(&spec, interrupts.as_fd(), &mut |event| print_message(line(&event, token.is_some())))?;
    Ok(Exit::Success)
}

fn line(event: &ServerEvent, with_token: bool) -> String {
    match event {
        ServerEvent::Listening { at } => {
            let guard = if with_token { "with the secret" } else { "on this host, without a secret" };
            let version = env!("CARGO_PKG_VERSION");
            format!("yamabiko {version}: listening on {at}, TCP and UDP, for `gateway client` {guard} (Ctrl-C ends it)")
        }
        ServerEvent::Begun { peer } => format!("{}: a session begins", unmapped(peer)),
        ServerEvent::Ended { peer, how } => format!("{}: the session has ended: {}", unmapped(peer), plain(how)),
        ServerEvent::Refused { peer, why, in_all } => {
            format!("refused {}: {} ({in_all} refused in all)", unmapped(peer), plain(why))
        }
    }
}

/// A peer's address, with an IPv4-mapped IPv6 address as IPv4.
fn unmapped(peer: &SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
