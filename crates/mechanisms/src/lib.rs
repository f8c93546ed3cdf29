//! How changes are made safe: every mechanism, a folder each, behind the one table of modes. It
//! knows blocks and transactions; what an inode means, and any name, it does not.

mod ffs;
mod modes;

use cache::Cache;
use integrity::{Mechanism, Plant};
use std::rc::Rc;

pub use modes::{MODES, Mode, ModeInfo};

/// What a mechanism is made of.
#[derive(Clone)]
pub struct Recipe {
    /// The volume's blocks.
    pub cache: Rc<Cache>,
    /// A planted bug, for the crash explorer.
    pub plant: Plant,
}

/// The mechanism of `mode` over the recipe's cache, whose gate it becomes.
pub fn build(mode: Mode, recipe: &Recipe) -> Mechanism {
    match mode {
        Mode::Sync => ffs::Ffs::new(recipe, ffs::Policy::Sync),
        Mode::Async => ffs::Ffs::new(recipe, ffs::Policy::Async),
    }
}
