//! POSIX ACLs over NFS: set on the volume (NFSv3 has no way to), obeyed for ACCESS and for what is
//! then tried, for users and groups that only the list knows. And whom a listing gives handles.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod hostile;

use hostile::{Bench, NFS, call, call_as, opaque, word, words};
use vfs::{Request, XattrMode};

const ACCES: u32 = 13;
/// ACCESS's bits.
const READ: u32 = 1;
const MODIFY: u32 = 4;
const EXTEND: u32 = 8;

/// A list as the kernel has it: what the entry is for, its bits, its number.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut all = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        all.extend(tag.to_le_bytes());
        all.extend(bits.to_le_bytes());
        all.extend(id.to_le_bytes());
    }
    all
}

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP_OF_FILE: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
const NONE: u32 = u32::MAX;

/// What a user may, and what the file says when he reads, and when he writes.
fn tries(b: &mut Bench, who: (u32, u32, &[u32]), file: &[u8]) -> (u32, u32, u32) {
    let mut ask = |procedure, args: Vec<u8>, nth| {
        // Each its own number: the same again would be answered with the stored reply.
        let xid = b.next_xid();
        let reply = b.one(&call_as(who, xid, (NFS, 3, procedure), &args));
        word(&reply, nth).unwrap()
    };
    let fh = opaque(file);
    // After the attributes, of 21 words.
    let may = ask(4, [fh.clone(), words(&[0x3f])].concat(), 8 + 21);
    let read = ask(6, [fh.clone(), words(&[0, 0, 100])].concat(), 6);
    let write = [fh, words(&[0, 0, 1, 2]), opaque(b"x")].concat();
    (may, read, ask(7, write, 6))
}

#[test]
fn lists_are_obeyed() {
    let mut b = Bench::new();
    let root = b.root();
    let args = [opaque(&root), opaque(b"f"), words(&[0, 1, 0o600, 0, 0, 0, 0, 0])].concat();
    let made = b.one(&call(1, (NFS, 3, 8), &args));
    assert_eq!((word(&made, 6), word(&made, 8)), (Some(0), Some(24)));
    let file = made[36..60].to_vec();
    let attr = b.one(&call(2, (NFS, 3, 1), &opaque(&file)));
    let ino = word(&attr, 7 + 14).unwrap();
    let (alice, bob, carol) =
        ((1000, 1000, &[][..]), (1001, 1001, &[][..]), (1002, 1, &[5, 77][..]));
    // Before: nobody but the owner.
    for who in [alice, bob, carol] {
        assert_eq!(tries(&mut b, who, &file), (0, ACCES, ACCES), "{who:?}");
    }
    let set = |b: &mut Bench, mask| {
        let entries = [
            (OWNER, 6, NONE),
            (USER, 6, 1000),
            (USER, 4, 1001),
            (GROUP_OF_FILE, 0, NONE),
            (GROUP, 6, 77),
            (MASK, mask, NONE),
            (OTHERS, 0, NONE),
        ];
        let (name, value) = (b"system.posix_acl_access".to_vec(), list(&entries));
        b.ask(Request::SetXattr { ino, name, value, mode: XattrMode::Either, kill_sgid: false })
            .unwrap();
    };
    set(&mut b, 6);
    assert_eq!(tries(&mut b, alice, &file), (READ | MODIFY | EXTEND, 0, 0));
    assert_eq!(tries(&mut b, bob, &file), (READ, 0, ACCES));
    assert_eq!(tries(&mut b, carol, &file), (READ | MODIFY | EXTEND, 0, 0));
    assert_eq!(tries(&mut b, (1003, 1003, &[]), &file), (0, ACCES, ACCES));
    // The mask takes writing away from all but the owner, who is root here.
    set(&mut b, 4);
    assert_eq!(tries(&mut b, alice, &file), (READ, 0, ACCES));
    assert_eq!(tries(&mut b, carol, &file), (READ, 0, ACCES));
    assert_eq!(tries(&mut b, (0, 0, &[]), &file).2, 0);
    // The list is there after SETATTR of the mode, whose group bits are the mask.
    let chmod = [opaque(&file), words(&[1, 0o660, 0, 0, 0, 0, 0, 0])].concat();
    assert_eq!(word(&b.one(&call(3, (NFS, 3, 2), &chmod)), 6), Some(0));
    assert_eq!(tries(&mut b, alice, &file), (READ | MODIFY | EXTEND, 0, 0));
    assert_eq!(tries(&mut b, bob, &file), (READ, 0, ACCES));
}

/// The handle that a listing with attributes gives of a name; None: it gives none.
fn listed(b: &mut Bench, who: (u32, u32, &[u32]), dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let xid = b.next_xid();
    let args = [opaque(dir), words(&[0, 0, 0, 0, 4096, 32768])].concat();
    let reply = b.one(&call_as(who, xid, (NFS, 3, 17), &args));
    assert_eq!(word(&reply, 6), Some(0), "it may be listed");
    let mut at = 7 + 22 + 2; // behind the directory's attributes and the verifier
    while word(&reply, at) == Some(1) {
        let len = word(&reply, at + 3).unwrap() as usize;
        let found = &reply[4 * (at + 4)..][..len];
        at += 4 + len.div_ceil(4) + 2;
        at += if word(&reply, at) == Some(1) { 22 } else { 1 };
        let handle = (word(&reply, at) == Some(1)).then(|| reply[4 * (at + 2)..][..24].to_vec());
        at += if handle.is_some() { 8 } else { 1 };
        if found == name {
            return handle;
        }
    }
    panic!("{name:?} is not listed");
}

/// A handle is as good as a name that was looked up, which asks whether the directory may be
/// searched.
#[test]
fn who_may_only_list_a_directory_gets_no_handles_in_it() {
    let mut b = Bench::new();
    let root = b.root();
    let mut make = |dir: &[u8], name: &[u8], procedure: u32, how: &[u32]| {
        let xid = b.next_xid();
        let args = [opaque(dir), opaque(name), words(how)].concat();
        let reply = b.one(&call(xid, (NFS, 3, procedure), &args));
        assert_eq!((word(&reply, 6), word(&reply, 8)), (Some(0), Some(24)));
        reply[36..60].to_vec()
    };
    let dir = make(&root, b"d", 9, &[1, 0o744, 0, 0, 0, 0, 0]);
    let file = make(&dir, b"f", 8, &[1, 1, 0o644, 0, 0, 0, 0, 0]);
    assert_eq!(listed(&mut b, (0, 0, &[]), &dir, b"f").as_ref(), Some(&file));
    let (who, xid) = ((1000, 1000, &[][..]), b.next_xid());
    let looked = b.one(&call_as(who, xid, (NFS, 3, 3), &[opaque(&dir), opaque(b"f")].concat()));
    assert_eq!(word(&looked, 6), Some(ACCES));
    assert_eq!(listed(&mut b, who, &dir, b"f"), None);
    let set = [opaque(&dir), words(&[1, 0o755, 0, 0, 0, 0, 0, 0])].concat();
    let xid = b.next_xid();
    assert_eq!(word(&b.one(&call(xid, (NFS, 3, 2), &set)), 6), Some(0));
    assert_eq!(listed(&mut b, who, &dir, b"f"), Some(file));
}
