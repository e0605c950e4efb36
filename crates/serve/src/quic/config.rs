//! Settings of QUIC, shared by all workers: so a token or a reset of one is valid for another.

use std::sync::Arc;

use http3::congestion::GrowsWhenUsed;
use quinn_proto::congestion::CubicConfig;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, ValidationTokenConfig, VarInt};

use super::SEND_WINDOW_MIN;
use crate::http3::STREAMS_MAX;
use crate::spec::{Limits, ServeError};
use crate::tls::Tls;

/// Settings of QUIC.
#[derive(Clone, Debug)]
pub(crate) struct QuicConfig {
    pub(crate) endpoint: Arc<EndpointConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Of the random numbers, in tests.
    pub(crate) seed: Option<[u8; 32]>,
}

impl QuicConfig {
    /// For `workers` that share a port: a client whose address changes may arrive at another, which does not know it.
    ///
    /// # Errors
    /// TLS has no cipher suite for QUIC's first packets.
    pub(crate) fn new(tls: &Tls, limits: &Limits, workers: usize) -> Result<Self, ServeError> {
        let crypto = QuicServerConfig::try_from(tls.quic_config()).map_err(|_| ServeError::Quic)?;
        let idle = IdleTimeout::try_from(limits.idle_time).unwrap_or_else(|_| VarInt::MAX.into());
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(STREAMS_MAX.into())
            .max_concurrent_uni_streams(UNIDIRECTIONAL_MAX.into())
            .max_idle_timeout(Some(idle))
            .stream_receive_window(STREAM_WINDOW.into())
            .receive_window(CONNECTION_WINDOW.into())
            .send_window(SEND_WINDOW_MIN)
            .congestion_controller_factory(Arc::new(GrowsWhenUsed::new(CubicConfig::default())))
            .datagram_receive_buffer_size(None);
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        // Tokens of earlier connections would need a log of those that were used.
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(0);
        server
            .transport_config(Arc::new(transport))
            .validation_token_config(tokens)
            .max_incoming(INCOMING_MAX)
            .migration(workers == 1);
        let mut endpoint = EndpointConfig::default();
        endpoint.supported_versions(vec![VERSION]);
        Ok(QuicConfig { endpoint: Arc::new(endpoint), server: Arc::new(server), seed: None })
    }
}

/// RFC 9000.
const VERSION: u32 = 1;
/// Connections that wait for a decision; here each is decided on immediately.
const INCOMING_MAX: usize = 1024;
/// Unidirectional streams of a client: three that HTTP/3 needs, and some of unknown kinds.
const UNIDIRECTIONAL_MAX: u32 = 8;
/// Content of a request that may arrive before it is read, as over HTTP/2.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same for all streams together.
const CONNECTION_WINDOW: u32 = 256 << 10;
