//! All tests of the running server, over epoll.

use crate::Engine;

const ENGINE: Engine = Engine::Epoll;

#[path = "../tests.rs"]
mod tests;
