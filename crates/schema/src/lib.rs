//! Records and documents of a run: one vocabulary, one schema for all crates.
//!
//! [`request::RequestRecord`] is one request as the load saw it, [`second::SecondRecord`] one second of the live
//! series, [`document::Document`] the JSON document of a run.
//! [`connection::ConnectionRecord`], [`wire_request::WireRequest`] and [`watch_second::WatchSecond`] are the same as
//! seen in packets, [`tap_exchange::TapExchange`] an exchange as seen by socket calls. Writers (load, path, watch,
//! server resource usage) and readers (store, report, the validity checks) share only these types, so that a term has
//! one meaning in every file and on every page.
//!
//! [`tap_row::TapRow`] is such an exchange as an agent sends it, [`fleet_row::FleetRow`] as the manager stores it.
//!
//! [`cache_exchange::CacheExchange`] is a request of a cache benchmark, [`cache_part::CachePart`] their summary.
//!
//! [`explain_rows`] are what a run keeps for `yamabiko explain`, and what that found: [`share`] has its causes.
//!
//! [`progress::RunProgress`] is the snapshot of a run that is under way, [`distribution::DistributionRecord`] the
//! response times of one second. [`shards_progress::ShardsProgress`] is that of all shards of a load.
//!
//! [`doctor::DoctorDocument`] is of a machine and not of a run.
//!
//! [`withheld`] redacts credentials in commands and plans.
//!
//! [`mod@table`] is how a record is defined, and how its columns follow from its fields: read it before adding one.
//!
//! Clocks: in a run's tables every `_at_ns` counts from the run's zero on the monotonic clock of the machine that
//! measured. In the logs of `yamabiko watch` it counts from 1970 (UTC), in [`TapRow`] from the zero of the batch's
//! clock, which [`FleetRow`] has as `zero_unix_ns`.

pub mod cache_exchange;
pub mod cache_part;
pub mod capacity_part;
pub mod cause;
pub mod compare_part;
pub mod connection;
pub mod disk_part;
pub mod distribution;
pub mod doctor;
pub mod document;
pub mod explain_rows;
pub mod finding;
pub mod fleet_row;
pub mod forwarding_part;
pub mod predict_part;
pub mod predict_sum;
pub mod progress;
pub mod protocols_part;
pub mod quic_connection;
pub mod quic_packet;
pub mod reproduction;
pub mod request;
pub mod second;
pub mod server_cores;
pub mod server_second;
pub mod shards_progress;
pub mod share;
pub mod table;
pub mod tap_exchange;
pub mod tap_part;
pub mod tap_row;
pub mod watch_part;
pub mod watch_second;
pub mod wire_request;
pub mod withheld;

pub use cache_exchange::{CacheContent, CacheExchange, CacheForm, Wrong};
pub use cache_part::{
    CacheFigures, CachePart, CachePoint, ClientsSupported, OriginTraffic, Ratio, UncountedRun, WrongExample,
};
pub use capacity_part::{
    BoundBy, Bracket, CapacityDocument, CapacityPart, EachDistance, GeneratorLimit, TrialPart, TrialSecond, TrialServer,
};
pub use cause::{DropCause, FailureCause};
pub use compare_part::{CompareDocument, ComparePart, CompareVerdict};
pub use connection::{ConnectionRecord, ConnectionState, RecordEnd, RttSummary, Sent};
pub use disk_part::{DiskDocument, DiskTest};
pub use distribution::{Bucket, DistributionRecord, FineBucket, Measure};
pub use doctor::DoctorDocument;
pub use document::{Check, CheckState, Document, Level, Quantiles, Validity, Verdict};
pub use explain_rows::{FrameKind, Http2FrameRow, ServerWaitRow, ShareRow, TcpSampleRow, WaitCause};
pub use finding::Finding;
pub use fleet_row::FleetRow;
pub use forwarding_part::{
    ForwardingPart, GatewayCondition, GatewayDocument, Measured, PacketRate, ProxyLoad, SearchTrial,
};
pub use predict_part::{
    CurvePoint, Demand, Machines, MeasuredLoad, PathTimes, PerConnection, PredictDocument, PredictLimit, PredictPart,
    UsersPoint, UslPart,
};
pub use predict_sum::{
    ClassSum, ComponentCost, ComponentPoint, ComponentRound, ComponentRounds, ComponentSum, ComponentTerm, PartLaw,
};
pub use progress::{LoadProgress, PathProgress, RunPhase, RunProgress, TapProgress, WatchProgress};
pub use protocols_part::{PROTOCOLS_SCHEMA, ProtocolRun, ProtocolsDocument};
pub use quic_connection::{QuicConnectionRecord, QuicSent};
pub use quic_packet::{QuicFrame, QuicPacket, QuicPacketKind};
pub use reproduction::{Reproduction, ReproductionDocument, ReproductionRow};
pub use request::{Method, RequestRecord};
pub use second::SecondRecord;
pub use server_cores::{MovedFigure, OtherProcess, ServerCores};
pub use server_second::ServerSecond;
pub use shards_progress::{ShardProgress, ShardResponseTime, ShardState, ShardsProgress, ShardsTotal};
pub use table::{Column, Record};
pub use tap_exchange::{TapError, TapExchange, TapOutcome, TapSide};
pub use tap_part::{TapDocument, TapPart};
pub use tap_row::{TapAddress, TapPeer, TapRow};
pub use watch_part::{CaptureReading, NotAnalyzed, PacketFault, WatchDocument, WatchPart, WatchQuic};
pub use watch_second::WatchSecond;
pub use wire_request::{Framing, WireRequest};

/// Direction of a packet: up is from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
}

impl Direction {
    /// Both directions, in the order of arrays indexed by [`Direction::index`].
    pub const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];

    /// 0 for up, 1 for down.
    pub const fn index(self) -> usize {
        match self {
            Direction::Up => 0,
            Direction::Down => 1,
        }
    }
}
