//! Puts a run together: places, processes, phases, the clock, the validity gate.
