//! Quality over time: by program, peer and group of clients, from minutes to months.
