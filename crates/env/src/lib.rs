//! What the core may ask of the world: disks, time, chance, tasks and locks. It holds the executor
//! and the port through which requests leave a volume, and no world: `host` is the real one, `sim`
//! the virtual one.
//!
//! The shape is the same in both. An [`Engine`] is everything that lives inside a volume's monitor:
//! its tasks, its timers, its outstanding disk requests. A world calls [`Engine::turn`] with the
//! time and the requests that have ended, runs tasks until none is ready, and takes away the
//! requests the tasks have made.

mod block;
mod blocking;
mod both;
mod bucket;
mod disk;
mod engine;
mod exec;
mod few;
mod hash;
mod net;
mod port;
mod rng;
mod rope;
mod serial_map;
pub mod sync;
mod time;
mod timers;

pub use block::{Block, SECTOR_BYTES};
pub use blocking::{Blocking, ReadNow};
pub use both::{all, both, unless};
pub use bucket::{BUCKET_BYTES, Bucket, BucketError, BucketErrorKind, ObjectDone, ObjectOp};
pub use disk::{Disk, DiskError, DiskErrorKind, Durability, Local};
pub use engine::{Engine, Env};
pub use exec::{Executor, Step, inside_of};
pub use few::{Few, Iter as FewIter};
pub use hash::{FixedHasher, IdMap, IdSet};
pub use net::{Conn, Line, NetError, Service};
pub use port::{DiskId, IoDone, IoOp, IoRequest, Port};
pub use rng::Rng;
pub use rope::{Piece, Rope};
pub use serial_map::SerialMap;
pub use time::{Nanos, Now};
