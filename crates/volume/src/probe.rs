//! What is on the device: its superblock, our private state, and whether it can be opened, and how.
//! Reads only.

use crate::journal::{self, Journal};
use crate::layout::{FoundLayout, LayoutKind};
use crate::place::Place;
use crate::recover::{self, Plan};
use crate::{Decision, OpenOptions, Recovered, VolumeError, load, log, mmp};
use check::{ReadBlocks, locate};
use env::Local;
use format::ext::Superblock;
use format::ext::boot::{self, BOOT_BYTES, BootArea, BootState};
use format::ext::features::incompat;
use format::ext::superblock::STATE_ERROR;
use format::foreign;
use mechanisms::{AfterCrash, Mode};
use std::rc::Rc;
use vfs::Volume;

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
    /// Does it lie in a log-structured store?
    pub in_segments: bool,
    /// Does it say that its orphan file may list something? Linux says so as long as it has such a
    /// volume mounted, so that every one that it has left unclean does.
    pub(crate) lists_orphans: bool,
    /// Was it closed cleanly, when it was first looked at?
    pub(crate) was_clean: bool,
    /// What was decided to be done before it is loaded.
    pub(crate) plan: Plan,
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
    /// Why nothing can be replayed though it should be: its journal cannot be found. None too where
    /// it is we who have left something in it: that is given up only when that is asked for.
    pub fn journal_is_lost(&self) -> Option<&str> {
        let ours = self.state().is_some_and(|s| !s.clean);
        let gone = self.needs_recovery && self.journal.is_none() && !ours;
        self.journal_fault.as_deref().filter(|_| gone)
    }
    /// Has it left something in a log of ours on another device?
    pub fn log_is_outside(&self) -> bool {
        self.has_private_log() && self.state().is_some_and(|s| s.log_uuid != [0; 16])
    }
    /// Does its journal keep others off although the volume was closed and does not say that it
    /// needs recovery? Whoever opened it was cut off between the two, as versions did that wrote
    /// the flag last: no log was used, and what lies in the journal's blocks is nobody's.
    pub(crate) fn is_guarded_for_nothing(&self) -> bool {
        let flag = self.superblock.has_incompat(incompat::RECOVER);
        self.has_private_log() && !flag && self.state().is_some_and(|s| s.clean)
    }
    /// Why it is neither read nor written before somebody else has replayed its journal, and what
    /// to do; None: this version replays it, or it holds nothing.
    pub fn not_replayed(&self) -> Option<&'static str> {
        let holds = self.journal.as_ref().is_some_and(Journal::has_fast_commits);
        (self.needs_recovery && holds).then_some(
            "its journal holds fast commits, which this version does not replay, and without them \
             files are not as they were left: mount it once with Linux, or run e2fsck -p on it, \
             before it is read or written here; tune2fs -O ^fast_commit keeps them off for good",
        )
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
    /// The command that finishes what a crash has left, as a line to paste.
    pub(crate) fn recovering(&self) -> &'static str {
        match self.superblock.journal_is_outside() || self.log_is_outside() {
            true => "`cairn recover IMAGE --log PATH`",
            false => "`cairn recover IMAGE`",
        }
    }
    /// May it be used with these options as a crash has left it? Whoever used it last did so in a
    /// mode that leaves nothing but space to give back, and it is the same. Others do not keep what
    /// that mode keeps: Linux mounts an ext2 as a crash has left it, writes, and may crash too.
    pub(crate) fn is_usable_at_once(&self, o: &OpenOptions) -> bool {
        let Some(last) = self.state().filter(|s| !s.clean) else { return false };
        let of_mode = Mode::by_name(&last.mode) == Some(o.mode);
        let own = of_mode && o.mode.info().after_crash == AfterCrash::GiveBack;
        let ours = last.stamps.contains(&stamp_of(&self.superblock)) || o.plant.is(FOREIGN);
        own && ours && !self.needs_recovery && self.superblock.state() & STATE_ERROR == 0
    }
    /// Was it closed cleanly?
    pub fn is_clean(&self) -> bool {
        self.superblock.is_clean() && !self.needs_recovery && !self.lists_orphans
    }
}

/// A bug that can be planted: what another system has written since is not seen.
const FOREIGN: &str = "stale-intents-believed";

/// What everybody changes who writes to the volume: the superblock's times and its count of mounts.
pub(crate) fn stamp_of(sb: &Superblock) -> u64 {
    let (a, b) = (u64::from(sb.mtime()) << 32 | u64::from(sb.wtime()), u64::from(sb.mount_count()));
    a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(sb.last_check()) << 7
}

/// What lies at the beginning of a device in place of a volume, if it is of a known kind.
pub fn foreign(device: &dyn ReadBlocks) -> Option<foreign::Foreign> {
    let mut head = vec![0; device.size_bytes().min(foreign::LOOK_BYTES as u64) as usize];
    device.read_at(0, &mut head).ok()?;
    foreign::look(&head)
}

/// Looks at a device. Errors say what is wrong and what to do.
pub fn probe(device: &dyn ReadBlocks) -> Result<Probe, VolumeError> {
    let found = locate(device).map_err(|why| match foreign(device) {
        Some(f) => VolumeError(f.to_string()),
        None => why.into(),
    })?;
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
    let lists_orphans = found.copy_of.is_none() && superblock.lists_orphans();
    let mut unknown = superblock.features().read_only_because();
    unknown.retain(|name| !(lists_orphans && name == "orphan_present"));
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        let advice = superblock.features().written_after();
        let advice = advice.map_or(String::new(), |a| format!("; {a} takes that away"));
        let why = format!("this version does not write {names}{advice}");
        read_only = Some(format!("opened for reading only: {why}"));
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
    let plan = Plan::Nothing;
    let was_clean = superblock.is_clean() && !needs_recovery && !lists_orphans;
    let mut probe = Probe {
        superblock,
        boot,
        read_only,
        needs_recovery,
        journal,
        journal_fault,
        in_segments: false,
        lists_orphans,
        was_clean,
        plan,
    };
    probe.doubt_journal();
    Ok(probe)
}

/// The same, and at the other device that was named. Errors: the volume's journal lies outside, and
/// not there, or cannot be used.
pub(crate) fn probe_with(
    device: &dyn ReadBlocks,
    log: Option<&dyn ReadBlocks>,
) -> Result<Probe, VolumeError> {
    let mut found = probe(device)?;
    log.map_or(Ok(()), |l| found.attach(l))?;
    Ok(found)
}

/// The layout of the family of ext2.
pub(crate) struct Ext;

impl LayoutKind for Ext {
    fn probe(
        &self,
        disk: &dyn ReadBlocks,
        log: Option<&dyn ReadBlocks>,
    ) -> Result<Box<dyn FoundLayout>, VolumeError> {
        Ok(Box::new(probe_with(disk, log)?))
    }
}

impl FoundLayout for Probe {
    fn decide<'a>(
        &'a mut self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Decision, VolumeError>> {
        Box::pin(recover::decide(self, at, options))
    }
    fn recover<'a>(
        &'a mut self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Recovered, VolumeError>> {
        Box::pin(recover::carry_out(self, at, options))
    }
    fn claim<'a>(
        &'a self,
        at: &'a Place,
        options: &'a OpenOptions,
    ) -> Local<'a, Result<Option<Place>, VolumeError>> {
        Box::pin(async move {
            if options.read_only || self.read_only.is_some() {
                mmp::warn_reader(at, &self.superblock).await;
                return Ok(None);
            }
            mmp::claim(at, &self.superblock, options).await
        })
    }
    fn has_leftovers(&self) -> bool {
        self.superblock.last_orphan() != 0
    }
    fn load(
        self: Box<Self>,
        at: Place,
        options: OpenOptions,
    ) -> Local<'static, Result<Rc<dyn Volume>, VolumeError>> {
        Box::pin(async move { load::load(at, *self, options).await.map_err(VolumeError) })
    }
    fn id_in_log(&self) -> ([u8; 16], String) {
        (log::id_in_log(&self.superblock), self.superblock.label())
    }
    fn ext(&self) -> Option<&Probe> {
        Some(self)
    }
    fn ext_mut(&mut self) -> Option<&mut Probe> {
        Some(self)
    }
}
