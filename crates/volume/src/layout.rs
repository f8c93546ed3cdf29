//! How a volume's objects lie on its disk: a *layout* is one entry in [`LAYOUTS`]. It is probed,
//! says what its recovery will do, does it, and is loaded; whoever opens, recovers or describes a
//! volume needs no more of it.

use crate::place::{Place, Reader};
use crate::probe::{Ext, Probe};
use crate::{Decision, OpenOptions, Recovered, VolumeError};
use check::ReadBlocks;
use env::Local;
use std::fmt;
use std::rc::Rc;
use vfs::Volume;

/// A kind of layout.
pub trait LayoutKind: Sync {
    /// Looks for one by its magic, reading only. `log`: the other device that was named. Errors:
    /// there is none here, or it cannot be used, and what to do.
    fn probe(
        &self,
        disk: &dyn ReadBlocks,
        log: Option<&dyn ReadBlocks>,
    ) -> Result<Box<dyn FoundLayout>, VolumeError>;
}

/// A layout that was found; plain data, so that it can go to the engine that opens it.
pub trait FoundLayout: Send + fmt::Debug {
    /// Decides what comes before loading, reading only: nothing, or what an unclean end makes
    /// necessary, or why it cannot be. Errors: the device's, or damage that leaves no choice.
    fn decide<'a>(
        &'a mut self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Decision, VolumeError>>;
    /// Does what was decided. Can be cut off anywhere and done again.
    fn recover<'a>(
        &'a mut self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Recovered, VolumeError>>;
    /// Is there something left that only a loaded volume can do (files without names)?
    fn has_leftovers(&self) -> bool;
    /// Builds the volume. It is clean, or is to be read only.
    fn load(
        self: Box<Self>,
        at: Place,
        options: OpenOptions,
    ) -> Local<'static, Result<Rc<dyn Volume>, VolumeError>>;
    /// Keeps other machines off, if the volume has a way to, and waits until that is sure: the
    /// place where it lies then. None: it has none, or is only to be read. Errors: somebody else
    /// uses it.
    fn claim<'a>(
        &'a self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Option<Place>, VolumeError>>;
    /// What a log tells its users apart by, and the label.
    fn id_in_log(&self) -> ([u8; 16], String);
    /// What is known of it, if it is of the family of ext2.
    fn ext(&self) -> Option<&Probe> {
        None
    }
    /// The same, to change.
    fn ext_mut(&mut self) -> Option<&mut Probe> {
        None
    }
}

/// Every kind of layout, in the order in which they are looked for.
const LAYOUTS: &[&dyn LayoutKind] = &[&Ext];

/// The layout that lies there. Errors: none does, and then the first one's words.
pub(crate) fn probe_layout(
    disk: &Reader,
    log: Option<&Reader>,
) -> Result<Box<dyn FoundLayout>, VolumeError> {
    let log = log.map(|l| l as &dyn ReadBlocks);
    let mut first = None;
    for kind in LAYOUTS {
        match kind.probe(disk, log) {
            Ok(found) => return Ok(found),
            Err(e) => drop(first.get_or_insert(e)),
        }
    }
    Err(first.unwrap_or_else(|| VolumeError("no layout is known".into())))
}
