//! Rows of arrivals with known loss, order and silence.
