//! Ends the work at a chosen point in tests, as SIGKILL would: the error skips all clean-up.

use std::sync::{Mutex, PoisonError};

use super::CrashPoint;
use crate::error::{Error, Result};

/// The point to stop at; none at first.
#[derive(Debug, Default)]
pub(crate) struct CrashPoints(Mutex<Option<CrashPoint>>);

impl CrashPoints {
    pub(crate) fn set(&self, point: CrashPoint) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    pub(super) fn crash_at(&self, point: CrashPoint) -> Result<()> {
        let mut chosen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *chosen == Some(point) {
            *chosen = None;
            return Err(Error::Stopped(format!("{point:?}")));
        }
        Ok(())
    }
}
