//! Blocks in memory, and when they are written home.
