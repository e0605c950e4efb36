//! Terminal and page output. Reads the book, never a running experiment.
