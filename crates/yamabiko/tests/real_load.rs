//! The load against real servers across the testbed's path.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

mod support;

mod real_load {
    mod ab;
    mod against;
    mod against_http2;
    mod against_http3;
    mod bench;
    mod capacity_shards;
    mod change_shards;
    mod coordination;
    mod coordination_transport;
    mod dynamic;
    mod explain;
    mod explain_facts;
    mod explain_http3;
    mod handshakes;
    mod http2;
    mod http3;
    mod https_record;
    mod live_shards;
    mod machines;
    mod manifests;
    mod permission;
    mod placed;
    mod protocols;
    mod scheduled;
    mod serve_http2;
    mod serve_http3;
    mod server;
    mod shards;
    mod tls;
    mod workload;
}
