//! The reader of responses, against a corpus of good and bad ones and against its own word that cutting the bytes
//! differently changes nothing.

mod corpus;
mod framing;
mod outcome;
mod properties;
