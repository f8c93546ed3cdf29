//! The real world: files as disks, threads that enter volumes, rings on which everything they wait
//! for arrives. It carries out what a volume's port asks for and hands replies to their front ends;
//! it knows nothing of files inside a volume.

mod background;
mod bucket;
mod changes;
mod claim;
mod clock;
mod dead;
mod driver;
mod file;
mod kept;
mod listen;
mod listening;
mod lock;
mod memory;
mod objects;
mod open_files;
mod outlet;
mod pool;
mod profile;
mod ring;
mod room;
mod seats;
mod signals;
mod slow;
mod staged;
mod threads;
mod way;
mod worker;

pub use background::{Stream, let_go, new_session, system_log};
pub use bucket::{Url, has_cache_disk, set_cache_disk, set_endpoint};
pub use changes::Changes;
pub use clock::{entropy, now};
pub use dead::unescaped;
pub use driver::{Driver, ask, ask_then, drive};
pub use file::HostFile;
pub use listen::{Protocol, Service, Unfinished, listen};
pub use listening::Listening;
pub use memory::keep_pages_small;
pub use objects::Objects;
pub use outlet::Outlet;
pub use pool::{Hosted, Pool, Source, WorkList};
pub use ring::{Entry, Ring, ring_available};
pub use seats::Limits;
pub use signals::{BeforeStop, Stop, Stops, block_signals, end_with_reader};
