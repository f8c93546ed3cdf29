//! A real `cairn serve` on a port of its own, and NFS clients of another make (the `nfs3_client`
//! crate) that wait for each reply. Volumes lie in a folder that goes with the test.

#![allow(dead_code, reason = "no test needs all of it")]

use nfs3_client::io::{AsyncRead, AsyncWrite};
use nfs3_client::nfs3_types::mount::dirpath;
use nfs3_client::nfs3_types::nfs3::*;
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{MountClient, Nfs3Client, RpcError};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The binary under test.
pub const CAIRN: &str = env!("CARGO_BIN_EXE_cairn");
/// Everybody on this machine is who he says he is.
pub const TRUSTING: [&str; 2] =
    ["=127.0.0.0/8,no_root_squash,insecure", "=::1,no_root_squash,insecure"];
/// A server that says nothing for so long has failed the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it takes. Held against the time that is waited where something is wrong, and for one
/// thing at a time: how much of a busy machine there is for many, nobody knows.
pub fn took(what: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    what();
    begun.elapsed()
}

/// Are we root? If not, the test that asks is left out, which this says.
pub fn is_root() -> bool {
    let root = me().uid == 0;
    if !root {
        println!("skipped: not root");
    }
    root
}

/// A port of the machine's choice.
pub const ANY: &str = "127.0.0.1:0";

/// Runs it: exit code, standard output, standard error.
pub fn cairn(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(CAIRN).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8_lossy(&b).into_owned();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

/// Runs it, which has to go well; standard output.
pub fn ok(args: &[&str]) -> String {
    let (code, out, err) = cairn(args);
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    out
}

pub fn s(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = std::env::temp_dir().join(format!("cairn-served-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&at).unwrap();
        Folder(at)
    }
    /// Makes a volume in it.
    pub fn volume(&self, name: &str, size: &str) -> PathBuf {
        self.make(name, &["--size", size])
    }
    /// Makes one of ext3: every mode writes it, and its bytes are changed under no checksum.
    pub fn plain_volume(&self, name: &str, size: &str) -> PathBuf {
        self.make(name, &["--size", size, "--profile", "ext3"])
    }
    /// Makes one of a kind that the mode writes.
    pub fn volume_for(&self, mode: &str, name: &str, size: &str) -> PathBuf {
        match mode {
            "sync" | "soft-updates" => self.plain_volume(name, size),
            _ => self.volume(name, size),
        }
    }
    fn make(&self, name: &str, options: &[&str]) -> PathBuf {
        let image = self.0.join(name);
        ok(&[&["mkfs", s(&image)], options].concat());
        image
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A folder in another to mount on, which is left free even if the server was killed.
pub struct MountPoint(pub PathBuf);

impl MountPoint {
    /// None, with a line that says so, where nothing can be mounted.
    pub fn new(folder: &Folder) -> Option<MountPoint> {
        if !Path::new("/dev/fuse").exists() {
            println!("skipped: there is no /dev/fuse");
            return None;
        }
        let at = folder.0.join("mnt");
        std::fs::create_dir(&at).unwrap();
        Some(MountPoint(at))
    }
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// Takes away what a killed server has left.
    pub fn free(&self) {
        let quiet = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            let run = command.args(args).arg(&self.0).stderr(Stdio::null()).status();
            run.is_ok_and(|s| s.success())
        };
        let _ = quiet("umount", &["-l"]) || quiet("fusermount3", &["-uzq"]);
    }
}
impl Drop for MountPoint {
    fn drop(&mut self) {
        self.free();
    }
}

/// A running server.
pub struct Server {
    child: Child,
    pub at: SocketAddr,
    /// Lines of its standard error go to this file.
    pub log: PathBuf,
}

impl Server {
    /// Serves these images at `address` (port 0: any), with these further arguments.
    pub fn start(images: &[&Path], address: &str, more: &[&str]) -> Server {
        let mut command = Command::new(CAIRN);
        command.arg("serve").args(images).args(["--nfs", address]).args(more);
        let mut server = Server::launch(command, &images[0].with_extension("log"));
        let mut asked: SocketAddr = address.parse().unwrap();
        assert_ne!(server.at.port(), 0, "it says how to mount");
        asked.set_port(server.at.port());
        server.at = asked;
        server
    }
    /// Mounts the image and serves it to nobody else.
    pub fn mounted(image: &Path, at: &MountPoint, more: &[&str]) -> Server {
        let mut command = Command::new(CAIRN);
        command.arg("serve").arg(image).args(["--no-nfs", "--mount"]).arg(&at.0).args(more);
        Server::launch(command, &image.with_extension("log"))
    }
    /// Starts it and waits until it is ready; its address has port 0 if NFS is not served.
    pub fn launch(mut command: Command, log: &Path) -> Server {
        let to = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(to).spawn().unwrap();
        let mut port = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if line.starts_with("mount -t nfs") {
                let told = line.split("port=").nth(1).unwrap().split(',').next().unwrap();
                port = told.parse().unwrap();
            }
            if line == "ready" {
                let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                return Server { child, at, log: log.to_owned() };
            }
        }
        let status = child.wait().unwrap();
        let said = std::fs::read_to_string(log).unwrap_or_default();
        panic!("the server ended with {status}: {said}");
    }
    /// On this machine, believing everybody.
    pub fn trusting(images: &[&Path], address: &str, more: &[&str]) -> Server {
        let mut all = more.to_vec();
        TRUSTING.iter().for_each(|e| all.extend(["--export", e]));
        Server::start(images, address, &all)
    }
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
    /// Sends a signal. Without a process of its own: that would inherit the caller's files, and
    /// close them, which waits for the server if that is stopped and there is something to write
    /// back.
    pub fn signal(&self, which: Signal) {
        kill_process(Pid::from_child(&self.child), which).unwrap();
    }
    /// SIGSTOP, and waits until none of its threads does anything; SIGCONT lets them go on.
    pub fn halt(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let runs = |task: &Path| {
            let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
            let is_kernels = status.starts_with("Name:\tiou-");
            !is_kernels && status.lines().any(|l| l.starts_with("State:") && !l.contains("\tT"))
        };
        let begun = Instant::now();
        while std::fs::read_dir(&tasks).unwrap().any(|t| runs(&t.unwrap().path())) {
            assert!(begun.elapsed() < PATIENCE, "it cannot be stopped");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    /// SIGTERM, and the clean end that has to follow.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.errors());
    }
    /// The clean end that has to follow when its mount is gone.
    pub fn ended(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.errors());
    }
    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
    pub fn errors(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
    /// A line of /proc/PID/status, in KiB.
    pub fn memory_kib(&self, what: &str) -> u64 {
        let all = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = all.lines().find(|l| l.starts_with(what)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    /// How many files it has open.
    pub fn open_files(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count() as u64
    }
    /// Lets it have no more than so many from now on; how many it might have had.
    pub fn limit_files(&self, most: u64) -> u64 {
        let pid = self.child.id().to_string();
        let prlimit = |more: &[&str]| {
            let out = Command::new("prlimit").args(["--pid", &pid]).args(more).output().unwrap();
            assert!(out.status.success(), "{out:?}");
            String::from_utf8(out.stdout).unwrap()
        };
        let had = prlimit(&["--nofile", "--noheadings", "--output", "SOFT"]);
        prlimit(&[&format!("--nofile={most}:")]);
        had.trim().parse().unwrap()
    }
    pub fn socket(&self) -> TcpStream {
        let s = TcpStream::connect(self.at).unwrap();
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s.set_nodelay(true).unwrap();
        s
    }
    pub fn client(&self, path: &str) -> Client {
        Client::mount(self.at, path, me()).unwrap()
    }
}
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who runs the test, and so owns what mkfs made.
pub fn me() -> auth_unix {
    let m = std::fs::metadata("/proc/self").unwrap();
    auth_unix { uid: m.uid(), gid: m.gid(), gids: vec![], ..auth_unix::default() }
}

/// A socket that is waited for.
pub struct Wire(TcpStream);

impl Wire {
    /// Connects to a server.
    pub fn to(at: SocketAddr) -> io::Result<Wire> {
        let s = TcpStream::connect(at)?;
        s.set_read_timeout(Some(PATIENCE))?;
        s.set_nodelay(true)?;
        Ok(Wire(s))
    }
}

impl AsyncRead for Wire {
    async fn async_read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 if !buf.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            n => Ok(n),
        }
    }
}
impl AsyncWrite for Wire {
    async fn async_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }
}

/// Runs a future of which every step waits by itself.
pub fn done<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(t) => t,
        Poll::Pending => unreachable!("a `Wire` waits inside its calls"),
    }
}

/// What a call gave: the server's no, or a connection that failed (None).
pub type Result3<T> = Result<T, Option<nfsstat3>>;

/// A reply without the parts that come with an error.
pub fn plain<T, E>(r: Result<Nfs3Result<T, E>, RpcError>) -> Result3<T> {
    match r {
        Ok(Nfs3Result::Ok(t)) => Ok(t),
        Ok(Nfs3Result::Err((status, _))) => Err(Some(status)),
        Err(_) => Err(None),
    }
}

pub fn name<'a>(dir: &nfs_fh3, n: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3(Opaque::borrowed(n.as_bytes())) }
}

fn handle(of: post_op_fh3) -> nfs_fh3 {
    match of {
        Nfs3Option::Some(fh) => fh,
        Nfs3Option::None => panic!("a reply without a handle"),
    }
}

/// A mounted client.
pub struct Client {
    pub rpc: Nfs3Client<Wire>,
    pub root: nfs_fh3,
}

impl Client {
    /// Mounts as somebody; Err: why not.
    pub fn mount(at: SocketAddr, path: &str, who: auth_unix) -> Result<Client, String> {
        let (auth, none) = (opaque_auth::auth_unix(&who), opaque_auth::default());
        let first = Wire::to(at).map_err(|e| e.to_string())?;
        let mut mount = MountClient::new_with_auth(first, auth.clone(), none.clone());
        let path = dirpath(Opaque::borrowed(path.as_bytes()));
        let root = done(mount.mnt(path)).map_err(|e| e.to_string())?;
        let root = nfs_fh3 { data: Opaque::owned(root.fhandle.0.as_ref().to_vec()) };
        let second = Wire::to(at).map_err(|e| e.to_string())?;
        Ok(Client { rpc: Nfs3Client::new_with_auth(second, auth, none), root })
    }

    pub fn mkdir(&mut self, dir: &nfs_fh3, n: &str) -> Result3<nfs_fh3> {
        let attributes = sattr3 { mode: Nfs3Option::Some(0o755), ..sattr3::default() };
        let args = MKDIR3args { where_: name(dir, n), attributes };
        plain(done(self.rpc.mkdir(&args))).map(|ok| handle(ok.obj))
    }
    pub fn create(&mut self, dir: &nfs_fh3, n: &str, how: createhow3) -> Result3<nfs_fh3> {
        let args = CREATE3args { where_: name(dir, n), how };
        plain(done(self.rpc.create(&args))).map(|ok| handle(ok.obj))
    }
    /// An ordinary file that must be new.
    pub fn create_new(&mut self, dir: &nfs_fh3, n: &str) -> Result3<nfs_fh3> {
        let mode = Nfs3Option::Some(0o644);
        self.create(dir, n, createhow3::GUARDED(sattr3 { mode, ..sattr3::default() }))
    }
    pub fn lookup(&mut self, dir: &nfs_fh3, n: &str) -> Result3<nfs_fh3> {
        plain(done(self.rpc.lookup(&LOOKUP3args { what: name(dir, n) }))).map(|ok| ok.object)
    }
    pub fn remove(&mut self, dir: &nfs_fh3, n: &str) -> Result3<()> {
        plain(done(self.rpc.remove(&REMOVE3args { object: name(dir, n) }))).map(drop)
    }
    pub fn rename(&mut self, from: diropargs3<'_>, to: diropargs3<'_>) -> Result3<()> {
        plain(done(self.rpc.rename(&RENAME3args { from, to }))).map(drop)
    }
    pub fn attr(&mut self, object: &nfs_fh3) -> Result3<fattr3> {
        let args = GETATTR3args { object: object.clone() };
        plain(done(self.rpc.getattr(&args))).map(|ok| ok.obj_attributes)
    }
    pub fn set(&mut self, object: &nfs_fh3, new_attributes: sattr3) -> Result3<()> {
        let guard = sattrguard3::None;
        let args = SETATTR3args { object: object.clone(), new_attributes, guard };
        plain(done(self.rpc.setattr(&args))).map(drop)
    }
    /// Writes, and returns the verifier.
    pub fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        bytes: &[u8],
        stable: stable_how,
    ) -> Result3<[u8; 8]> {
        let (data, count) = (Opaque::borrowed(bytes), bytes.len() as u32);
        let args = WRITE3args { file: file.clone(), offset, count, stable, data };
        let ok = plain(done(self.rpc.write(&args)))?;
        assert_eq!(ok.count, count);
        Ok(ok.verf.0)
    }
    pub fn commit(&mut self, file: &nfs_fh3) -> Result3<[u8; 8]> {
        let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
        plain(done(self.rpc.commit(&args))).map(|ok| ok.verf.0)
    }
    pub fn read(&mut self, file: &nfs_fh3, offset: u64, count: u32) -> Result3<Vec<u8>> {
        let args = READ3args { file: file.clone(), offset, count };
        plain(done(self.rpc.read(&args))).map(|ok| ok.data.as_ref().to_vec())
    }
    /// Names from a cookie on: a page of them with their cookies, and whether it is the last.
    pub fn page(
        &mut self,
        dir: &nfs_fh3,
        cookie: u64,
        count: u32,
    ) -> Result3<(Vec<(String, u64)>, bool)> {
        let dir = dir.clone();
        let args = READDIR3args { dir, cookie, cookieverf: cookieverf3([0; 8]), count };
        let list = plain(done(self.rpc.readdir(&args)))?.reply;
        let name = |n: &filename3<'_>| String::from_utf8_lossy(n.0.as_ref()).into_owned();
        let entries = list.entries.into_inner();
        Ok((entries.iter().map(|e| (name(&e.name), e.cookie)).collect(), list.eof))
    }
    /// All names but the dots.
    pub fn names(&mut self, dir: &nfs_fh3) -> Result3<Vec<String>> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (page, last) = self.page(dir, cookie, 32 << 10)?;
            cookie = page.last().map_or(cookie, |e| e.1);
            all.extend(page.into_iter().map(|e| e.0).filter(|n| n != "." && n != ".."));
            if last {
                return Ok(all);
            }
        }
    }
}

/// A small generator of numbers (xorshift), so that a run can be had again.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
