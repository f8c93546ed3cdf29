//! What replies say besides yes and no: attributes wherever RFC 1813 has a place for them, refusals
//! too; permissions as they are; handles that are stale for every procedure; and that there are no
//! locks, at once.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod hostile;

use hostile::{Bench, NFS, call, call_as, opaque, word, words};
use nfs::parse_export;
use vfs::{Request, SetAttr};

const INVAL: u32 = 22;
const ROFS: u32 = 30;
const STALE: u32 = 70;
const NLM: u32 = 100_021;

fn ask(b: &mut Bench, procedure: u32, args: &[u8]) -> Vec<u8> {
    let xid = b.next_xid();
    b.one(&call(xid, (NFS, 3, procedure), args))
}

fn file(b: &mut Bench, root: &[u8], name: &[u8]) -> Vec<u8> {
    let args = [opaque(root), opaque(name), words(&[1, 1, 0o644, 0, 0, 0, 0, 0])].concat();
    let made = ask(b, 8, &args);
    assert_eq!(word(&made, 6), Some(0));
    made[36..60].to_vec()
}

/// The arguments of each procedure but NULL and MOUNT's, on a directory and a file in it that is
/// called f; `x` is nobody's name.
fn arguments(procedure: u32, dir: &[u8], of: &[u8]) -> Vec<u8> {
    let none = words(&[0; 6]);
    let (d, f, x) = (opaque(dir), opaque(of), opaque(b"x"));
    match procedure {
        1 | 5 | 18 | 19 | 20 => f,
        2 => [f, none, words(&[0])].concat(),
        4 => [f, words(&[0x3f])].concat(),
        6 => [f, words(&[0, 0, 10])].concat(),
        7 => [f, words(&[0, 0, 1, 2]), opaque(b"y")].concat(),
        8 => [d, x, words(&[1]), none].concat(),
        9 => [d, x, none].concat(),
        10 => [d, x, none, opaque(b"to")].concat(),
        11 => [d, x, words(&[7]), none].concat(),
        3 | 12 | 13 => [d, x].concat(),
        14 => [d.clone(), x, d, opaque(b"z")].concat(),
        15 => [f, d, x].concat(),
        16 => [d, words(&[0, 0, 0, 0, 4096])].concat(),
        17 => [d, words(&[0, 0, 0, 0, 4096, 4096])].concat(),
        _ => [f, words(&[0, 0, 0])].concat(),
    }
}

/// Are all attributes there that a refusal has a place for?
fn refusal_is_whole(procedure: u32, reply: &[u8]) -> bool {
    let present = |at: usize| word(reply, at) == Some(1);
    // Attributes before a change (6 words) are not asked for; where those after it begin.
    let after = |at: usize| at + 1 + if present(at) { 6 } else { 0 };
    match procedure {
        2 | 7..=13 | 21 => present(after(7)),
        14 => present(after(7)) && present(after(after(7) + 22)),
        15 => present(7) && present(after(7 + 22)),
        _ => present(7),
    }
}

#[test]
fn refusals_tell_the_attributes() {
    let mut b = Bench::new();
    let root = b.root();
    let f = file(&mut b, &root, b"f");
    // A file where a directory has to be, and the other way round; a name that is not there or is.
    for procedure in (2..=21).filter(|p| !matches!(p, 1 | 2 | 4 | 18..=20)) {
        let args = match procedure {
            5 => opaque(&root),
            6 | 7 | 21 => arguments(procedure, &root, &root),
            3 | 12..=14 => arguments(procedure, &root, &f),
            15 => [opaque(&f), opaque(&root), opaque(b"f")].concat(),
            _ => arguments(procedure, &f, &f),
        };
        let reply = ask(&mut b, procedure, &args);
        if procedure == 21 && word(&reply, 6) == Some(0) {
            continue; // a directory may be committed
        }
        assert_ne!(word(&reply, 6), Some(0), "procedure {procedure}");
        assert!(refusal_is_whole(procedure, &reply), "procedure {procedure}: {reply:?}");
    }
    let guarded = [opaque(&f), words(&[0, 0, 0, 0, 0, 0, 1, 7, 7])].concat();
    let reply = ask(&mut b, 2, &guarded);
    assert!(word(&reply, 6) == Some(10_002) && refusal_is_whole(2, &reply));
    // By a rule, without the volume having been asked to do it.
    let mut b = Bench::serving(parse_export("v=127.0.0.1,ro").unwrap(), "127.0.0.1:700");
    let root = b.root();
    for procedure in [2, 7, 8, 9, 10, 11, 12, 13] {
        let reply = ask(&mut b, procedure, &arguments(procedure, &root, &root));
        assert_eq!(word(&reply, 6), Some(ROFS), "procedure {procedure}");
        assert!(refusal_is_whole(procedure, &reply), "procedure {procedure}");
    }
    for procedure in [14, 15] {
        // Of the second handle nothing is known.
        let reply = ask(&mut b, procedure, &arguments(procedure, &root, &root));
        assert!(
            word(&reply, 6) == Some(ROFS) && word(&reply, 7) == Some(u32::from(procedure > 14))
        );
        assert_eq!(reply.len(), 4 * (7 + 2 + 21 + if procedure == 14 { 2 } else { 1 }));
    }
}

#[test]
fn answers_tell_the_attributes() {
    let mut b = Bench::new();
    let root = b.root();
    let f = file(&mut b, &root, b"f");
    for procedure in [4, 6, 16, 17, 18, 19, 20] {
        let reply = ask(&mut b, procedure, &arguments(procedure, &root, &f));
        assert_eq!((word(&reply, 6), word(&reply, 7)), (Some(0), Some(1)), "{procedure}");
    }
    // LOOKUP: of the file, and of the directory.
    let found = ask(&mut b, 3, &[opaque(&root), opaque(b"f")].concat());
    assert_eq!((word(&found, 14), word(&found, 36)), (Some(1), Some(1)));
    assert_eq!((word(&found, 15), word(&found, 37)), (Some(1), Some(2)), "a file in a directory");
    let link = ask(&mut b, 10, &arguments(10, &root, &f));
    let read = ask(&mut b, 5, &opaque(&link[36..60]));
    assert_eq!((word(&read, 6), word(&read, 7), word(&read, 8)), (Some(0), Some(1), Some(5)));
}

#[test]
fn a_stale_handle_is_stale_for_every_procedure() {
    let mut b = Bench::new();
    let root = b.root();
    let f = file(&mut b, &root, b"f");
    let removed = ask(&mut b, 12, &[opaque(&root), opaque(b"f")].concat());
    assert_eq!(word(&removed, 6), Some(0));
    for procedure in 1..=21 {
        let reply = ask(&mut b, procedure, &arguments(procedure, &f, &f));
        assert_eq!(word(&reply, 6), Some(STALE), "procedure {procedure}");
    }
}

#[test]
fn access_tells_the_truth() {
    let cases = [
        // The export, who asks, the mode, and what of everything a directory and a file give.
        ("rw", 0, 0o755, 0x1f, 0x2d),
        ("ro", 0, 0o755, 0x03, 0x21),
        ("rw", 1000, 0o755, 0x03, 0x21),
        ("ro", 1000, 0o777, 0x03, 0x21),
        ("rw", 1000, 0o777, 0x1f, 0x2d),
        ("rw", 1000, 0o000, 0, 0),
    ];
    for (how, uid, mode, dir, plain) in cases {
        let rules = parse_export(&format!("v=127.0.0.1,{how}")).unwrap();
        let mut b = Bench::serving(rules, "127.0.0.1:700");
        let root = b.root();
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let made = b.ask(Request::Make {
            dir: 2,
            name: b"f".to_vec(),
            kind: vfs::MakeKind::File { exclusive: None },
            attr: set,
            fail_if_exists: true,
            umask: 0,
        });
        assert!(made.is_ok());
        let found = ask(&mut b, 3, &[opaque(&root), opaque(b"f")].concat());
        b.ask(Request::SetAttr { ino: 2, set }).unwrap();
        for (handle, most) in [(&root[..], dir), (&found[32..56], plain)] {
            // All bits, bits that nobody knows, and each alone.
            for asked in [0x3f, u32::MAX, 1, 2, 4, 8, 16, 32, 0] {
                let args = [opaque(handle), words(&[asked])].concat();
                let xid = b.next_xid();
                let reply = b.one(&call_as((uid, uid, &[]), xid, (NFS, 3, 4), &args));
                assert_eq!(word(&reply, 6), Some(0));
                let bits = word(&reply, reply.len() / 4 - 1);
                assert_eq!(bits, Some(most & asked), "{how}, {uid}, {mode:o}, of {asked:#x}");
            }
        }
    }
}

#[test]
fn dots_are_not_renamed() {
    let mut b = Bench::new();
    let root = b.root();
    file(&mut b, &root, b"f");
    for (from, to) in [(".", "x"), ("..", "x"), ("f", "."), ("f", ".."), (".", ".")] {
        let one = |name: &str| [opaque(&root), opaque(name.as_bytes())].concat();
        let reply = ask(&mut b, 14, &[one(from), one(to)].concat());
        assert_eq!(word(&reply, 6), Some(INVAL), "{from} to {to}");
    }
}

#[test]
fn there_are_no_locks_and_that_is_said_at_once() {
    let mut b = Bench::new();
    let cookie = opaque(b"biscuit");
    // A lock as a client describes it: whose, on what, from where to where.
    let lock = [opaque(b"client"), opaque(&[1; 24]), opaque(b"owner"), words(&[9, 0, 0, 0, 0])];
    let args = [cookie.clone(), words(&[1, 1]), lock.concat(), words(&[0, 1])].concat();
    // Procedure, and what follows the cookie; None: nothing, not even it.
    let cases: [(u32, Option<&[u32]>); 12] = [
        (0, None),
        (1, Some(&[2])),
        (2, Some(&[2])),
        (3, Some(&[0])),
        (4, Some(&[0])),
        (5, Some(&[1])),
        (7, None),
        (12, None),
        (20, Some(&[2, 0])),
        (21, Some(&[0, 0])),
        (22, Some(&[2])),
        (23, None),
    ];
    for (procedure, tells) in cases {
        let xid = b.next_xid();
        let reply = b.one(&call(xid, (NLM, 4, procedure), &args));
        let want = tells.map_or(Vec::new(), |t| [cookie.clone(), words(t)].concat());
        assert_eq!(word(&reply, 5), Some(0), "procedure {procedure}");
        assert_eq!(reply[24..], want, "procedure {procedure}");
    }
    let mut told = |version, procedure, args: &[u8]| {
        let xid = b.next_xid();
        word(&b.one(&call(xid, (NLM, version, procedure), args)), 5).unwrap()
    };
    assert_eq!((told(2, 2, &args), told(5, 2, &args)), (2, 2), "versions 1, 3 and 4");
    assert_eq!((told(3, 2, &args), told(1, 2, &args), told(1, 22, &args)), (0, 0, 3));
    assert_eq!((told(4, 16, &args), told(4, 24, &args)), (3, 3));
    assert_eq!((told(4, 2, &[]), told(4, 2, &words(&[5000]))), (4, 4));
}

/// CREATE of a name that is there cuts the file, and tells the directory's attributes beside it.
#[test]
fn a_file_that_is_created_again_is_not_its_directory() {
    let mut b = Bench::new();
    let root = b.root();
    file(&mut b, &root, b"f");
    for size in [0, 5] {
        let again = words(&[0, 1, 0o644, 0, 0, 1, 0, size, 0, 0]);
        let made = ask(&mut b, 8, &[opaque(&root), opaque(b"f"), again].concat());
        assert_eq!(word(&made, 6), Some(0), "size {size}");
        // The file's handle and attributes, then those of the directory, before and after.
        let attributes = 7 + 1 + 1 + 6;
        assert_eq!(word(&made, attributes), Some(1));
        assert_eq!(word(&made, attributes + 1), Some(1), "a file");
        let wcc = attributes + 1 + 21;
        let after = wcc + 1 + if word(&made, wcc) == Some(1) { 6 } else { 0 };
        assert_eq!(word(&made, after), Some(1), "the directory's attributes are told");
        assert_eq!(word(&made, after + 1), Some(2), "a directory");
    }
}
