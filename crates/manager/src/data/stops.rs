//! Ends the work at a chosen point, as SIGKILL would: the error goes up past all that would tidy.

use std::sync::{Mutex, PoisonError};

use super::Point;
use crate::error::{Error, Result};

/// Where to stop; nowhere at first.
#[derive(Debug, Default)]
pub(crate) struct Stops(Mutex<Option<Point>>);

impl Stops {
    pub(crate) fn at(&self, point: Point) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    pub(super) fn reaches(&self, point: Point) -> Result<()> {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *wanted == Some(point) {
            *wanted = None;
            return Err(Error::Stopped(format!("{point:?}")));
        }
        Ok(())
    }
}
