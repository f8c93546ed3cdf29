//! Has a volume what a mode needs? That is asked before it is opened, so that nothing is made or
//! promised for it in vain, when it is opened, and by whoever picks a mode for a user who names
//! none: what is picked has to work, or the refusal has to name what does.

use crate::Probe;
use format::ext::boot::BootArea;
use format::ext::features::compat;
use mechanisms::{Keeps, Mode, ModeOption};

impl Probe {
    /// The mode of who names none: the fastest of those that lose nothing, where the volume has a
    /// journal whose space its log can take, and the one without a journal where it has none. A
    /// journal that needs recovery, or lies on another device, shows that the volume is used with
    /// it, by Linux or by us. `has_log`: is another device named for its log?
    pub fn default_mode(&self, has_log: bool) -> Mode {
        let inside = self.journal.as_ref().is_some_and(|j| !j.outside);
        match (self.needs_recovery, inside && self.journal_fault.is_none()) {
            (true, _) if !self.has_private_log() => Mode::AS_ELSEWHERE,
            (_, true) => Mode::DEFAULT,
            _ if self.in_segments => Mode::IN_SEGMENTS,
            // Where its device was not named, one that can do without goes on without.
            _ if self.superblock.journal_is_outside() && (has_log || !self.is_plain()) => {
                Mode::AS_ELSEWHERE
            }
            _ => Mode::WITHOUT_JOURNAL,
        }
    }

    /// The mode it was last used in, or else the default: what is on the volume, or named for its
    /// log, may have changed since.
    pub fn usual_mode(&self, has_log: bool) -> Mode {
        let works = |mode: &Mode| {
            let at_place = self.in_segments || mode.info().keeps != Keeps::Segments;
            let takes_log = !has_log || mode.takes(ModeOption::Log);
            at_place && takes_log && check(self, *mode, has_log).is_ok()
        };
        let last = self.last_mode().and_then(Mode::by_name).filter(works);
        last.unwrap_or_else(|| self.default_mode(has_log))
    }

    /// Why no log can be named for it, in whatever mode; None: there are modes that take one.
    pub fn takes_no_log(&self) -> Option<&'static str> {
        if self.superblock.has_compat(compat::HAS_JOURNAL) {
            return None;
        }
        Some(match self.in_segments {
            true => "the volume lies in a log-structured store, which is its log",
            false => {
                "the volume has no journal, and the modes with a log need one: `tune2fs -j IMAGE` \
                 adds it"
            }
        })
    }

    /// Why a mode cannot write it, and what to do; None: nothing is known that keeps it from that.
    pub fn refuses(&self, mode: Mode, has_log: bool) -> Option<String> {
        check(self, mode, has_log).err()
    }

    /// Is it of a kind that every mode writes?
    fn is_plain(&self) -> bool {
        self.superblock.features().journal_only_because().is_empty()
    }
}

/// Has the volume what the mode needs? Errors: why not, and what works, with IMAGE for its name.
pub(crate) fn check(probe: &Probe, mode: Mode, has_log: bool) -> Result<(), String> {
    if has_log && mode.is_redo() && probe.boot == BootArea::Foreign {
        return Err("bytes 0 to 1023 hold something else (a boot loader?), so that it cannot be \
                    recorded there which log the volume needs after a crash: --use-boot-area uses \
                    them, and without --log the log is in the journal"
            .into());
    }
    let outside = probe.superblock.journal_is_outside();
    if !mode.writes_ext4() && !probe.is_plain() {
        return Err(written_in_place(probe, mode));
    }
    if !mode.is_atomic() {
        return Ok(());
    }
    if outside && mode.is_redo() {
        return Err(format!(
            "mode {mode} needs a journal inside the volume, which keeps others off while the log \
             holds something; this volume's is on another device: --mode ordered with --log PATH \
             uses that one, and so do the other modes with a journal"
        ));
    }
    if outside && probe.journal.is_none() {
        return Err(format!(
            "mode {mode}: the volume's journal is on another device: --log PATH names that"
        ));
    }
    if mode.is_journal() && !outside && has_log {
        return Err(format!(
            "mode {mode}: --log names another device, and this volume's journal is inside; cairn \
             mkfs --log PATH makes a volume with its journal there, and the modes unified and redo \
             have their log there"
        ));
    }
    if probe.journal.is_some() {
        return Ok(());
    }
    if let Some(why) = &probe.journal_fault {
        return Err(format!("mode {mode}: {why}; cairn fsck --repair makes a new journal"));
    }
    let instead = match (probe.in_segments, probe.is_plain()) {
        (true, _) => "in a log-structured store --mode lfs needs none",
        (_, true) => {
            "`tune2fs -j IMAGE` adds one, and without one --mode sync, soft-updates and async \
             write it"
        }
        (_, false) => NONE_OF_EXT4,
    };
    Err(format!("mode {mode} needs a journal, which this volume does not have: {instead}"))
}

/// What to do about a volume of ext4 that has no journal.
const NONE_OF_EXT4: &str = "`tune2fs -j IMAGE` adds one, and then no mode need be named; without \
                            one only --mode async writes it, which promises nothing after a crash \
                            (and over NFS asks for --unsafe-async)";

/// Why a mode that writes blocks in place does not write this volume, and what does.
fn written_in_place(probe: &Probe, mode: Mode) -> String {
    let instead = if probe.superblock.journal_is_outside() {
        "its journal is on another device, and with --log PATH, which names that, --mode ordered \
         writes it, and so do the other modes with a journal"
            .to_owned()
    } else if let Some(why) = &probe.journal_fault {
        format!("{why}; cairn fsck --repair makes a new journal, and with one --mode unified does")
    } else if probe.journal.is_some() {
        "--mode unified writes it, and so do redo and the modes with a journal".to_owned()
    } else {
        format!("the modes with a journal write it, but it has none: {NONE_OF_EXT4}")
    };
    let names = probe.superblock.features().journal_only_because().join(", ");
    format!(
        "mode {mode} writes blocks in place, where a power cut would leave wrong checksums or \
         half a tree of extents in a volume with {names}: {instead}; cairn mkfs --profile ext3 \
         makes a volume for mode {mode}"
    )
}
