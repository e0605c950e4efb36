//! The cache between clients and an upstream that counts.
