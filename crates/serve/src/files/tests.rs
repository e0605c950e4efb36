//! The cache of pages against a real directory.
