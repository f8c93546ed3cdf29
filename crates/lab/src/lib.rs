//! Workloads, oracle, crash explorer.
