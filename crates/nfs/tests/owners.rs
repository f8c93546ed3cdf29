//! Whose a file is and which set-id bits it has, after each procedure that makes or changes one,
//! for callers by AUTH_SYS: tables of what was asked and what must be there. The rules are those of
//! Linux's server (fs/nfsd/vfs.c, fs/attr.c).

#![allow(clippy::unwrap_used, reason = "a test may")]

mod hostile;

use hostile::{Bench, NFS, call_as, opaque, word, words};
use vfs::{Kind, MakeKind, Reply, Request, SetAttr};

const PERM: u32 = 1;
const ACCES: u32 = 13;
const INVAL: u32 = 22;
const FBIG: u32 = 27;

type Who = (u32, u32, &'static [u32]);
const ROOT: Who = (0, 0, &[]);
/// The owner of what there is, a member of group 50 too.
const ANNA: Who = (1000, 1000, &[50]);
const BERT: Who = (1001, 1001, &[]);

/// Mode, owner and group of a `sattr3`, and a length.
#[derive(Clone, Copy, Default)]
struct Set {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
}

impl Set {
    fn xdr(self) -> Vec<u8> {
        let some = |v: Option<u32>| v.map_or(words(&[0]), |v| words(&[1, v]));
        let size =
            self.size.map_or(words(&[0]), |s| [words(&[1]), s.to_be_bytes().into()].concat());
        [some(self.mode), some(self.uid), some(self.gid), size, words(&[0, 0])].concat()
    }
}

fn ids(mode: u32, uid: u32, gid: u32) -> Set {
    Set { mode: Some(mode), uid: Some(uid), gid: Some(gid), size: None }
}
fn mode(mode: u32) -> Set {
    Set { mode: Some(mode), ..Set::default() }
}

/// What is to be made, as a procedure and what follows the name and the attributes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    File,
    Dir,
    Link,
    Fifo,
    Block(u32, u32),
    Char(u32, u32),
}

struct Tree {
    bench: Bench,
    root: Vec<u8>,
}

impl Tree {
    fn new() -> Tree {
        let mut bench = Bench::new();
        let root = bench.root();
        Tree { bench, root }
    }

    fn ask(&mut self, who: Who, procedure: u32, args: &[u8]) -> Vec<u8> {
        let xid = self.bench.next_xid();
        self.bench.one(&call_as(who, xid, (NFS, 3, procedure), args))
    }

    /// Makes something in `dir`: its handle, or why not.
    fn make(&mut self, who: Who, dir: &[u8], what: What, set: Set) -> Result<Vec<u8>, u32> {
        let name = format!("n{}", self.bench.next_xid());
        let at = [opaque(dir), opaque(name.as_bytes())].concat();
        let device = |kind: u32, major, minor| {
            (11, [words(&[kind]), set.xdr(), words(&[major, minor])].concat())
        };
        let (procedure, how) = match what {
            What::File => (8, [words(&[1]), set.xdr()].concat()),
            What::Dir => (9, set.xdr()),
            What::Link => (10, [set.xdr(), opaque(b"text")].concat()),
            What::Fifo => (11, [words(&[7]), set.xdr()].concat()),
            What::Block(major, minor) => device(3, major, minor),
            What::Char(major, minor) => device(4, major, minor),
        };
        let reply = self.ask(who, procedure, &[at, how].concat());
        match word(&reply, 6).unwrap() {
            0 => Ok(reply[36..60].to_vec()),
            why => Err(why),
        }
    }

    /// Mode, owner and group.
    fn stat(&mut self, handle: &[u8]) -> (u32, u32, u32) {
        let reply = self.ask(ROOT, 1, &opaque(handle));
        assert_eq!(word(&reply, 6), Some(0));
        (word(&reply, 8).unwrap(), word(&reply, 10).unwrap(), word(&reply, 11).unwrap())
    }

    fn set(&mut self, who: Who, handle: &[u8], set: Set) -> u32 {
        let reply = self.ask(who, 2, &[opaque(handle), set.xdr(), words(&[0])].concat());
        word(&reply, 6).unwrap()
    }

    /// Makes something with just these attributes, past all rules.
    fn plain(&mut self, kind: MakeKind, of: (u32, u32, u32)) -> Vec<u8> {
        self.numbered(kind, of).1
    }

    /// The same, and its inode's number.
    fn numbered(&mut self, kind: MakeKind, (mode, uid, gid): (u32, u32, u32)) -> (u32, Vec<u8>) {
        let name = format!("p{}", self.bench.next_xid()).into_bytes();
        let attr = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let made = self.bench.ask(Request::Make {
            dir: 2,
            name: name.clone(),
            kind,
            attr,
            fail_if_exists: true,
            umask: 0,
        });
        let Ok(Reply::Entry { attr, .. }) = made else { panic!("{made:?}") };
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.bench.ask(Request::SetAttr { ino: attr.ino, set }).unwrap();
        let root = self.root.clone();
        let found = self.ask(ROOT, 3, &[opaque(&root), opaque(&name)].concat());
        (attr.ino, found[32..56].to_vec())
    }

    fn dir(&mut self, of: (u32, u32, u32)) -> Vec<u8> {
        self.plain(MakeKind::Dir, of)
    }
}

#[test]
fn what_is_made_is_its_makers() {
    let mut t = Tree::new();
    let open = t.dir((0o1777, 0, 0));
    let setgid = t.dir((0o2777, 0, 60));
    let (no, none) = (Set::default(), (0, 1000, 1000));
    for what in [What::File, What::Dir, What::Link, What::Fifo] {
        let bits = |m| if what == What::Link { 0o777 } else { m };
        // Who asks, where, for what; what there is then.
        let cases = [
            (ANNA, &open, no, none),
            (ANNA, &open, ids(0o644, 0, 0), (0o644, 1000, 1000)),
            (ANNA, &open, ids(0o4755, 0, 1000), (0o4755, 1000, 1000)),
            (ANNA, &open, ids(0o2755, 1001, 1001), (0o2755, 1000, 1000)),
            (ANNA, &open, ids(0o2750, 1000, 50), (0o2750, 1000, 50)),
            (ANNA, &setgid, ids(0o644, 1000, 50), (0o644, 1000, 60)),
            (ANNA, &setgid, ids(0o6755, 0, 0), (0o4755, 1000, 60)),
            (ROOT, &open, ids(0o4755, 7, 8), (0o4755, 7, 8)),
            (ROOT, &setgid, ids(0o2755, 7, 8), (0o2755, 7, 8)),
            (ROOT, &setgid, mode(0o600), (0o600, 0, 60)),
        ];
        for (n, (who, dir, set, (m, uid, gid))) in cases.into_iter().enumerate() {
            let made = t.make(who, dir, what, set).unwrap();
            let inherits = if what == What::Dir && *dir == setgid { 0o2000 } else { 0 };
            assert_eq!(t.stat(&made), (bits(m | inherits), uid, gid), "{what:?}, case {n}");
        }
    }
}

#[test]
fn devices_are_roots_and_have_numbers_that_there_are() {
    let mut t = Tree::new();
    let open = t.dir((0o777, 0, 0));
    let closed = t.dir((0o755, 0, 0));
    let cases = [
        (ANNA, &open, What::Block(254, 0), Err(PERM)),
        (ANNA, &open, What::Char(1, 1), Err(PERM)),
        (ANNA, &closed, What::Char(1, 1), Err(ACCES)),
        (ANNA, &open, What::Fifo, Ok(())),
        (ROOT, &open, What::Block(254, 0), Ok(())),
        (ROOT, &open, What::Block(4095, 1_048_575), Ok(())),
        (ROOT, &open, What::Block(4096, 0), Err(INVAL)),
        (ROOT, &open, What::Char(0, 1 << 20), Err(INVAL)),
        (ROOT, &open, What::Char(u32::MAX, u32::MAX), Err(INVAL)),
    ];
    for (who, dir, what, want) in cases {
        let got = t.make(who, dir, what, ids(0o666, who.0, who.1)).map(drop);
        assert_eq!(got, want, "{what:?} by {}", who.0);
    }
}

#[test]
fn attributes_are_set_by_whom_they_belong_to() {
    let mut t = Tree::new();
    let file = || MakeKind::File { exclusive: None };
    let chown = |uid: Option<u32>, gid: Option<u32>| Set { uid, gid, ..Set::default() };
    let size = |size| Set { size: Some(size), ..Set::default() };
    let s = |m| (m, 1000, 1000);
    // What there is, who asks for what; the answer, and what there is then.
    let cases = [
        // The same owner again: nobody but the owner and root may say it, and set-id bits go.
        (file(), s(0o6755), BERT, chown(Some(1000), None), PERM, s(0o6755)),
        (file(), s(0o6755), BERT, chown(None, Some(1000)), PERM, s(0o6755)),
        (file(), s(0o6777), BERT, chown(Some(1000), Some(1000)), PERM, s(0o6777)),
        (file(), s(0o6755), ANNA, chown(Some(1000), None), 0, s(0o755)),
        (file(), s(0o6755), ANNA, chown(None, Some(50)), 0, (0o755, 1000, 50)),
        (file(), s(0o6755), ROOT, chown(Some(1), Some(2)), 0, (0o755, 1, 2)),
        // Set-group-id without execution by the group is no privilege, for a member.
        (file(), s(0o6744), ANNA, chown(None, Some(50)), 0, (0o2744, 1000, 50)),
        (file(), (0o2744, 1000, 9), ANNA, chown(None, Some(50)), 0, (0o744, 1000, 50)),
        (file(), s(0o644), ANNA, chown(Some(1001), None), PERM, s(0o644)),
        (file(), s(0o644), ANNA, chown(None, Some(60)), PERM, s(0o644)),
        // Owner and mode at once.
        (file(), s(0o644), ANNA, ids(0o6755, 1000, 50), 0, (0o755, 1000, 50)),
        // Other kinds are as files; directories keep what means something else there.
        (
            MakeKind::Special(Kind::Fifo, (0, 0)),
            s(0o6755),
            ANNA,
            chown(None, Some(50)),
            0,
            (0o755, 1000, 50),
        ),
        (
            MakeKind::Special(Kind::Block, (7, 7)),
            s(0o6755),
            ANNA,
            chown(Some(1000), None),
            0,
            s(0o755),
        ),
        (MakeKind::Dir, s(0o6755), ANNA, chown(None, Some(50)), 0, (0o6755, 1000, 50)),
        (MakeKind::Dir, s(0o6755), BERT, chown(Some(1000), None), PERM, s(0o6755)),
        // chmod.
        (file(), s(0o644), BERT, mode(0o666), PERM, s(0o644)),
        (file(), s(0o644), ANNA, mode(0o6755), 0, s(0o6755)),
        (file(), (0o644, 1000, 60), ANNA, mode(0o6755), 0, (0o4755, 1000, 60)),
        (file(), (0o644, 1000, 60), ROOT, mode(0o6755), 0, (0o6755, 1000, 60)),
        // A length is contents.
        (file(), s(0o6755), BERT, size(0), ACCES, s(0o6755)),
        (file(), s(0o6777), BERT, size(0), 0, s(0o777)),
        (file(), s(0o6755), ANNA, size(0), 0, s(0o755)),
        (file(), s(0o6755), ROOT, size(0), 0, s(0o6755)),
    ];
    for (n, (kind, of, who, set, answer, after)) in cases.into_iter().enumerate() {
        let handle = t.plain(kind, of);
        assert_eq!(t.stat(&handle), of, "case {n}");
        assert_eq!(t.set(who, &handle, set), answer, "case {n}");
        assert_eq!(t.stat(&handle), after, "case {n}");
    }
}

#[test]
fn whoever_writes_takes_set_id_bits_away() {
    let mut t = Tree::new();
    for (who, before, answer, after) in [
        (ANNA, 0o6755, 0, 0o755),
        (BERT, 0o6777, 0, 0o777),
        (BERT, 0o6755, ACCES, 0o6755),
        (ANNA, 0o2766, 0, 0o2766),
        (BERT, 0o2766, 0, 0o766),
        (ROOT, 0o6755, 0, 0o6755),
    ] {
        let file = t.plain(MakeKind::File { exclusive: None }, (before, 1000, 1000));
        let args = [opaque(&file), words(&[0, 0, 1, 2]), opaque(b"x")].concat();
        let reply = t.ask(who, 7, &args);
        assert_eq!(word(&reply, 6), Some(answer), "{before:o} by {}", who.0);
        assert_eq!(t.stat(&file), (after, 1000, 1000), "{before:o} by {}", who.0);
    }
}

/// What root has given a file as it was, another one has not.
#[test]
fn whoever_changes_a_file_takes_its_capabilities_away() {
    let mut t = Tree::new();
    let write = words(&[0, 0, 1, 2]);
    let (cut, given) =
        (Set { size: Some(0), ..Set::default() }, Set { uid: Some(1000), ..Set::default() });
    let zero = words(&[0]);
    let all = [
        (BERT, 7, [write.clone(), opaque(b"x")].concat(), 0, false),
        (ANNA, 2, [cut.xdr(), zero.clone()].concat(), 0, false),
        (ROOT, 2, [given.xdr(), zero.clone()].concat(), 0, false),
        (ANNA, 2, [mode(0o700).xdr(), zero].concat(), 0, true),
        ((1002, 1002, &[]), 7, [write, opaque(b"x")].concat(), ACCES, true),
    ];
    for (n, (who, procedure, args, answer, stays)) in all.into_iter().enumerate() {
        let bits = if answer == 0 { 0o766 } else { 0o744 };
        let (ino, file) = t.numbered(MakeKind::File { exclusive: None }, (bits, 1000, 1000));
        let name = || b"security.capability".to_vec();
        let (value, either) = (vec![1; 20], vfs::XattrMode::Either);
        let set = Request::SetXattr { ino, name: name(), value, mode: either, kill_sgid: false };
        t.bench.ask(set).unwrap();
        let reply = t.ask(who, procedure, &[opaque(&file), args].concat());
        assert_eq!(word(&reply, 6), Some(answer), "{n}");
        let has = t.bench.ask(Request::GetXattr { ino, name: name() }).is_ok();
        assert_eq!(has, stays, "{n}: after procedure {procedure} by {}", who.0);
    }
    // Only if the file is still what the caller takes it for.
    let (ino, file) = t.numbered(MakeKind::File { exclusive: None }, (0o755, 1000, 1000));
    let name = || b"security.capability".to_vec();
    let (value, mode) = (vec![1; 20], vfs::XattrMode::Either);
    let set = Request::SetXattr { ino, name: name(), value, mode, kill_sgid: false };
    t.bench.ask(set).unwrap();
    let told = t.ask(ROOT, 1, &opaque(&file));
    let ctime = [word(&told, 26).unwrap(), word(&told, 27).unwrap()];
    for (late, answer) in [(1, 10002), (0, 0)] {
        let guard = words(&[1, ctime[0] + late, ctime[1]]);
        let reply = t.ask(ANNA, 2, &[opaque(&file), cut.xdr(), guard].concat());
        assert_eq!(word(&reply, 6), Some(answer), "a guard {late} s late");
        let has = t.bench.ask(Request::GetXattr { ino, name: name() }).is_ok();
        assert_eq!(has, answer != 0);
    }
}

/// Who may write a file that does not change has changed nothing of it.
#[test]
fn a_refused_write_takes_nothing_away() {
    let mut t = Tree::new();
    let (ino, file) = t.numbered(MakeKind::File { exclusive: None }, (0o766, 1000, 1000));
    let name = || b"security.capability".to_vec();
    let (value, mode) = (vec![1; 20], vfs::XattrMode::Either);
    let set = Request::SetXattr { ino, name: name(), value, mode, kill_sgid: false };
    t.bench.ask(set).unwrap();
    const IMMUTABLE: u32 = 0x10;
    t.bench.ask(Request::SetFlags { ino, flags: IMMUTABLE }).unwrap();
    let far = [words(&[u32::MAX, 0, 1, 2]), opaque(b"x")].concat();
    for (flags, at, answer) in [
        (IMMUTABLE, [words(&[0, 0, 1, 2]), opaque(b"x")].concat(), PERM),
        (0, far, FBIG),
        (0, [words(&[0, 0, 0, 2]), opaque(b"")].concat(), 0),
    ] {
        t.bench.ask(Request::SetFlags { ino, flags }).unwrap();
        for who in [ROOT, ANNA, BERT] {
            let reply = t.ask(who, 7, &[opaque(&file), at.clone()].concat());
            assert_eq!(word(&reply, 6), Some(answer), "by {}", who.0);
            let has = t.bench.ask(Request::GetXattr { ino, name: name() }).is_ok();
            assert!(has, "flags {flags:#x}: after a write by {} with answer {answer}", who.0);
        }
    }
}

#[test]
fn no_file_is_made_larger_than_any_can_be() {
    let mut t = Tree::new();
    let open = t.dir((0o777, 0, 0));
    for size in [u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 50] {
        let set = Set { size: Some(size), ..Set::default() };
        assert_eq!(t.make(ANNA, &open, What::File, set).err(), Some(FBIG), "{size:#x}");
        // What has no length takes none.
        t.make(ANNA, &open, What::Dir, set).unwrap();
        t.make(ANNA, &open, What::Fifo, set).unwrap();
        t.make(ANNA, &open, What::Link, set).unwrap();
    }
    let set = Set { size: Some(5000), ..Set::default() };
    let file = t.make(ANNA, &open, What::File, set).unwrap();
    let reply = t.ask(ROOT, 1, &opaque(&file));
    assert_eq!((word(&reply, 12), word(&reply, 13)), (Some(0), Some(5000)));
}

#[test]
fn a_links_text_is_a_path() {
    let mut t = Tree::new();
    for (text, want) in [(&b"a\0b"[..], INVAL), (b"\0", INVAL), (b"a/b", 0)] {
        let at = [opaque(&t.root), opaque(text.len().to_string().as_bytes())].concat();
        let args = [at, Set::default().xdr(), opaque(text)].concat();
        assert_eq!(word(&t.ask(ROOT, 10, &args), 6), Some(want), "{text:?}");
    }
}
