//! Nothing that was acknowledged over NFS is missing after the server was killed: clients make,
//! write, rename and remove, and note what each reply said; SIGKILL at a random moment, a new
//! server, and all of it is looked for. NFS_KILLS=N for more of it.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use served::{Client, Dice, Folder, Result3, Server, name};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const CLIENTS: u64 = 3;
/// Operations that a client is not expected to reach before the kill.
const OPERATIONS: u64 = 1 << 20;

/// What is known of a name: the bytes of a file, a directory (None), or nothing at all (no key).
type Known = BTreeMap<String, Option<Vec<u8>>>;

/// What a client knows when its connection breaks.
struct Memory {
    folder: String,
    known: Known,
    /// Names that the request under way is about: they may be either way.
    doubt: Vec<String>,
    acknowledged: u64,
}

/// Works until the server is gone.
fn work(client: &mut Client, dir: &nfs_fh3, m: &mut Memory, dice: &mut Dice) -> Result3<()> {
    for n in 0..OPERATIONS {
        let files: Vec<String> =
            m.known.iter().filter(|(_, b)| b.is_some()).map(|(n, _)| n.clone()).collect();
        let some =
            (!files.is_empty()).then(|| files[dice.below(files.len() as u64) as usize].clone());
        let fresh = format!("f{}", m.acknowledged);
        m.doubt = vec![fresh.clone()];
        m.doubt.extend(some.clone());
        match (dice.below(11), some) {
            (0..=3, _) | (_, None) => {
                let bytes = vec![b'a' + (n % 26) as u8; 1 + dice.below(9000) as usize];
                let file = client.create_new(dir, &fresh)?;
                client.write(&file, 0, &bytes, stable_how::FILE_SYNC)?;
                m.known.insert(fresh, Some(bytes));
            }
            (4, _) => {
                client.mkdir(dir, &fresh)?;
                m.known.insert(fresh, None);
            }
            (5, Some(old)) => {
                client.rename(name(dir, &old), name(dir, &fresh))?;
                let bytes = m.known.remove(&old).unwrap();
                m.known.insert(fresh, bytes);
            }
            (6, Some(old)) => {
                client.remove(dir, &old)?;
                m.known.remove(&old);
            }
            (7, Some(old)) => {
                let (file, bytes) = (client.lookup(dir, &old)?, vec![b'A' + (n % 26) as u8; 500]);
                client.write(&file, 0, &bytes, stable_how::DATA_SYNC)?;
                let all = m.known.get_mut(&old).unwrap().as_mut().unwrap();
                let kept = all.split_off(all.len().min(500));
                *all = [bytes, kept].concat();
            }
            (8, Some(old)) => {
                // Cut, and made longer again: zeros, not what was cut off.
                let file = client.lookup(dir, &old)?;
                let all = m.known.get_mut(&old).unwrap().as_mut().unwrap();
                let cut = all.len() as u64 * 2 / 3;
                let long = 1 + dice.below(20_000 - cut); // no longer than what is written whole
                set_size(client, &file, cut)?;
                set_size(client, &file, cut + long)?;
                all.truncate(cut as usize);
                all.resize((cut + long) as usize, 0);
            }
            (_, Some(old)) => {
                // Unstable, and durable when COMMIT says so, by the same verifier.
                let (file, bytes) =
                    (client.lookup(dir, &old)?, vec![b'0' + (n % 10) as u8; 20_000]);
                let verifier = client.write(&file, 0, &bytes, stable_how::UNSTABLE)?;
                assert_eq!(client.commit(&file)?, verifier, "nothing was lost, so it is the same");
                m.known.insert(old, Some(bytes));
            }
        }
        m.acknowledged += 1;
    }
    Ok(())
}

fn set_size(client: &mut Client, file: &nfs_fh3, bytes: u64) -> Result3<()> {
    client.set(file, sattr3 { size: set_size3::Some(bytes), ..sattr3::default() })
}

/// What of it is not there; then it is brought up to date for the next round.
fn check(client: &mut Client, m: &mut Memory) {
    let dir = client.lookup(&client.root.clone(), &m.folder).expect("its folder was acknowledged");
    let names = client.names(&dir).unwrap();
    for (n, bytes) in m.known.iter().filter(|(n, _)| !m.doubt.contains(n)) {
        let file = client.lookup(&dir, n);
        let file = file.unwrap_or_else(|e| panic!("{}/{n} was acknowledged: {e:?}", m.folder));
        let Some(bytes) = bytes else { continue };
        let got = client.read(&file, 0, 1 << 20).unwrap();
        assert!(got == *bytes, "{}/{n}: other bytes than were acknowledged", m.folder);
    }
    for n in names.iter().filter(|n| !m.doubt.contains(n)) {
        assert!(m.known.contains_key(n), "{}/{n} was removed or never made", m.folder);
    }
    // What was in doubt is gone from now on, and so of no interest.
    for n in std::mem::take(&mut m.doubt) {
        if names.contains(&n) {
            client.remove(&dir, &n).or_else(|_| rmdir(client, &dir, &n)).unwrap();
        }
        m.known.remove(&n);
    }
}

fn rmdir(client: &mut Client, dir: &nfs_fh3, n: &str) -> Result3<()> {
    let args = RMDIR3args { object: name(dir, n) };
    served::plain(served::done(client.rpc.rmdir(&args))).map(drop)
}

fn kills(mode: &str) {
    let rounds: u64 = std::env::var("NFS_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let folder = Folder::new();
    let image = folder.volume_for(mode, "v.img", "128M");
    let more = ["--mode", mode, "--cache", "16M"];
    let mut server = Server::trusting(&[&image], "127.0.0.1:0", &more);
    let at = server.at.to_string();
    let mut all: Vec<Memory> = (0..CLIENTS)
        .map(|c| {
            let folder = format!("c{c}");
            let mut client = server.client("/v");
            client.mkdir(&client.root.clone(), &folder).unwrap();
            Memory { folder, known: Known::new(), doubt: Vec::new(), acknowledged: 0 }
        })
        .collect();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..rounds {
        let wait = Duration::from_millis(50 + dice.below(700));
        std::thread::scope(|s| {
            let threads: Vec<_> = all
                .iter_mut()
                .enumerate()
                .map(|(c, m)| {
                    let mut client = server.client("/v");
                    let mut dice = Dice(1 + round * CLIENTS + c as u64);
                    s.spawn(move || {
                        let dir = client.lookup(&client.root.clone(), &m.folder).unwrap();
                        let end = work(&mut client, &dir, m, &mut dice);
                        assert!(end == Err(None), "round {round}: {end:?}");
                    })
                })
                .collect();
            std::thread::sleep(wait);
            server.kill();
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        server = Server::trusting(&[&image], &at, &more);
        let mut client = server.client("/v");
        all.iter_mut().for_each(|m| check(&mut client, m));
    }
    server.stop();
    let n: u64 = all.iter().map(|m| m.acknowledged).sum();
    assert!(n > rounds * CLIENTS, "only {n} requests were acknowledged");
    println!("mode {mode}: {rounds} kills, {n} acknowledged operations, none missing");
    sound(&image);
}

fn sound(image: &Path) {
    let out = std::process::Command::new(served::CAIRN).arg("fsck").arg(image).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn sync() {
    kills("sync");
}
#[test]
fn unified() {
    kills("unified");
}
#[test]
fn ordered() {
    kills("ordered");
}
#[test]
fn redo() {
    kills("redo");
}
#[test]
fn writeback() {
    kills("writeback");
}
