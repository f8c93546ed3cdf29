//! `cairn fsck --background`: has a running server check one of its volumes while that is in use,
//! and waits until it has. It knows the server by its control socket alone.

use crate::disk::real;
use crate::progress::Bar;
use crate::size::count;
use crate::status::{Server, VolumeReport, servers, silent};
use crate::{Failure, Outcome, say};
use check::Progress;
use std::path::Path;
use std::time::Duration;

/// How often the server is asked how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The server that serves this image, or has it mounted there, and the volume's name: of several,
/// as a volume in a bucket may have, the one that writes it.
pub fn server_of(image: &Path) -> Option<(Server, String)> {
    let wanted = real(image);
    let is = |v: &VolumeReport| {
        let mount = v.mount.as_deref().map(Path::new);
        real(Path::new(&v.image)) == wanted || mount.is_some_and(|m| real(m) == wanted)
    };
    let its = servers().into_iter().filter_map(|s| {
        let v = s.report.volumes.iter().find(|v| is(v) && v.is_kept())?;
        let (name, read_only) = (v.name.clone(), v.read_only);
        Some((read_only, (s, name)))
    });
    its.min_by_key(|(read_only, _)| *read_only).map(|(_, server)| server)
}

/// What the checker beside service has done in a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scrubbed {
    /// Is a pass under way?
    pub running: bool,
    pub passes: u64,
    pub groups_done: u64,
    pub groups: u64,
    pub blocks: u64,
    pub inodes: u64,
    pub mended: u64,
    pub left: u64,
}

impl Scrubbed {
    /// From what the volume has counted.
    pub fn of(v: &VolumeReport) -> Scrubbed {
        let of = |name: &str| v.counters.get(&format!("cairn_scrub_{name}")).copied().unwrap_or(0);
        Scrubbed {
            running: of("running") > 0,
            passes: of("passes_total"),
            groups_done: of("groups_done"),
            groups: of("groups"),
            blocks: of("blocks_freed_total"),
            inodes: of("inodes_freed_total"),
            mended: of("mended_total"),
            left: of("left"),
        }
    }

    /// What has been done since then. Another process counts: whatever it says is taken.
    fn since(self, before: &Scrubbed) -> Scrubbed {
        Scrubbed {
            blocks: self.blocks.saturating_sub(before.blocks),
            inodes: self.inodes.saturating_sub(before.inodes),
            mended: self.mended.saturating_sub(before.mended),
            ..self
        }
    }

    /// As a clause.
    pub fn told(&self) -> String {
        let done = format!(
            "{} and {} given back, {} counts and names mended",
            count(self.blocks, "block"),
            count(self.inodes, "inode"),
            self.mended
        );
        match (self.running, self.passes) {
            (true, _) => {
                let (at, all) = (self.groups_done, self.groups);
                format!("checked while in use, {at} of {all} groups read; {done}")
            }
            (false, 0) => "not checked since it was opened".into(),
            (false, 1) => format!("checked once while in use; {done}"),
            (false, n) => format!("checked {n} times while in use; {done}"),
        }
    }
}

/// The command.
pub fn run(image: &Path, json: bool) -> Result<Outcome, Failure> {
    let shown = image.display();
    let Some((mut server, name)) = server_of(image) else {
        let silent = silent().map_or(String::new(), |why| format!(" and answers ({why})"));
        return Err(Failure::Failed(format!(
            "{shown}: no server of this user serves it{silent}; cairn fsck checks a volume that is \
             not served"
        )));
    };
    let failed = |e: std::io::Error| Failure::Failed(format!("{shown}: {e}"));
    let gone = || format!("{shown}: not served any more");
    let before = state(&server, &name).ok_or_else(gone)?;
    let (_, before) = before.ok_or_else(|| format!("{shown}: the volume does not answer"))?;
    server.scrub(&name).map_err(failed)?;
    let mut bar = Bar::new();
    loop {
        std::thread::sleep(ASKED_EVERY);
        server.refresh().map_err(failed)?;
        let Some((read_only, now)) = state(&server, &name).ok_or_else(gone)? else {
            continue; // it is busy
        };
        bar.step("inodes", now.groups_done, now.groups);
        if now.running {
            continue;
        }
        let did = now.since(&before);
        if json {
            tell!("{}", as_json(&did, read_only));
        } else {
            tell!("{shown}: {}", did.told());
        }
        if read_only || now.passes == before.passes {
            let why = "the volume is damaged and turned read-only, or the check was stopped; the \
                       server's log says what it is";
            say::err(&format!("cairn: {shown}: {why}"));
            return Ok(Outcome::Damaged);
        }
        return Ok(match (now.left, (did.blocks, did.inodes, did.mended)) {
            (0, (0, 0, 0)) => Outcome::Done,
            (0, _) => Outcome::Repaired,
            _ => Outcome::Damaged,
        });
    }
}

/// The volume now: did it stop writing, and what has been done, if it has answered in time; None:
/// it is gone.
fn state(server: &Server, name: &str) -> Option<Option<(bool, Scrubbed)>> {
    let v = server.report.volumes.iter().find(|v| v.name == name && v.is_kept())?;
    Some((!v.counters.is_empty()).then(|| (v.read_only, Scrubbed::of(v))))
}

fn as_json(s: &Scrubbed, read_only: bool) -> serde_json::Value {
    serde_json::json!({
        "passes": s.passes,
        "blocks_freed": s.blocks,
        "inodes_freed": s.inodes,
        "mended": s.mended,
        "left": s.left,
        "read_only": read_only,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Report;

    #[test]
    fn a_volume_that_does_not_answer_has_done_what_it_had_done() {
        let report = || -> Report {
            serde_json::from_str(include_str!("../status/example.json")).expect("it is a report")
        };
        let name = report().volumes[0].name.clone();
        let of = |report| state(&Server::of(report), &name);
        assert!(matches!(of(report()), Some(Some(_))));
        let mut silent = report();
        silent.volumes[0].counters.clear();
        assert_eq!(of(silent), Some(None));
        let mut closed = report();
        closed.volumes[0].state = "closed".into();
        assert_eq!(of(closed), None);
    }
}
