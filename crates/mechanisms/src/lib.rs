//! How changes are made safe: one folder a mechanism.
