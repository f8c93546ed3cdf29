//! What is at every path of a volume, read by its requests from inside the engine. It knows nothing
//! of what should be there; but what cannot be read is an error, and never a file that is shorter:
//! who compares contents where any may be would not see the difference. A name that is listed twice
//! and a listing that never ends are errors too.

use crate::acts::owner_of;
use crate::contents::Contents;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use vfs::{Call, DirEntry, FsError, Kind, Reply, Request, Time, Volume};

/// A file is read in pieces of so many bytes.
const READ_BYTES: u64 = 256 << 10;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What kind of file.
    pub kind: Kind,
    /// Its inode.
    pub ino: u32,
    /// Its length.
    pub size: u64,
    /// Its contents, or a link's text.
    pub bytes: Contents,
    /// Its attribute, where that was asked for: how many bytes of which value.
    pub attribute: Option<(usize, u8)>,
    /// The number that its owner, group and permissions stand for; None: it is as it was made.
    /// Some(0): they are not of one change.
    pub owner: Option<u8>,
    /// Its permissions.
    pub mode: u32,
    /// When its contents were changed last, when its inode, and when it was read.
    pub times: [Time; 3],
}

impl Seen {
    /// Is it the same, whenever it was read?
    pub(crate) fn is_same(&self, other: &Seen) -> bool {
        let (mut a, mut b) = (self.clone(), other.clone());
        (a.times[2], b.times[2]) = Default::default();
        a == b
    }
}

/// Is the same there and there, or nothing, whenever it was read?
pub(crate) fn both_same(a: Option<&Seen>, b: Option<&Seen>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.is_same(b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Names of one object are of one inode, and names of two are of two: paths, each with the inode
/// that was found and the object that was expected. Who compares name by name takes two empty files
/// for one. Errors: the names of which that is not so.
pub(crate) fn same_objects<'a>(
    all: impl IntoIterator<Item = (&'a str, u32, usize)>,
) -> Result<(), String> {
    let (mut inos, mut objects) = (BTreeMap::new(), BTreeMap::new());
    for (path, ino, id) in all {
        let (of_ino, first) = *inos.entry(ino).or_insert((id, path));
        if of_ino != id {
            return Err(format!("{path} and {first} are one inode, {ino}, and not two"));
        }
        let (of_object, first) = *objects.entry(id).or_insert((ino, path));
        if of_object != ino {
            return Err(format!("{path} and {first} are two inodes, {ino} and {of_object}"));
        }
    }
    Ok(())
}

/// Every path and what is there.
pub(crate) type Paths = BTreeMap<String, Seen>;

/// Every path of the volume with its kind, size and (with `contents`) bytes. Without lost+found.
/// `twice`: a directory may have two names, and is then seen under both.
pub(crate) async fn paths(
    volume: &Rc<dyn Volume>,
    contents: bool,
    twice: bool,
) -> Result<Paths, FsError> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![(String::new(), 2u32, vec![2u32])];
    let mut seen_dirs = BTreeSet::new();
    // Whoever has read a file by one name has changed when it was read.
    let mut times: BTreeMap<u32, [Time; 3]> = BTreeMap::new();
    while let Some((path, dir, above)) = dirs.pop() {
        if !seen_dirs.insert(dir) && !twice {
            return Err(FsError::Io); // a directory with two names, which damage can make
        }
        for e in list(volume, dir).await? {
            let name = String::from_utf8_lossy(&e.name).into_owned();
            if (path.is_empty() && name == "lost+found") || name == "." || name == ".." {
                continue;
            }
            let at = format!("{path}/{name}");
            let mut seen = look(volume, e.ino, contents).await?;
            seen.times = *times.entry(e.ino).or_insert(seen.times);
            if seen.kind == Kind::Dir && !above.contains(&e.ino) {
                let above = above.iter().copied().chain([e.ino]).collect();
                dirs.push((at.clone(), e.ino, above));
            }
            if all.insert(at, seen).is_some() {
                return Err(FsError::Io); // a directory that has one name twice
            }
        }
    }
    Ok(all)
}

async fn ask(volume: &Rc<dyn Volume>, request: Request) -> Result<Reply, FsError> {
    volume.clone().call(Call::local(request)).await.result
}

async fn list(volume: &Rc<dyn Volume>, dir: u32) -> Result<Vec<DirEntry>, FsError> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let request =
            Request::ReadDir { dir, cookie, max_bytes: 4096, entry_bytes: 24, attrs: false };
        let Reply::Dir { entries, eof, .. } = ask(volume, request).await? else {
            return Err(FsError::Io);
        };
        if entries.is_empty() && !eof {
            return Err(FsError::Io); // it would be asked for ever
        }
        cookie = entries.last().map_or(cookie, |e| e.cookie);
        all.extend(entries);
        if eof {
            return Ok(all);
        }
    }
}

async fn look(volume: &Rc<dyn Volume>, ino: u32, contents: bool) -> Result<Seen, FsError> {
    let Reply::Attr(a) = ask(volume, Request::GetAttr { ino }).await? else {
        return Err(FsError::Io);
    };
    let mut bytes = Contents::default();
    if a.kind() == Kind::Symlink {
        let Reply::Bytes(text) = ask(volume, Request::ReadLink { ino }).await? else {
            return Err(FsError::Io);
        };
        bytes = Contents::from(&text[..]);
    }
    if contents && a.kind() == Kind::File {
        // A long file comes in pieces.
        while bytes.len() < a.size {
            let (offset, len) = (bytes.len(), (a.size - bytes.len()).min(READ_BYTES));
            let read = Request::Read { ino, offset, len: len as u32 };
            let Reply::Data { data, .. } = ask(volume, read).await? else {
                return Err(FsError::Io);
            };
            if data.is_empty() {
                return Err(FsError::Io); // its length says that there is more
            }
            data.parts().for_each(|part| bytes.write(bytes.len(), part));
        }
    }
    let owner = owner_of(a.mode, a.uid, a.gid);
    let (kind, size, mode, times) = (a.kind(), a.size, a.mode, [a.mtime, a.ctime, a.atime]);
    Ok(Seen { kind, ino, size, bytes, attribute: None, owner, mode, times })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::Act;
    use crate::setting::{Setting, new_disks};
    use crate::subject::{Subject, Task};
    use env::{Local, Rope};
    use integrity::Plant;
    use sim::Fault;
    use vfs::Answer;
    use volume::Mode;

    /// Contents of which a part cannot be read, in a mode that promises nothing of them.
    #[test]
    fn a_file_that_cannot_be_read_is_no_shorter_one() {
        let setting = Setting::plain(Mode::Writeback);
        let open = |disks| Subject::open(disks, setting, true, (Plant::NONE, 1)).unwrap();
        let disks = new_disks(2 << 20, setting);
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
        v.act(1, &Act::Create("/f".into())).unwrap();
        v.act(2, &Act::Write("/f".into(), 0, 9000, 0xa7)).unwrap();
        let closed = v.close().unwrap();
        assert_eq!(open(closed.clone()).tree(true).unwrap()["/f"].bytes.len(), 9000);
        let bytes = closed[0].to_vec();
        let block = bytes.chunks(1024).rposition(|b| *b == [0xa7; 1024]).unwrap();
        let mut v = open(closed);
        v.world.set_fault(Fault::Read(block as u64 * 1024));
        assert_eq!(v.tree(true).map(|tree| tree["/f"].size), Err(FsError::Io));
        assert_eq!(v.tree(false).map(|tree| tree["/f"].size), Ok(9000));
    }

    /// A volume whose answers somebody has changed.
    struct Changed(Rc<dyn Volume>, fn(&mut Reply));

    impl Volume for Changed {
        fn call(self: Rc<Self>, call: Call) -> Local<'static, Answer> {
            Box::pin(async move {
                let mut answer = self.0.clone().call(call).await;
                answer.result.iter_mut().for_each(self.1);
                answer
            })
        }
        fn close(self: Rc<Self>) -> Local<'static, Result<(), FsError>> {
            self.0.clone().close()
        }
    }

    /// A file of 9,000 bytes, and a volume that changes its answers so: it is not to be believed.
    fn not_believed(change: fn(&mut Reply)) {
        let setting = Setting::plain(Mode::Writeback);
        let disks = new_disks(2 << 20, setting);
        let mut v = Subject::open(disks, setting, false, (Plant::NONE, 1)).unwrap();
        v.act(1, &Act::Create("/f".into())).unwrap();
        v.act(2, &Act::Write("/f".into(), 0, 9000, 0xa7)).unwrap();
        let look: Task = Box::new(move |_, volume| {
            Box::pin(async move {
                assert_eq!(paths(&volume, true, false).await?["/f"].bytes.len(), 9000);
                let changed: Rc<dyn Volume> = Rc::new(Changed(volume, change));
                let seen = paths(&changed, true, false).await;
                assert_eq!(seen.map(|all| all["/f"].bytes.len()), Err(FsError::Io));
                Ok(())
            })
        });
        v.together(vec![look]).unwrap();
    }

    #[test]
    fn a_read_that_ends_before_the_file_does_is_no_shorter_file() {
        not_believed(|reply| {
            if let Reply::Data { data, .. } = reply {
                *data = Rope::default();
            }
        });
    }

    #[test]
    fn a_listing_that_brings_nothing_and_goes_on_is_given_up() {
        not_believed(|reply| {
            if let Reply::Dir { entries, eof, .. } = reply {
                (*entries, *eof) = (Vec::new(), false);
            }
        });
    }

    #[test]
    fn a_name_that_is_listed_twice_is_no_name() {
        not_believed(|reply| {
            if let Reply::Dir { entries, .. } = reply {
                let last = entries.last().cloned();
                entries.extend(last);
            }
        });
    }
}
