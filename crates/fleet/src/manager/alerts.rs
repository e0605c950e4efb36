//! Rules that call when quality falls, and what they said.
