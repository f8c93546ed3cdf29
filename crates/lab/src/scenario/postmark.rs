//! PostMark, small. Half of the files are fsynced when they were written, as a mail server does.

use super::Script;
use crate::acts::Act;
use crate::postmark::{Parameters, PostMark, Step};
use env::Rng;

pub(super) fn script(seed: u64) -> Script {
    let told = Parameters { files: 24, bytes: (100, 6000), reads: 3, creates: 5 };
    let mut mail = PostMark::new(told, seed);
    let mut rng = Rng::new(!seed);
    let mut acts = |step: Step, synced: bool| -> Vec<Act> {
        let path = |f: u64| format!("/m{}/{f}", f % 3);
        let value = rng.next_u64() as u8;
        let (mut all, written) = match step {
            Step::Create(f, len) => {
                let write = Act::Write(path(f), 0, len as usize, value);
                (vec![Act::Create(path(f)), write], Some(f))
            }
            Step::Append(f, at, len) => {
                (vec![Act::Write(path(f), at, len as usize, value)], Some(f))
            }
            Step::Read(f, _) => (vec![Act::Read(path(f))], None),
            Step::Delete(f) => (vec![Act::Unlink(path(f))], None),
        };
        if synced && rng.one_in(2) {
            all.extend(written.map(|f| Act::Fsync(path(f))));
        }
        all
    };
    let mut setup: Vec<Act> = (0..3).map(|d| Act::Mkdir(format!("/m{d}"))).collect();
    setup.extend(mail.pool().into_iter().flat_map(|s| acts(s, false)));
    setup.push(Act::Sync);
    let steps = (0..20).flat_map(|_| mail.transaction()).collect::<Vec<_>>();
    let acts = steps.into_iter().flat_map(|s| acts(s, true)).collect();
    Script::new(setup, acts)
}
