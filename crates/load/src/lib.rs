//! Arrivals, virtual clients, the HTTP client machine. No descriptor, thread or clock.
