//! FUSE over io_uring and over /dev/fuse.
