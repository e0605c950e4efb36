//! The static files of SPECweb99.
//!
//! Four classes of nine files per directory: 0.1 to 0.9 KB (35 % of requests), 1 to 9 KB (50 %), 10 to 90 KB (14 %),
//! 100 to 900 KB (1 %). The following is from memory and not verified against the benchmark's documents: the shares; a
//! KB of 1024 bytes; within a class the fifth file is most popular, then 4, 6, 3, 7, 2, 8, 9, 1 by Zipf's law (35.3 %,
//! 17.7 %, 11.8 % and so on, the benchmark's table); directories by Zipf's law with exponent 1. The dynamic third of
//! SPECweb99's requests is not modelled.

use super::{Object, zipf};

/// Exponent of the directories' popularity.
pub(super) const ALPHA: f64 = 1.0;

/// Share of requests by class.
pub(super) const SHARES: [f64; 4] = [0.35, 0.50, 0.14, 0.01];

/// Rank of each file within its class, from 0.
pub(super) const RANKS: [u32; 9] = [8, 5, 3, 1, 0, 2, 4, 6, 7];

/// Files per directory.
const FILES_PER_DIRECTORY: u32 = 36;

/// The objects of whole directories, at least `objects_min`.
pub(super) fn objects(objects_min: u32, alpha: f64) -> Vec<Object> {
    let directories = objects_min.div_ceil(FILES_PER_DIRECTORY);
    let of_class: f64 = (0..9).map(|rank| zipf(rank, 1.0)).sum();
    let mut objects = Vec::with_capacity((directories * FILES_PER_DIRECTORY) as usize);
    for directory in 0..directories {
        for (class, share) in SHARES.iter().enumerate() {
            for (file, &rank) in RANKS.iter().enumerate() {
                objects.push(Object {
                    path: format!("/dir{directory:05}/class{class}_{file}"),
                    // Multiples 1 to 9 of a tenth of 1, 10, 100 and 1000 KB.
                    bytes: (file as u64 + 1) * 1024 * 10u64.pow(class as u32) / 10,
                    weight: zipf(directory, alpha) * share * zipf(rank, 1.0) / of_class,
                });
            }
        }
    }
    objects
}
