//! The program's own HTTP face.
