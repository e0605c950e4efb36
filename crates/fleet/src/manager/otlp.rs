//! The same data, on its way to an OpenTelemetry collector.
