//! FUSE: translates the kernel's requests into the volume's, over io_uring where the kernel offers
//! that, over /dev/fuse elsewhere. It knows the wire format and the transport; of files it knows
//! nothing.
//!
//! Invariants  F1 a request is answered once, and its memory is the kernel's again only then; no
//!             more are answered than were asked.
//!             F2 an answer is no longer than the kernel has memory for, and an entry of a listing
//!             that was told of is in it.
//!             F3 an answer of a fixed length has that length.
//!             F4 an error is one of Linux's numbers, above 0.
//!             F5 what the kernel has sent of a file's contents is passed on whole, and no more of
//!             it is said to be written.
//!             F6 a file has a number that none but it has, and a listing goes on behind its
//!             beginning.
//!             F7 the kernel holds back, or goes by what it knows, only where nobody else changes
//!             the volume.
//!             F8 a mount that ends is one of its server's.

mod cache_policy;
mod decode;
mod dev;
mod encode;
mod fellows;
mod held_back;
mod init;
mod mount;
mod mountinfo;
mod nodes;
mod options;
mod probe;
mod session;
mod shared;
mod slot;
mod umount;
mod uring;
mod watch;
mod wire;

pub use cache_policy::CachePolicy;
pub use fellows::Fellows;
pub use mount::{MountOptions, Place, check_place, remount};
pub use options::Options;
pub use session::{Serving, Session, UringChoice, series};
pub use umount::unmount_volume;
