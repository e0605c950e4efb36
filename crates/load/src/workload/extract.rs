//! What is taken from a response for the requests after it.

/// A value taken from a response.
#[derive(Clone, Debug)]
pub struct Extract {
    /// Which of the session's variables it becomes.
    pub variable: usize,
    /// Where it stands.
    pub source: Source,
}

/// Where a value stands in a response.
#[derive(Clone, Debug)]
pub enum Source {
    /// The value of the first header of this name, whatever its case.
    Header(String),
    /// What a JSON pointer (RFC 6901) names in the body: a string without its quotes, anything else as JSON.
    Json(String),
    /// The first group of an expression in the body, or all that it matches where it has none.
    Body(regex::bytes::Regex),
}

impl Extract {
    /// Whether the body must be kept until it is whole.
    pub fn needs_body(&self) -> bool {
        !matches!(self.source, Source::Header(_))
    }
}
