//! All tests of the running server, over io_uring.

use crate::Engine;

const ENGINE: Engine = Engine::Uring;

#[path = "../tests.rs"]
mod tests;
