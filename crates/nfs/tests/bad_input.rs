//! Clients that mean no good: for each kind of bad input the error that the RFCs name, and seeded
//! random ones that must break nothing (the fuzz target `nfs_requests` goes on from there). A
//! volume in virtual time answers. NFS_FUZZ=N for more of it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod hostile;
#[path = "hostile/script.rs"]
mod script;

use hostile::{Bench, MOUNT, NFS, call, opaque, record, word, words};

const GARBAGE: u32 = 4;

/// How a call was accepted (0: it was run), and its nfsstat3.
fn told(bench: &mut Bench, xid: u32, procedure: u32, args: &[u8]) -> (u32, Option<u32>) {
    let reply = bench.one(&call(xid, (NFS, 3, procedure), args));
    assert_eq!((word(&reply, 0), word(&reply, 2)), (Some(xid), Some(0)));
    (word(&reply, 5).unwrap(), word(&reply, 6))
}

#[test]
fn heads() {
    let mut b = Bench::new();
    let mut accepted = |which, want: &[u32]| {
        let reply = b.one(&call(9, which, &[]));
        let got: Vec<u32> = (5..5 + want.len()).map_while(|n| word(&reply, n)).collect();
        assert_eq!(got, want, "{which:?}");
    };
    accepted((100_000, 2, 3), &[1]); // PROG_UNAVAIL
    accepted((NFS, 2, 1), &[2, 3, 3]); // PROG_MISMATCH: 3 to 3
    accepted((NFS, 4, 0), &[2, 3, 3]);
    accepted((MOUNT, 2, 1), &[2, 3, 3]);
    accepted((NFS, 3, 22), &[3]); // PROC_UNAVAIL
    accepted((NFS, 3, u32::MAX), &[3]);
    accepted((MOUNT, 3, 6), &[3]);
    accepted((MOUNT, 3, 1), &[GARBAGE]);
    accepted((NFS, 3, 0), &[0]);
    let mut denied = |body: &[u8], want: &[u32]| {
        let reply = b.one(&record(body));
        let got: Vec<u32> = (2..2 + want.len()).map_while(|n| word(&reply, n)).collect();
        assert_eq!(got, want);
    };
    denied(&words(&[9, 0, 3, NFS, 3, 0, 0, 0, 0, 0]), &[1, 0, 2, 2]); // RPC_MISMATCH: 2 to 2
    denied(&words(&[9, 0, 2, NFS, 3, 1, 6, 0, 0, 0]), &[1, 1, 5]); // AUTH_TOOWEAK
    denied(&words(&[9, 0, 2, NFS, 3, 1, 1, 4, 0, 0, 0]), &[1, 1, 1]); // AUTH_BADCRED
    let seventeen = [words(&[9, 0, 2, NFS, 3, 1, 1, 88, 0, 0, 0, 0, 17]), words(&[0; 19])].concat();
    denied(&seventeen, &[1, 1, 1]); // more groups than sixteen
    // A reply is no call, and what is shorter than a head is nothing.
    for body in [words(&[9, 1, 0, 0, 0, 0]), words(&[9]), Vec::new()] {
        assert!(b.feed(&record(&body)).unwrap().is_empty());
    }
    // The connection has survived all that.
    assert_eq!(b.root().len(), 24);
}

#[test]
fn records() {
    let mut b = Bench::new();
    let null = call(3, (NFS, 3, 0), &[]);
    // A byte at a time; and in fragments of four bytes.
    let mut replies = Vec::new();
    null.chunks(1).for_each(|c| replies.extend(b.feed(c).unwrap()));
    assert_eq!(replies.len(), 1);
    let mut pieces = Vec::new();
    let body: Vec<&[u8]> = null[4..].chunks(4).collect();
    for (i, piece) in body.iter().enumerate() {
        let last = if i + 1 == body.len() { 0x8000_0000 } else { 0 };
        pieces.extend(words(&[4 | last]));
        pieces.extend(*piece);
    }
    assert_eq!(b.one(&pieces), replies[0]);
    // Empty fragments end with nothing; records that are too long end the connection before they
    // are taken in: as one, and as a sum of fragments.
    assert!(b.feed(&words(&[0x8000_0000])).unwrap().is_empty());
    assert!(b.feed(&words(&[0xffff_ffff])).is_err());
    assert!(b.feed(&words(&[0x7fff_ffff])).is_err());
    let fragment = [words(&[1 << 19]), vec![0; 1 << 19]].concat();
    assert!((0..4).any(|_| b.feed(&fragment).is_err()));
    // Many at once are all answered.
    assert_eq!(b.feed(&null.repeat(1000)).unwrap().len(), 1000);
}

#[test]
fn names_offsets_cookies_and_handles() {
    let mut b = Bench::new();
    let root = opaque(&b.root());
    let with = |more: &[u8]| [root.clone(), more.to_vec()].concat();
    let none = words(&[0; 6]);
    // Names: (LOOKUP's error, MKDIR's).
    let long = vec![b'n'; 300];
    let huge = vec![b'n'; 5000];
    let cases: [(&[u8], _, _); 7] = [
        (b"a/b", 2, 22),
        (b"a\0b", 2, 22),
        (b"", 2, 22),
        (&long, 63, 63),
        (b".", 0, 17),
        (b"..", 0, 17),
        (b"lost+found", 0, 17),
    ];
    for (name, look, make) in cases {
        let shown = String::from_utf8_lossy(name);
        let (_, got) = told(&mut b, 5, 3, &with(&opaque(name)));
        assert!(got == Some(look) || (look == 2 && got == Some(22)), "LOOKUP {shown}: {got:?}");
        let (_, got) = told(&mut b, 6, 9, &with(&[opaque(name), none.clone()].concat()));
        assert_eq!(got, Some(make), "MKDIR {shown}");
    }
    assert_eq!(told(&mut b, 7, 3, &with(&opaque(&huge))).0, GARBAGE);
    // A file, and offsets where none can be.
    let create = with(&[opaque(b"f"), words(&[1]), none.clone()].concat());
    let made = b.one(&call(8, (NFS, 3, 8), &create));
    let file = opaque(&made[36..60]);
    for offset in [1u64 << 63, u64::MAX, (1 << 63) - 1, 1 << 50] {
        let at =
            |more: &[u8]| [file.clone(), offset.to_be_bytes().to_vec(), more.to_vec()].concat();
        let write = at(&[words(&[4, 2]), opaque(b"data")].concat());
        let (_, got) = told(&mut b, 9, 7, &write);
        assert!(matches!(got, Some(22 | 27)), "WRITE at {offset:#x}: {got:?}");
        let (_, got) = told(&mut b, 10, 6, &at(&words(&[100])));
        assert!(matches!(got, Some(0 | 22)), "READ at {offset:#x}: {got:?}");
        let size = [words(&[0, 0, 0, 1]), offset.to_be_bytes().to_vec(), words(&[0, 0, 0])];
        let (_, got) = told(&mut b, 11, 2, &[file.clone(), size.concat()].concat());
        assert!(matches!(got, Some(22 | 27)), "SETATTR of size {offset:#x}: {got:?}");
        let (_, got) = told(&mut b, 12, 21, &at(&words(&[0])));
        assert!(matches!(got, Some(0 | 22)), "COMMIT at {offset:#x}: {got:?}");
        // A cookie that was never given.
        let list = |cookie: u64| {
            with(&[(cookie | 1).to_be_bytes().to_vec(), words(&[0, 0, 4096])].concat())
        };
        assert_eq!(told(&mut b, 13, 16, &list(offset)).1, Some(10_003));
    }
    // Counts: of a read, as much as may be; of a write, what is there.
    let read = [file.clone(), words(&[0, 0, u32::MAX])].concat();
    assert_eq!(told(&mut b, 14, 6, &read).1, Some(0));
    // Handles: of no length, too long, one bit off, another kind of thing's.
    for bad in [&[][..], &[0; 24], &[7; 64]] {
        let (_, got) = told(&mut b, 15, 1, &opaque(bad));
        assert!(matches!(got, Some(10_001 | 70)), "{got:?}");
    }
    assert_eq!(told(&mut b, 16, 1, &opaque(&[7; 65])).0, GARBAGE);
    for bit in 64..192 {
        let mut h = made[36..60].to_vec();
        h[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(told(&mut b, 17, 1, &opaque(&h)).1, Some(10_001), "bit {bit}");
    }
    // The second handle, of RENAME and of LINK.
    let mut bad = root.clone();
    *bad.last_mut().unwrap() ^= 1;
    let rename = [root.clone(), opaque(b"f"), bad.clone(), opaque(b"g")].concat();
    assert_eq!(told(&mut b, 17, 14, &rename).1, Some(10_001));
    assert_eq!(told(&mut b, 17, 15, &[file.clone(), bad, opaque(b"g")].concat()).1, Some(10_001));
    let in_file = [file.clone(), opaque(b"x")].concat();
    assert_eq!(told(&mut b, 18, 3, &in_file).1, Some(20));
    assert_eq!(told(&mut b, 19, 5, &file).1, Some(22));
    // Arguments that end too early.
    for procedure in 1..22 {
        assert_eq!(told(&mut b, 20, procedure, &root[..12]).0, GARBAGE, "{procedure}");
    }
}

#[test]
fn random_requests_break_nothing() {
    let runs = std::env::var("NFS_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..runs {
        let mut rng = env::Rng::new(seed);
        let input: Vec<u8> = (0..200 + rng.below(1500)).map(|_| rng.below(256) as u8).collect();
        // Printed only when it fails.
        println!("seed {seed}");
        script::run(&input);
    }
}
