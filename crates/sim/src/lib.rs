//! The virtual world: time that is computed, and a disk with a volatile write cache that can lose
//! power at any moment. It turns the same engine that the host turns, and records what the disk was
//! asked, so that every crash state of a run can be built afterwards without running it again. It
//! knows no files.

mod bucket;
mod image;
mod lent;
mod own_disk;
mod run;
pub mod timing;
mod trace;
mod world;

pub use bucket::{Cut, Line, Machine, Objects, SimBucket, Trouble, Way};
pub use image::Image;
pub use own_disk::{OwnDisk, Platter};
pub use run::block_on;
pub use trace::{CrashImages, Event, Trace, Write};
pub use world::{EPOCH, Fault, Latency, Machines, Pen, Traffic, World};
