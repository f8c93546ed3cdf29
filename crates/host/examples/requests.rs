//! What a volume's own code takes for each kind of request, without any front end and its
//! transport: folders of files as fs_mark and `cp -a` make them, appended to; then one folder as
//! PostMark uses it; then all of it removed as `rm -r` does. For profilers, and to see before and
//! after a change.
//!
//! ```text
//!  cargo run --release --example requests -- IMAGE MODE FILES
//! ```
//!
//! IMAGE is a volume that `cairn mkfs` has made, best in memory (/dev/shm). Under
//! `valgrind --tool=callgrind '--dump-after=*::phase_*'` each phase comes with its instructions.

mod opened;

use env::Rope;
use host::Driver;
use opened::open;
use std::path::Path;
use std::time::{Duration, Instant};
use vfs::{Call, Cred, MakeKind, Reply, Request, SetAttr, SetTime, Stability, Time};

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

    fn tell(&mut self, phase: &str) {
        let all: Duration = self.spent.iter().map(|s| s.2).sum();
        println!("{phase}: {} ms", all.as_millis());
        for (kind, count, spent) in self.spent.drain(..) {
            let each = spent.as_nanos() as u64 / count;
            println!("  {kind:20} {count:8} {:6}.{:02} us", each / 1000, each % 1000 / 10);
        }
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
        let stability = Stability::Unstable;
        self.ask(kind, Request::write(ino, offset, data, stability));
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

/// Folders of files, all alike.
#[inline(never)]
fn phase_make(bench: &mut Bench, files: usize) {
    let mut dir = 0;
    for n in 0..files {
        if n % TOGETHER == 0 {
            dir = bench.make("mkdir", 2, &format!("dir-{n}"), MakeKind::Dir);
        }
        bench.file(dir, n);
    }
}

/// PostMark's way of working: files come and go in one folder, are read and appended to.
struct PostMark<'a> {
    bench: &'a mut Bench,
    dir: u32,
    rng: env::Rng,
    live: Vec<(String, u32)>,
    next: usize,
}

impl PostMark<'_> {
    fn create(&mut self) {
        let name = format!("f{}", self.next);
        self.next += 1;
        self.bench.ask("lookup", Request::Lookup { dir: self.dir, name: name.clone().into() });
        let ino = self.bench.make("create", self.dir, &name, MakeKind::File { exclusive: None });
        let bytes = 500 + self.rng.below(9270);
        self.append(ino, bytes);
        self.live.push((name, ino));
    }

    fn append(&mut self, ino: u32, bytes: u64) {
        let Some(Reply::Attr(attr)) = self.bench.ask("getattr", Request::GetAttr { ino }) else {
            panic!("a file without attributes");
        };
        let end = attr.size + bytes;
        let mut at = attr.size;
        while at < end {
            let n = (end - at).min(512);
            self.bench.write("append, 512 bytes", ino, at, &[b'x'; 512][..n as usize]);
            at += n;
        }
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.live.len() as u64) as usize
    }

    fn transaction(&mut self) {
        let n = self.any();
        let ino = self.live[n].1;
        if self.rng.one_in(2) {
            self.bench.ask("read", Request::Read { ino, offset: 0, len: 1 << 17 });
        } else {
            let bytes = 500 + self.rng.below(3000);
            self.append(ino, bytes);
        }
        if self.rng.one_in(2) {
            return self.create();
        }
        let n = self.any();
        let (name, ino) = self.live.swap_remove(n);
        self.bench.ask("unlink", Request::Unlink { dir: self.dir, name: name.into_bytes() });
        self.bench.ask("forget", Request::Forget { ino, count: 1 });
    }
}

#[inline(never)]
fn phase_postmark(bench: &mut Bench, files: usize) {
    let dir = bench.make("mkdir", 2, "postmark", MakeKind::Dir);
    let rng = env::Rng::new(42);
    let mut mark = PostMark { bench, dir, rng, live: Vec::new(), next: 0 };
    (0..files).for_each(|_| mark.create());
    (0..4 * files).for_each(|_| mark.transaction());
}

/// All that a folder has, each held once more, as a kernel asks that is about to use it.
fn listed(bench: &mut Bench, dir: u32) -> Vec<vfs::DirEntry> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let (max_bytes, entry_bytes, attrs) = (32 << 10, 152, true);
        let list = Request::ReadDir { dir, cookie, max_bytes, entry_bytes, attrs };
        let Some(Reply::Dir { entries, .. }) = bench.ask("readdir", list) else { return all };
        let Some(last) = entries.last() else { return all };
        cookie = last.cookie;
        all.extend(entries.into_iter().filter(|e| e.name != b"." && e.name != b".."));
    }
}

fn remove_all(bench: &mut Bench, dir: u32) {
    for vfs::DirEntry { name, ino, attr, .. } in listed(bench, dir) {
        let is_dir = attr.is_some_and(|a| a.kind() == vfs::Kind::Dir);
        if name == b"lost+found" {
            continue;
        }
        if is_dir {
            remove_all(bench, ino);
            bench.ask("rmdir", Request::Rmdir { dir, name });
        } else {
            bench.ask("unlink", Request::Unlink { dir, name });
        }
        // One hold is of who made it.
        bench.ask("forget", Request::Forget { ino, count: 2 });
    }
}

#[inline(never)]
fn phase_remove(bench: &mut Bench) {
    remove_all(bench, 2);
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, mode, files] = args.as_slice() else {
        return Err("requests IMAGE MODE FILES".into());
    };
    let files: usize = files.parse().map_err(|e| format!("{files}: {e}"))?;
    let mut bench = Bench { driver: open(Path::new(image), mode, 1 << 30)?, spent: Vec::new() };
    phase_make(&mut bench, files);
    bench.tell("make");
    phase_postmark(&mut bench, files / 2);
    bench.tell("PostMark");
    phase_remove(&mut bench);
    bench.tell("rm -r");
    bench.driver.close().map_err(|e| e.to_string())
}
