//! What a volume's own code takes for each kind of request, without any front end and its
//! transport: a folder of files as fs_mark and `cp -a` make them, appended to and removed again.
//! For profilers, and to see before and after a change.
//!
//! ```text
//!  cargo run --release --example requests -- IMAGE MODE FILES
//! ```
//!
//! IMAGE is a volume that `cairn mkfs` has made, best in memory (/dev/shm).

use env::{Nanos, Rope};
use host::{Driver, HostFile};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::{Call, Cred, MakeKind, Monitor, Reply, Request, SetAttr, SetTime, Stability, Time};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Files in a directory.
const TOGETHER: usize = 500;

struct Bench {
    driver: Driver,
    spent: Vec<(&'static str, u64, Duration)>,
}

impl Bench {
    fn ask(&mut self, kind: &'static str, request: Request) -> Option<Reply> {
        let cred = Cred::root();
        let call = Call { cred, hold: true, ..Call::local(request) };
        let begun = Instant::now();
        let answer = self.driver.call(call);
        let spent = begun.elapsed();
        match self.spent.iter_mut().find(|s| s.0 == kind) {
            Some(s) => (s.1, s.2) = (s.1 + 1, s.2 + spent),
            None => self.spent.push((kind, 1, spent)),
        }
        answer.result.ok()
    }

    fn make(&mut self, kind: &'static str, dir: u32, name: &str, what: MakeKind) -> u32 {
        let attr = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let name = name.as_bytes().to_vec();
        let (fail_if_exists, umask) = (true, 0o022);
        let make = Request::Make { dir, name, kind: what, attr, fail_if_exists, umask };
        match self.ask(kind, make) {
            Some(Reply::Entry { attr, .. }) => attr.ino,
            _ => panic!("nothing was made"),
        }
    }

    fn write(&mut self, kind: &'static str, ino: u32, offset: u64, bytes: &[u8]) {
        let data = Rope::cut(bytes, (offset % 4096) as usize, 4096);
        let (stability, append, kill_suid) = (Stability::Unstable, false, false);
        self.ask(kind, Request::Write { ino, offset, data, stability, append, kill_suid });
    }

    fn file(&mut self, dir: u32, n: usize) -> u32 {
        let name = format!("file-{n:08}");
        self.ask("lookup", Request::Lookup { dir, name: name.clone().into_bytes() });
        let ino = self.make("create", dir, &name, MakeKind::File { exclusive: None });
        let caps = b"security.capability".to_vec();
        self.ask("getxattr", Request::GetXattr { ino, name: caps });
        self.write("write, 1 KiB", ino, 0, &[b'x'; 1024]);
        for n in 2..8 {
            self.write("append, 512 bytes", ino, n * 512, &[b'y'; 512]);
        }
        let when = Some(SetTime::To(Time { sec: 1_700_000_000, nsec: 7 }));
        let set = SetAttr { mtime: when, atime: when, ..SetAttr::default() };
        self.ask("setattr", Request::SetAttr { ino, set });
        self.ask("getattr", Request::GetAttr { ino });
        ino
    }
}

fn open(image: &Path, mode: &str) -> Result<Driver, String> {
    let file = Arc::new(HostFile::open(image, false)?);
    let mode = volume::Mode::all().find(|m| m.name == mode).ok_or("no such mode")?.mode;
    let options = volume::OpenOptions {
        commit: volume::Commit::Async,
        recovery_within: Nanos::from_secs(10),
        ..volume::OpenOptions::plain(mode, 1 << 30, [7; 16])
    };
    let opener = volume::opener(None, file.size_bytes(), options);
    let driver = Driver::new(Arc::new(Monitor::new(1, opener)), vec![file]);
    driver.open()?;
    Ok(driver)
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, mode, files] = args.as_slice() else {
        return Err("requests IMAGE MODE FILES".into());
    };
    let files: usize = files.parse().map_err(|e| format!("{files}: {e}"))?;
    let mut bench = Bench { driver: open(Path::new(image), mode)?, spent: Vec::new() };
    let mut dir = 0;
    let mut made = Vec::new();
    for n in 0..files {
        if n % TOGETHER == 0 {
            dir = bench.make("mkdir", 2, &format!("dir-{n}"), MakeKind::Dir);
        }
        made.push((dir, bench.file(dir, n)));
    }
    for (n, (dir, ino)) in made.into_iter().enumerate() {
        let name = format!("file-{n:08}").into_bytes();
        bench.ask("unlink", Request::Unlink { dir, name });
        bench.ask("forget", Request::Forget { ino, count: 1 });
    }
    for (kind, count, spent) in &bench.spent {
        let each = spent.as_nanos() as u64 / count;
        println!("{kind:20} {count:8} {:6}.{:02} us", each / 1000, each % 1000 / 10);
    }
    bench.driver.close().map_err(|e| e.to_string())
}
