//! What a simulated response meets: configuration of network, hosts and application.

/// Everything that a simulation depends on. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct World {
    /// Round-trip time without queues.
    pub rtt: u64,
    /// Bytes of the response.
    pub size: u64,
    /// How late the generator starts the request.
    pub send_lag: u64,
    /// Wait for a free connection.
    pub connection_wait: u64,
    /// How late the generator reads the last byte.
    pub receive_lag: u64,
    /// Whether the connection is opened for this request.
    pub new_connection: bool,
    /// TLS handshake on a new connection.
    pub tls: Tls,
    /// Rate of the downward bottleneck, bit/s; `None`: no transmission time.
    pub rate: Option<u64>,
    /// Standing queue of other clients' packets before the bottleneck.
    pub shared_queue: u64,
    /// Probability that a packet of the response is lost.
    pub loss: f64,
    /// Whether the first transmission of the response's last packet is lost.
    pub lose_last: bool,
    /// Probability that a packet of the response is delayed by `reordering_delay`.
    pub reordering: f64,
    /// Delay of such a packet.
    pub reordering_delay: u64,
    /// Initial congestion window in segments; `None`: no congestion window.
    pub initial_window: Option<u64>,
    /// Whether the sender spreads the packets of a window over half of a round trip, but for the initial window.
    pub pacing: bool,
    /// Receive buffer, bytes.
    pub receive_buffer: u64,
    /// Send buffer, bytes.
    pub send_buffer: u64,
    /// HTTP/2 with this window for the stream, bytes.
    pub stream_window: Option<u64>,
    /// HTTP/2 with this window for the connection, bytes.
    pub connection_window: Option<u64>,
    /// Server processing before the first byte.
    pub processing: u64,
    /// Pause of the application after half of the response has left.
    pub pause: u64,
    /// Share of a CPU that the server has, in percent; 100: no limit.
    pub cpu_percent: u64,
    /// Longest delay of an ACK; 0: every packet is acknowledged on arrival.
    pub ack_delay: u64,
    /// Whether hosts take time to react, propagation varies, and captures merge packets.
    pub noise: bool,
    /// Seed of losses and reordering.
    pub seed: u64,
}

/// TLS handshake of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Without TLS.
    None,
    /// Two round trips, with a certificate chain.
    Full,
    /// One round trip.
    Resumed,
}

/// Without a limit, bytes.
pub const UNLIMITED: u64 = 1 << 30;
/// One millisecond.
pub const MS: u64 = 1_000_000;

impl World {
    /// An open connection without any limit but distance, a gigabit per second and an initial window of 10 segments.
    pub fn plain(rtt_ms: u64, size: u64) -> World {
        World {
            rtt: rtt_ms * MS,
            size,
            send_lag: 0,
            connection_wait: 0,
            receive_lag: 0,
            new_connection: false,
            tls: Tls::None,
            rate: Some(1_000_000_000),
            shared_queue: 0,
            loss: 0.0,
            lose_last: false,
            reordering: 0.0,
            reordering_delay: 0,
            initial_window: Some(10),
            pacing: false,
            receive_buffer: UNLIMITED,
            send_buffer: UNLIMITED,
            stream_window: None,
            connection_window: None,
            processing: MS / 2,
            pause: 0,
            cpu_percent: 100,
            ack_delay: 0,
            noise: false,
            seed: 1,
        }
    }

    /// Whether the response comes over HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.stream_window.is_some() || self.connection_window.is_some()
    }
}
