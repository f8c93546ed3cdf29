//! A clean end under load: a client is told of no error. It finds its connection closed, and what
//! was acknowledged before, and everything that a reply said, is there when the next server comes.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use nfs3_client::nfs3_types::nfs3::*;
use served::{ANY, Client, Folder, Result3, Server, name};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 5;
const CLIENTS: usize = 6;
/// So long an end under load may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Works on a folder of its own until the connection is gone; which names were acknowledged last.
fn work(client: &mut Client, dir: &nfs_fh3, first: usize) -> (Result3<()>, Vec<String>) {
    let mut there = Vec::new();
    for n in first.. {
        let f = format!("f{n}");
        let step = |client: &mut Client, there: &mut Vec<String>| {
            let file = client.create_new(dir, &f)?;
            there.push(f.clone());
            // An open file that is written, as the kernel does: by its handle.
            client.write(&file, 0, &[7; 3000], stable_how::UNSTABLE)?;
            client.attr(&file)?;
            client.commit(&file)?;
            if n % 2 == 1 {
                let old = there.swap_remove(0);
                client.rename(name(dir, &old), name(dir, &format!("{old}r")))?;
                client.remove(dir, &format!("{old}r"))?;
            }
            Ok(())
        };
        if let Err(e) = step(client, &mut there) {
            return (Err(e), there);
        }
    }
    unreachable!("it ends with the connection")
}

fn ends(mode: &str) {
    let folder = Folder::new();
    let image = folder.volume("v", "64M");
    let mut server = Server::trusting(&[&image], ANY, &["--mode", mode]);
    let at = server.at.to_string();
    for round in 0..ROUNDS {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client("/v")).collect();
        let root = clients[0].root.clone();
        let dirs: Vec<_> = (0..CLIENTS)
            .map(|c| clients[c].mkdir(&root, &format!("r{round}c{c}")).unwrap())
            .collect();
        let there: Vec<Vec<String>> = std::thread::scope(|s| {
            let threads: Vec<_> = clients
                .iter_mut()
                .zip(&dirs)
                .map(|(client, dir)| s.spawn(move || work(client, dir, 0)))
                .collect();
            std::thread::sleep(Duration::from_millis(60 + 37 * round));
            let begun = Instant::now();
            server.stop();
            assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
            let ends = threads.into_iter().map(|t| t.join().unwrap());
            ends.map(|(why, there)| {
                assert_eq!(why, Err(None), "{mode}: nothing but the connection's end");
                there
            })
            .collect()
        });
        server = Server::trusting(&[&image], &at, &["--mode", mode]);
        for (dir, there) in dirs.iter().zip(there) {
            let names = server.client("/v").names(dir).unwrap();
            // The last one may be under way between two names.
            for n in there.iter().skip(1) {
                assert!(names.contains(n), "{mode}: {n} was acknowledged, of {names:?}");
            }
        }
    }
    server.stop();
}

#[test]
fn clients_are_told_of_no_error_in_mode_unified() {
    ends("unified");
}

#[test]
fn clients_are_told_of_no_error_in_mode_ordered() {
    ends("ordered");
}

#[test]
fn a_client_that_takes_no_replies_does_not_keep_the_end() {
    use std::io::Write;
    let folder = Folder::new();
    let image = folder.volume("v", "64M");
    let server = Server::trusting(&[&image], ANY, &[]);
    let mut client = server.client("/v");
    let file = client.create_new(&client.root.clone(), "f").unwrap();
    client.write(&file, 0, &[7; 1 << 20], stable_how::FILE_SYNC).unwrap();
    // READs of a MiB each, as raw records, and nothing is taken.
    let mut socket = server.socket();
    socket.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let words = |all: &[u32]| all.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    for xid in 0..100 {
        let mut body =
            words(&[xid, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, file.data.as_ref().len() as u32]);
        body.extend(file.data.as_ref());
        body.extend(words(&[0, 0, 1 << 20]));
        let mark = (body.len() as u32 | 0x8000_0000).to_be_bytes();
        if socket.write_all(&[&mark[..], &body].concat()).is_err() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}
