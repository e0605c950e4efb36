//! Flows, handshake RTT, HTTP pairing, live series: packets in, records out.
