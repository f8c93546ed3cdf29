//! The real world: workers, rings, files, sockets.
