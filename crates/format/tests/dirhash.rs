//! Our hashes of names against debugfs's, for every kind of hash. What an index does with them is
//! the checker's concern.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::ufs::dirhash::NameHash;
use std::process::Command;

#[test]
fn debugfs_agrees() {
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let bytes: Vec<u8> = (0..8)
        .map(|i| u8::from_str_radix(&"0123456789abcdef"[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[(4 * i + n) % 8]));
    let seed = [word(0), word(1), word(0), word(1)];
    let long = "a-rather-long-name-that-takes-more-than-one-round-of-the-hash".repeat(3);
    for name in ["a", "abc", "abcd", "hello-world", "Grüße", &long] {
        for (n, kind) in ["legacy", "half_md4", "tea"].into_iter().enumerate() {
            for (seed, given) in [(seed, Some(uuid)), ([0; 4], None)] {
                let mut asked = format!("dx_hash -h {kind}");
                if let Some(u) = given {
                    asked += &format!(" -s {u}");
                }
                asked += &format!(" {name}");
                let out = ["/usr/sbin/debugfs", "debugfs"]
                    .iter()
                    .find_map(|d| Command::new(d).arg("-R").arg(&asked).output().ok())
                    .unwrap();
                let text = String::from_utf8_lossy(&out.stdout).into_owned();
                let theirs = text.split("0x").nth(1).unwrap();
                let theirs = theirs.split([' ', '(']).next().unwrap();
                let theirs = u32::from_str_radix(theirs, 16).unwrap();
                let ours = NameHash::new(n as u8, true, seed).unwrap().of(name.as_bytes());
                let signed = NameHash::new(n as u8, false, seed).unwrap().of(name.as_bytes());
                assert!(ours == theirs || signed == theirs, "{asked}: {ours:#x}, {text}");
                if name.is_ascii() {
                    assert_eq!(ours, signed);
                }
            }
        }
    }
}
