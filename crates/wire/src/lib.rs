//! Checked views of packet bytes: IPv4, IPv6, TCP, UDP, checksums.
