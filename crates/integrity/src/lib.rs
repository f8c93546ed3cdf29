//! The seam where a mechanism of crash safety plugs in.
