//! Errors of a run. The command's exit status follows from the kind.

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The plan is invalid, or its server fails. Exit status 1.
    #[error("{0}")]
    Plan(String),
    /// This machine lacks a feature; the message has the fix. Exit status 2.
    #[error("{0}")]
    Environment(String),
    /// The operating system failed for another reason. Exit status 2.
    #[error("{doing}: {source}")]
    System {
        /// The failed action.
        doing: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl TestbedError {
    /// An invalid plan.
    pub fn plan(error: impl std::fmt::Display) -> Self {
        TestbedError::Plan(error.to_string())
    }

    /// An unsuitable machine.
    pub fn environment(error: impl std::fmt::Display) -> Self {
        TestbedError::Environment(error.to_string())
    }

    /// Adapter for `map_err`: names the failed action.
    pub fn system(doing: &str) -> impl FnOnce(std::io::Error) -> TestbedError {
        let doing = doing.to_owned();
        move |source| TestbedError::System { doing, source }
    }
}

impl From<plan::PlanError> for TestbedError {
    fn from(error: plan::PlanError) -> Self {
        TestbedError::plan(error)
    }
}

impl From<path::ProfileError> for TestbedError {
    fn from(error: path::ProfileError) -> Self {
        TestbedError::plan(error)
    }
}
