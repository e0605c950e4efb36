//! Settings of QUIC connections.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{EndpointConfig, RandomConnectionIdGenerator, TransportConfig, VarInt};
use ring::hmac;

use crate::congestion::GrowsWhenUsed;
use crate::session::QUIC_VERSION;

/// Bytes of one stream that the server may send ahead: Chromium's kQuicStreamMaxRecvWindowSize
/// (net/quic/quic_context.h).
pub const STREAM_WINDOW: u64 = 6 << 20;
/// Bytes of all streams together that the server may send ahead: Chromium's kQuicSessionMaxRecvWindowSize
/// (net/quic/quic_context.h).
pub const CONNECTION_WINDOW: u64 = 15 << 20;
/// Without a packet for this long a connection ends: Chromium's kIdleConnectionTimeout (net/quic/quic_context.h), and
/// the recommendation of RFC 9308, section 3.2.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// RTT that is assumed before the first measurement (RFC 9002, section 6.2.2).
pub const INITIAL_RTT: Duration = Duration::from_millis(333);
/// Bytes that a side sends before the first acknowledgement (RFC 9002, section 7.2): ten datagrams of 1,200 bytes.
pub const INITIAL_WINDOW: u64 = 12_000;

/// How fast a side sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 1.
    Bbr,
    /// NewReno (RFC 9002, section 7).
    NewReno,
}

/// Settings of a client's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Bytes of one stream that the server may send ahead, below 2^62.
    pub stream_window: u64,
    /// Bytes of all streams together that the server may send ahead, below 2^62.
    pub connection_window: u64,
    /// How fast this side sends.
    pub congestion_control: CongestionControl,
    /// RTT that is assumed before the first measurement; three times as long until the first retransmission.
    pub initial_rtt: Duration,
    /// Without a packet for this long a connection ends, below 2^62 ms.
    pub idle_timeout: Duration,
    /// Bytes that this side sends before the first acknowledgement.
    pub initial_window: u64,
    /// An idle connection sends a packet each time this has passed.
    pub keep_alive: Option<Duration>,
    /// Packets are marked as ECN-capable (RFC 9000, section 13.4).
    pub ecn: bool,
    /// [`Connection::transmit`](crate::Connection::transmit) may give several datagrams at once.
    pub segmentation_offload: bool,
    /// The spin bit shows the RTT (RFC 9000, section 17.4) on 7 of 8 connections, drawn.
    pub spin_bit: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Transport {
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
            congestion_control: CongestionControl::default(),
            initial_rtt: INITIAL_RTT,
            idle_timeout: IDLE_TIMEOUT,
            initial_window: INITIAL_WINDOW,
            keep_alive: None,
            ecn: true,
            segmentation_offload: true,
            spin_bit: true,
        }
    }
}

/// Unidirectional streams that a server may open: three that HTTP/3 uses, and some of unknown kinds (RFC 9114, section
/// 6.2).
const SERVER_STREAMS: u32 = 16;

/// Unacknowledged bytes of requests that a connection holds in memory: more than any bandwidth-delay product at which a
/// client uploads.
const SEND_WINDOW: u64 = 64 << 20;

impl Transport {
    /// The settings as quinn-proto takes them.
    pub(crate) fn config(&self) -> TransportConfig {
        let varint = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(SERVER_STREAMS))
            .stream_receive_window(varint(self.stream_window))
            .receive_window(varint(self.connection_window))
            .send_window(SEND_WINDOW)
            .initial_rtt(self.initial_rtt)
            .max_idle_timeout(self.idle_timeout.try_into().ok())
            .keep_alive_interval(self.keep_alive)
            .enable_segmentation_offload(self.segmentation_offload)
            .allow_spin(self.spin_bit)
            .datagram_receive_buffer_size(None);
        config.congestion_controller_factory(self.congestion_controller());
        config
    }

    fn congestion_controller(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        /// Each algorithm has a type of its own, with the same setting.
        macro_rules! with_initial_window {
            ($algorithm:ty) => {{
                let mut algorithm = <$algorithm>::default();
                algorithm.initial_window(self.initial_window);
                algorithm
            }};
        }
        match self.congestion_control {
            CongestionControl::Cubic => Arc::new(GrowsWhenUsed::new(with_initial_window!(CubicConfig))),
            // BBR judges the rate of delivery by itself.
            CongestionControl::Bbr => Arc::new(with_initial_window!(BbrConfig)),
            CongestionControl::NewReno => Arc::new(GrowsWhenUsed::new(with_initial_window!(NewRenoConfig))),
        }
    }
}

/// Settings of an endpoint with one connection: as in browsers its identifiers have no bytes, since each connection has
/// a socket of its own. `seed`: of its random numbers.
pub(crate) fn endpoint_config(seed: [u8; 32]) -> EndpointConfig {
    let reset_key = hmac::Key::new(hmac::HMAC_SHA256, &seed);
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    config
        .supported_versions(vec![QUIC_VERSION])
        .cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)))
        .rng_seed(Some(seed));
    config
}
