//! What the kernel holds back: pages of mapped files that were written to and that it has not sent
//! yet. It asks where a file has holes, and sets the flags after which nothing may be written any
//! more, without sending them first; so it is made to. It sends what is dirty of a file when it is
//! told that the pages it keeps of that are out of date.

use crate::shared::Shared;
use host::Pool;
use std::sync::Arc;
use vfs::{Request, Work};

/// Flags of an inode, as Linux has them: nothing of it changes, or it only grows.
const BINDING: u32 = 0x10 | 0x20;

/// The file of whose contents more has to be known before the request is answered.
fn file_of(request: &Request) -> Option<u32> {
    match request {
        Request::Seek { ino, .. } => Some(*ino),
        Request::SetFlags { ino, flags } if flags & BINDING != 0 => Some(*ino),
        _ => None,
    }
}

/// Does the call itself if it needs pages of a file that the kernel may hold back: on a thread of
/// its own, as the kernel waits for our answers to what it sends. Else it is given back.
pub(crate) fn send_first(
    pool: &Arc<Pool>,
    volume: usize,
    shared: &Arc<Shared>,
    work: Work,
) -> Option<Work> {
    let Work::Call(_, call) = &work else { return Some(work) };
    let Some(ino) = file_of(&call.request) else { return Some(work) };
    let later = Arc::new(std::sync::Mutex::new(Some(work)));
    let (pool, shared, taken) = (pool.clone(), shared.clone(), later.clone());
    let thread = std::thread::Builder::new().name("held back".into()).spawn(move || {
        shared.have_pages_sent(ino);
        let work = taken.lock().expect("nobody panics while holding it").take();
        pool.enter(volume, &mut work.into_iter().collect());
    });
    match thread {
        Ok(_) => None,
        // There is none to be had: what the volume knows has to do.
        Err(_) => later.lock().expect("nobody panics while holding it").take(),
    }
}
