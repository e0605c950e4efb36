//! Published experiments made again: paper beside here.

pub mod koshien;
