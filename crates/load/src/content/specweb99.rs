//! SPECweb99's static files.
//!
//! Four classes of nine files a directory: 0.1 to 0.9 KB (35 % of requests), 1 to 9 KB (50 %), 10 to 90 KB (14 %), 100 to
//! 900 KB (1 %). Recalled, not checked against the benchmark's documents: the shares; a KB of 1024 bytes; within a class
//! the fifth file most popular, then 4, 6, 3, 7, 2, 8, 9, 1 by Zipf's law (35.3 %, 17.7 %, 11.8 % ..: the benchmark's
//! table); directories by Zipf's law with exponent 1. Its dynamic third of requests is not here.

use super::{Object, zipf};

/// Exponent of the directories' popularity.
pub(super) const ALPHA: f64 = 1.0;

/// Share of requests by class.
pub(super) const SHARES: [f64; 4] = [0.35, 0.50, 0.14, 0.01];

/// Rank of each file within its class, from 0.
pub(super) const RANKS: [u32; 9] = [8, 5, 3, 1, 0, 2, 4, 6, 7];

/// Files of a directory.
const FILES: u32 = 36;

/// Whole directories, at least so many objects.
pub(super) fn objects(wanted: u32, alpha: f64) -> Vec<Object> {
    let directories = wanted.div_ceil(FILES);
    let of_class: f64 = (0..9).map(|rank| zipf(rank, 1.0)).sum();
    let mut objects = Vec::with_capacity((directories * FILES) as usize);
    for directory in 0..directories {
        for (class, share) in SHARES.iter().enumerate() {
            for (file, &rank) in RANKS.iter().enumerate() {
                objects.push(Object {
                    path: format!("/dir{directory:05}/class{class}_{file}"),
                    // A tenth of 1, 10, 100 and 1000 KB, so many times.
                    bytes: (file as u64 + 1) * 1024 * 10u64.pow(class as u32) / 10,
                    weight: zipf(directory, alpha) * share * zipf(rank, 1.0) / of_class,
                });
            }
        }
    }
    objects
}
