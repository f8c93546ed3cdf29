//! What other servers of a pool say, and since when each was not heard of, by this machine's own
//! clock: nobody believes anybody else's.

use super::record::{Record, SERVERS};
use host::Objects;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A server, as it was heard of last.
pub struct Heard {
    pub record: Record,
    at: Instant,
}

impl Heard {
    pub fn silent(&self, now: Instant) -> Duration {
        now.duration_since(self.at)
    }
}

/// All that have ever said something, and are not forgotten.
#[derive(Default)]
pub struct Members(pub BTreeMap<String, Heard>);

impl Members {
    /// Looks at what they say now, but for `me`. Who has never been seen before counts as heard of
    /// now. Errors: the bucket's; then nothing has changed.
    pub fn look(&mut self, objects: &Objects, me: &str) -> Result<(), String> {
        let mut said = BTreeMap::new();
        for name in objects.list(SERVERS)? {
            let Some(id) = name.strip_prefix(SERVERS).filter(|id| *id != me) else { continue };
            let raw = objects.get(&name)?;
            if let Some(record) = raw.as_deref().and_then(Record::decode) {
                said.insert(id.to_owned(), record);
            }
        }
        let now = Instant::now();
        self.0.retain(|id, _| said.contains_key(id));
        for (id, record) in said {
            let same = |h: &&Heard| h.record.count == record.count;
            let at = self.0.get(&id).filter(same).map_or(now, |h| h.at);
            self.0.insert(id, Heard { record, at });
        }
        Ok(())
    }
}
