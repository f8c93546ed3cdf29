//! Who a caller is: what AUTH_SYS claims, from which port and address, against what the export's
//! options leave of it. Seen in whose a file becomes that the caller makes, and in what its groups
//! open for it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod hostile;

use hostile::{Bench, MOUNT, NFS, call, call_as, opaque, word, words};
use nfs::parse_export;
use vfs::{Request, SetAttr};

const ACCES: u32 = 13;
const NOBODY: u32 = 65_534;
const LOW: &str = "127.0.0.1:700";
const HIGH: &str = "127.0.0.1:7000";
const AWAY: &str = "192.0.2.7:700";
const AWAY_HIGH: &str = "192.0.2.7:7000";

/// Serves a world-writable root by one rule for everybody with these options.
fn serving(options: &str, peer: &str) -> Bench {
    let rule = |all: &str| parse_export(&format!("v={all}{options}")).unwrap();
    let mut b = Bench::serving([rule("0.0.0.0/0"), rule("::/0")].concat(), peer);
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    b.ask(Request::SetAttr { ino: 2, set }).unwrap();
    b
}

fn root_handle(b: &mut Bench, options: &str, peer: &str) -> Vec<u8> {
    // MOUNT may be refused where only the port is asked about: the handle is the same for all.
    b.reconnect_from(LOW);
    let root = b.root();
    b.reconnect_from(peer);
    assert_eq!(root.len(), 24, "{options}");
    root
}

/// Owner and group of what the caller makes, or why it may not.
fn makes(b: &mut Bench, root: &[u8], who: (u32, u32, &[u32])) -> Result<(u32, u32), u32> {
    let name = format!("f{}", b.next_xid());
    let args = [opaque(root), opaque(name.as_bytes()), words(&[1, 0, 0, 0, 0, 0, 0])].concat();
    let xid = b.next_xid();
    let reply = b.one(&call_as(who, xid, (NFS, 3, 8), &args));
    match word(&reply, 6).unwrap() {
        0 => Ok((word(&reply, 19).unwrap(), word(&reply, 20).unwrap())),
        why => Err(why),
    }
}

#[test]
fn options_say_who_a_caller_is() {
    let nobody = Ok((NOBODY, NOBODY));
    // Options, the client, who it says it is, and who it is.
    let cases = [
        ("", LOW, (0, 0), Ok((0, 0))),
        ("", LOW, (1000, 0), Ok((1000, 0))),
        ("", HIGH, (0, 0), nobody),
        ("", HIGH, (1000, 0), Ok((1000, NOBODY))),
        ("", HIGH, (1000, 1000), Ok((1000, 1000))),
        ("", AWAY, (0, 0), nobody),
        ("", AWAY, (0, 1000), nobody),
        ("", AWAY, (1000, 0), Ok((1000, NOBODY))),
        (",no_root_squash", AWAY, (0, 0), Ok((0, 0))),
        (",no_root_squash", AWAY, (1000, 0), Ok((1000, 0))),
        (",no_root_squash", AWAY_HIGH, (0, 0), nobody),
        (",no_root_squash", AWAY_HIGH, (1000, 0), Ok((1000, NOBODY))),
        (",no_root_squash,insecure", AWAY_HIGH, (0, 0), Ok((0, 0))),
        (",root_squash", LOW, (0, 0), nobody),
        (",root_squash", LOW, (1000, 0), Ok((1000, NOBODY))),
        (",root_squash,anonuid=7,anongid=8", LOW, (0, 0), Ok((7, 8))),
        (",root_squash,anongid=8", LOW, (1000, 0), Ok((1000, 8))),
        (",all_squash", LOW, (0, 0), nobody),
        (",all_squash", AWAY, (1000, 1000), nobody),
        (",all_squash,anonuid=7,anongid=8", AWAY_HIGH, (1000, 1000), Ok((7, 8))),
        (",secure", LOW, (1000, 1000), Ok((1000, 1000))),
        (",secure", HIGH, (1000, 1000), Err(ACCES)),
        (",secure,no_root_squash", AWAY_HIGH, (0, 0), Err(ACCES)),
        (",secure,no_root_squash", AWAY, (0, 0), Ok((0, 0))),
    ];
    for (options, peer, (uid, gid), want) in cases {
        let mut b = serving(options, peer);
        let root = root_handle(&mut b, options, peer);
        let got = makes(&mut b, &root, (uid, gid, &[]));
        assert_eq!(got, want, "{uid}:{gid} from {peer} by rw{options}");
        let mount = b.one(&call(9, (MOUNT, 3, 1), &opaque(b"/v")));
        let refused = if want == Err(ACCES) { ACCES } else { 0 };
        assert_eq!(word(&mount, 6), Some(refused), "MOUNT from {peer} by rw{options}");
    }
}

#[test]
fn roots_groups_are_squashed_with_root() {
    // What of these groups opens a directory for its group alone.
    let opens = |options: &str, peer: &str, who: (u32, u32, &[u32]), group: u32| {
        let mut b = serving(options, peer);
        let root = root_handle(&mut b, options, peer);
        let set = SetAttr { mode: Some(0o070), gid: Some(group), ..SetAttr::default() };
        b.ask(Request::SetAttr { ino: 2, set }).unwrap();
        makes(&mut b, &root, who).is_ok()
    };
    assert!(opens(",root_squash", LOW, (1000, 1000, &[50]), 50));
    assert!(!opens(",root_squash", LOW, (1000, 1000, &[0, 50]), 0));
    assert!(!opens(",root_squash", LOW, (0, 0, &[0, 50]), 0));
    assert!(!opens(",root_squash", LOW, (0, 0, &[0, 50]), 50));
    assert!(!opens("", HIGH, (1000, 1000, &[0]), 0));
    assert!(!opens(",all_squash", LOW, (1000, 1000, &[50]), 50));
    assert!(opens(",all_squash,anongid=50", LOW, (1000, 1000, &[]), 50));
    assert!(opens(",no_root_squash", LOW, (1000, 1000, &[0]), 0));
}

#[test]
fn nobody_is_given_the_reply_to_what_root_did() {
    let mut b = serving("", LOW);
    let root = root_handle(&mut b, "", LOW);
    let args = [opaque(&root), opaque(b"d"), words(&[0; 6])].concat();
    let mkdir = call(77, (NFS, 3, 9), &args);
    let made = b.one(&mkdir);
    assert_eq!(word(&made, 6), Some(0));
    // The same bytes from where root is nobody: asked anew, and the name is taken.
    b.reconnect_from(HIGH);
    assert_eq!(word(&b.one(&mkdir), 6), Some(17));
    b.reconnect_from("127.0.0.1:701");
    assert_eq!(b.one(&mkdir), made, "root asks again, from another port");
}
