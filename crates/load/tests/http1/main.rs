//! Tests of the response parser: a corpus of valid and invalid responses, and independence of segmentation.

mod corpus;
mod framing;
mod outcome;
mod properties;
