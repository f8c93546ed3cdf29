//! Reading entries in order, a segment at a time, up to the prefix that was durable when the scan
//! began. It joins the parts of long entries, and drops one whose rest never became durable.

use crate::error::LogError;
use crate::layout::{ClientId, EntryHeader, FIRST, LAST, Lsn};
use crate::state::Inner;
use crate::walk::Walk;
use std::collections::VecDeque;
use std::rc::Rc;

/// An entry as it was appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Where it begins.
    pub lsn: Lsn,
    /// Whose it is.
    pub client: ClientId,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A scan of a log.
pub struct Scan {
    walk: Walk,
    from: Lsn,
    end: Lsn,
    only: Option<ClientId>,
    ready: VecDeque<Entry>,
    /// An entry whose last part has not come yet.
    partial: Option<Entry>,
    /// The entry that was read last.
    newest: Option<Lsn>,
}

impl Scan {
    pub(crate) fn new(log: &Rc<Inner>, from: Lsn, only: Option<ClientId>) -> Scan {
        let s = log.state.borrow();
        let from = from.max(s.sb.head);
        // A segment in use begins with a group; the position may be in the middle of one.
        let start = s.sb.floor(from.min(s.durable)).max(s.sb.floor(s.sb.head));
        let durable = s.durable;
        assert!(start <= durable, "I1: a scan begins at {start}, and {durable} is durable");
        Scan {
            walk: Walk::new(log.area.clone(), s.sb.clone(), start, log.plant).beside(),
            from,
            end: durable,
            only,
            ready: VecDeque::new(),
            partial: None,
            newest: None,
        }
    }

    /// How far it has come, and how far it will go, as LSNs: for a progress bar.
    pub fn progress(&self) -> (Lsn, Lsn) {
        (self.walk.at.min(self.end), self.end)
    }

    /// The next entry.
    pub async fn next(&mut self) -> Result<Option<Entry>, LogError> {
        loop {
            if let Some(e) = self.ready.pop_front() {
                return Ok(Some(e));
            }
            if self.walk.at >= self.end || self.from >= self.end {
                return Ok(None);
            }
            let Some(group) = self.walk.next().await? else {
                let what = format!("the chain of groups ends before LSN {}", self.end);
                return Err(LogError::Damaged { what, at: self.walk.at });
            };
            let parts = self.walk.entries(&group).expect("a valid group's entries are whole");
            for (lsn, h, bytes) in parts {
                if let Some(e) = join(&mut self.partial, lsn, &h, bytes)
                    && e.lsn >= self.from
                    && self.only.is_none_or(|c| c == e.client)
                {
                    let before = self.newest.replace(e.lsn);
                    assert!(before < Some(e.lsn), "I1: {} is read after {before:?}", e.lsn);
                    self.ready.push_back(e);
                }
            }
        }
    }
}

/// Adds a part; returns the entry when it is complete. A part that does not continue what came
/// before belongs to an entry whose beginning was trimmed, or whose end was never written.
fn join(partial: &mut Option<Entry>, lsn: Lsn, h: &EntryHeader, bytes: &[u8]) -> Option<Entry> {
    if h.flags & FIRST != 0 {
        let entry = Entry { lsn, client: ClientId(h.client), bytes: bytes.to_vec() };
        *partial = Some(entry);
    } else {
        let e = partial.as_mut()?;
        if e.bytes.len() != h.offset as usize || e.client.0 != h.client {
            *partial = None;
            return None;
        }
        e.bytes.extend_from_slice(bytes);
    }
    if h.flags & LAST != 0 { partial.take() } else { None }
}
