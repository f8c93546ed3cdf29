//! What is on the device: its superblock, our private state, and whether it can be opened, and how.
//! Reads only.

use crate::VolumeError;
use crate::journal::{self, Journal};
use check::{ReadBlocks, locate};
use format::ext::Superblock;
use format::ext::boot::{self, BOOT_BYTES, BootArea, BootState};
use format::ext::features::incompat;

/// What a look at the device has shown.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The superblock, or a copy of it.
    pub superblock: Superblock,
    /// Our state in the boot area.
    pub boot: BootArea,
    /// Why it can only be read, if so: a line for the user.
    pub read_only: Option<String>,
    /// Does it say that its journal may hold something, or is there a log of ours that may?
    pub needs_recovery: bool,
    /// Its journal; None: it has none inside, and none outside that was looked at
    /// ([`Probe::attach`]).
    pub journal: Option<Journal>,
    /// Why the journal cannot be used.
    pub journal_fault: Option<String>,
    /// What the journal holds, for who only reads; see [`look_through`].
    pub replay: Option<mechanisms::JournalReplay>,
}

impl Probe {
    /// Our state, if the boot area holds one.
    pub fn state(&self) -> Option<&BootState> {
        match &self.boot {
            BootArea::Ours(s) => Some(s),
            _ => None,
        }
    }
    /// The mode last used here, by its name; None: not ours, or never opened.
    pub fn last_mode(&self) -> Option<&str> {
        self.state().map(|s| s.mode.as_str()).filter(|m| !m.is_empty())
    }
    /// Does a log of ours (modes `redo` and `unified`) hold something?
    pub fn has_private_log(&self) -> bool {
        self.needs_recovery && self.journal.as_ref().is_some_and(Journal::is_redo)
    }
    /// Does its journal keep others off although the volume was closed and does not say that it
    /// needs recovery? Whoever opened it was cut off between the two, as versions did that wrote
    /// the flag last: no log was used, and what lies in the journal's blocks is nobody's.
    pub(crate) fn is_guarded_for_nothing(&self) -> bool {
        let flag = self.superblock.has_incompat(incompat::RECOVER);
        self.has_private_log() && !flag && self.state().is_some_and(|s| s.clean)
    }
    /// Looks at the other device that was named: if the volume's journal lies outside, it must be
    /// there. Errors: it is not, or cannot be used.
    pub fn attach(&mut self, log: &dyn ReadBlocks) -> Result<(), VolumeError> {
        if self.superblock.journal_is_outside() {
            self.journal = Some(journal::find_outside(log, &self.superblock)?);
            self.doubt_journal();
        }
        Ok(())
    }
    /// A journal that holds something, of a volume that says it need not be replayed, comes of
    /// damage: whoever opens a volume sets the flag first. To write beside it would be worse, since
    /// e2fsck replays such a journal, later, over what was written.
    fn doubt_journal(&mut self) {
        let doubtful = |j: &Journal| !j.is_redo() && !j.is_empty();
        if !self.needs_recovery && self.journal.as_ref().is_some_and(doubtful) {
            let why = "opened for reading only: its journal holds something, but its superblock \
                       says that nothing is to be replayed: e2fsck -f sorts that out";
            self.read_only.get_or_insert(why.into());
        }
    }
    /// Why what it needs cannot be replayed: its journal is elsewhere, and nobody said where.
    pub(crate) fn check_attached(&self) -> Result<(), VolumeError> {
        if !(self.needs_recovery && self.journal.is_none() && self.superblock.journal_is_outside())
        {
            return Ok(());
        }
        let why = "it was not closed cleanly, and its journal is on another device: --log PATH \
                   names that";
        Err(VolumeError(why.into()))
    }
    /// Was it closed cleanly?
    pub fn is_clean(&self) -> bool {
        self.superblock.is_clean() && !self.needs_recovery
    }
}

/// Looks at a device. Errors say what is wrong and what to do.
pub fn probe(device: &dyn ReadBlocks) -> Result<Probe, VolumeError> {
    let found = locate(device)?;
    let mut area = [0; BOOT_BYTES];
    device.read_at(0, &mut area)?;
    let superblock = found.superblock;
    let mut read_only = None;
    if let Some(group) = found.copy_of {
        read_only = Some(format!(
            "the primary superblock is damaged ({}); opened for reading from group {group}'s copy: \
             cairn fsck --repair restores it",
            found.fault
        ));
    }
    let unknown = superblock.features().read_only_because();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        read_only = Some(format!("opened for reading only: this version does not write {names}"));
    }
    let (journal, journal_fault) = match journal::find(device, &superblock) {
        Ok(j) => (j, None),
        Err(e) => (None, Some(e.to_string())),
    };
    let guarded = journal.as_ref().is_some_and(Journal::is_redo);
    // A copy of the superblock does not know whether the journal holds something.
    let holds = found.copy_of.is_some() && journal.as_ref().is_some_and(|j| !j.is_empty());
    let needs_recovery = superblock.has_incompat(incompat::RECOVER) || guarded || holds;
    let boot = boot::decode(&area);
    let mut probe =
        Probe { superblock, boot, read_only, needs_recovery, journal, journal_fault, replay: None };
    probe.doubt_journal();
    Ok(probe)
}

/// Lets who only reads see the volume as it will be when its journal is replayed. Errors: damage in
/// the journal. `log`: the device with the journal, if it is another.
pub fn look_through(
    p: &mut Probe,
    device: &dyn ReadBlocks,
    log: Option<&dyn ReadBlocks>,
) -> Result<(), VolumeError> {
    p.check_attached()?;
    let Some(j) = p.journal.as_ref().filter(|j| p.needs_recovery && !j.is_empty()) else {
        return Ok(());
    };
    if !p.has_private_log() {
        let from = log.filter(|_| j.outside).unwrap_or(device);
        p.replay = Some(j.load(from, p.superblock.blocks())?);
    }
    Ok(())
}
