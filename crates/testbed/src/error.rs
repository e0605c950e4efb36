//! Why a run could not be made. The command's exit status follows from the kind.

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The plan asks for what cannot be, or its server does not do its part. Exit status 1.
    #[error("{0}")]
    Plan(String),
    /// This machine lacks something; the message says how to mend it. Exit status 2.
    #[error("{0}")]
    Environment(String),
    /// The operating system failed in a way that is nobody's plan. Exit status 2.
    #[error("{doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl LabError {
    /// A plan at fault.
    pub fn plan(error: impl std::fmt::Display) -> Self {
        LabError::Plan(error.to_string())
    }

    /// A machine at fault.
    pub fn environment(error: impl std::fmt::Display) -> Self {
        LabError::Environment(error.to_string())
    }

    /// Adapter for `map_err`: what was being done.
    pub fn system(doing: &str) -> impl FnOnce(std::io::Error) -> LabError {
        let doing = doing.to_owned();
        move |source| LabError::System { doing, source }
    }
}

impl From<plan::PlanError> for LabError {
    fn from(error: plan::PlanError) -> Self {
        LabError::plan(error)
    }
}

impl From<path::ProfileError> for LabError {
    fn from(error: path::ProfileError) -> Self {
        LabError::plan(error)
    }
}
