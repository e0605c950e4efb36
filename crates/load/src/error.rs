//! Errors of typed URLs and headers.

/// Why a typed URL or header was rejected. The message contains the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The URL is empty.
    #[error("the URL is empty; write it like http://server:8080/index.html")]
    EmptyUrl,
    /// The URL has no scheme.
    #[error("`{url}` does not begin with a scheme; did you mean http://{url}")]
    NoScheme {
        /// As typed.
        url: String,
    },
    /// A scheme other than http and https.
    #[error("`{url}` has scheme `{scheme}`; only http:// and https:// are supported")]
    UnknownScheme {
        /// As typed.
        url: String,
        /// The text before `://`.
        scheme: String,
    },
    /// A user name or password in the URL.
    #[error("`{url}` has a user name; send it as a header instead: -H 'Authorization: Basic ..'")]
    UserInUrl {
        /// As typed.
        url: String,
    },
    /// The text is otherwise not a valid URL.
    #[error("`{url}` is not a valid URL: {why}; write it like http://server:8080/index.html")]
    UnreadableUrl {
        /// As typed.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header without a colon, or with invalid characters.
    #[error("`{header}` is not a valid header: {why}; write it like 'Accept: text/html'")]
    BadHeader {
        /// As typed, control characters escaped.
        header: String,
        /// What is wrong with it.
        why: &'static str,
    },
}
