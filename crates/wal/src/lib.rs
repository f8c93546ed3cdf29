//! The stand-alone write-ahead log (WAFS).
