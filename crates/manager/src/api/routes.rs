//! The routes, defined once: for the router, and for the test that compares them with openapi.json.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, delete, get, post, put};

use super::State;

/// A router under construction, and its routes.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<State>,
    /// Method and path, as in openapi.json.
    known: Vec<(&'static str, &'static str)>,
}

/// Adds a route by a method.
macro_rules! by {
    ($name:ident, $method:literal) => {
        pub(super) fn $name<H, T>(self, path: &'static str, handler: H) -> Routes
        where
            H: Handler<T, State>,
            T: 'static,
        {
            self.add($method, path, $name(handler))
        }
    };
}

impl Routes {
    by!(get, "get");
    by!(put, "put");
    by!(post, "post");
    by!(delete, "delete");

    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<State>) -> Routes {
        self.router = self.router.route(path, handler);
        self.known.push((method, path));
        self
    }

    /// The router.
    pub(super) fn router(self) -> Router<State> {
        self.router
    }

    /// The routes.
    pub(super) fn known(&self) -> &[(&'static str, &'static str)] {
        &self.known
    }
}
