//! `/-/status`: what the server counts of itself, as JSON and for Prometheus.

/// Who may read the server's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusSpec {
    /// Clients whose address is of the loopback; others get 404.
    #[default]
    Local,
    /// Every client.
    All,
    /// Nobody: the path is the files'.
    Off,
}
