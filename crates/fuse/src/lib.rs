//! FUSE: translates the kernel's requests into the volume's, over io_uring where the kernel offers
//! that, over /dev/fuse elsewhere. It knows the wire format and the transport; of files it knows
//! nothing.

mod cache_policy;
mod decode;
mod dev;
mod encode;
mod fellows;
mod held_back;
mod init;
mod mount;
mod mountinfo;
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
