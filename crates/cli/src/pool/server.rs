//! One server of a pool: says what it has, looks at the others, and opens and closes volumes, each
//! in a process of its own.
//!
//! Invariants:
//! * Q1. A volume has a process here, or was refused, or neither: never both.
//! * Q2. So many are being opened at once, at most.
//! * Q3. What is let go is served: nothing is taken from who is on its way.

use super::child::{Child, arguments};
use super::members::Members;
use super::plan::{Member, Step, step};
use super::record::{Has, Record, SERVERS, State};
use super::{is_name, objects_of};
use crate::args::ServeArgs;
use crate::{Failure, Outcome, notify, say};
use host::{Objects, Stops, entropy};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Volumes that are being opened at once, at most: others may come who take some.
const AT_ONCE: usize = 4;
/// Who was not heard of for so many times `--takeover-after`, and a minute, is forgotten.
const FORGOTTEN: u32 = 20;
/// A volume's cache is no smaller, whatever its share.
const CACHE_MIN: u64 = 32 << 20;

struct Server {
    url: PathBuf,
    objects: Objects,
    /// The name of its record.
    id: String,
    record: Record,
    every: Duration,
    after: Duration,
    others: Members,
    volumes: BTreeSet<String>,
    /// What turned out to be no volume is looked at again each time.
    listed: Option<Instant>,
    children: BTreeMap<String, Child>,
    /// What could not be opened, until when it is not tried again, and why.
    refused: BTreeMap<String, (Instant, String)>,
    /// As they are on the command line.
    nfs: (String, u16),
    cache: Option<u64>,
}

/// `cairn serve URL/`.
pub fn serve(a: &ServeArgs, url: &Path) -> Result<Outcome, Failure> {
    check(a)?;
    let mut s = Server::new(a, url)?;
    let stops = Stops::new().map_err(|e| format!("signals: {e}"))?;
    s.say_so().map_err(|e| format!("{}: {e}", url.display()))?;
    let (begun, mut told) = (Instant::now(), false);
    let mut next = begun;
    loop {
        let mut due = false;
        stops.wait(|| {
            due = s.listen() || Instant::now() >= next;
            due
        });
        if !due {
            break;
        }
        if Instant::now() >= next {
            // Who begins at the same time is seen before anything is divided.
            let sees = begun.elapsed() >= 2 * s.every;
            s.turn(sees);
            if sees && !told {
                told = true;
                say::out("ready");
                notify::ready(["pool"].into_iter());
            }
            next = Instant::now() + s.every;
        } else if let Err(e) = s.say_so() {
            tracing::warn!("{}: {e}", s.id);
        }
        notify::alive();
    }
    notify::stopping();
    s.end()
}

/// Refuses what has no meaning for a pool, or would be used by several processes at once.
fn check(a: &ServeArgs) -> Result<(), Failure> {
    let o = &a.open;
    let given = [
        ("--mount", a.mount.is_some()),
        ("--no-nfs", a.no_nfs),
        ("--http", a.http.is_some()),
        ("--rpcbind", a.rpcbind),
        ("--standby", o.standby),
        ("--take-over", o.take_over),
        ("--read-only", o.read_only),
        ("--log", o.log.is_some()),
        ("--near-log", crate::buckets::has_near_log()),
        ("--cache-disk", host::has_cache_disk()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            let why = format!("{option}: not with a pool, where each volume has its own process");
            Err(Failure::Usage(why))
        }
        None => crate::image::check_open_args(o).map(drop),
    }
}

/// Who this is, for people, and as the name of an object.
fn names() -> Result<(String, String), String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (host, pid) = (host.trim(), std::process::id());
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let plain: String = host.chars().map(plain).collect();
    let chance = entropy().map_err(|e| format!("no random bytes: {e}"))?;
    let chance: String = chance[..4].iter().map(|b| format!("{b:02x}")).collect();
    Ok((format!("process {pid} on {host}"), format!("{plain}-{pid}-{chance}")))
}

impl Server {
    fn new(a: &ServeArgs, url: &Path) -> Result<Server, Failure> {
        let nfs = a.nfs.as_deref().unwrap_or("127.0.0.1:2049");
        let wrong = || Failure::Usage(format!("--nfs {nfs}: write ADDRESS:PORT"));
        let (address, port) = nfs.rsplit_once(':').ok_or_else(wrong)?;
        let nfs = (address.to_owned(), port.parse().map_err(|_| wrong())?);
        let objects = objects_of(url)?;
        let (server, id) = names()?;
        let after = Duration::from_secs_f64(a.open.takeover_after);
        let every = after / 5;
        let record = Record { server, every_ms: every.as_millis() as u64, ..Record::default() };
        Ok(Server {
            url: url.to_owned(),
            objects,
            id,
            record,
            every,
            after,
            others: Members::default(),
            volumes: BTreeSet::new(),
            listed: None,
            children: BTreeMap::new(),
            refused: BTreeMap::new(),
            nfs,
            cache: a.open.cache,
        })
    }

    /// Writes its record.
    fn say_so(&mut self) -> Result<(), String> {
        self.record.count += 1;
        let has = self.children.iter().map(|(v, c)| (v.clone(), c.has.clone()));
        let refused = self
            .refused
            .iter()
            .map(|(v, (_, why))| (v.clone(), Has { why: why.clone(), ..Has::new(State::Refused) }));
        self.record.volumes = has.chain(refused).collect();
        let (all, each) = (self.record.volumes.len(), (self.children.len(), self.refused.len()));
        assert_eq!(all, each.0 + each.1, "Q1: volumes that are had, or were refused: {each:?}");
        self.objects.put(&format!("{SERVERS}{}", self.id), self.record.encode())
    }

    /// Takes in what its volumes' processes say, and which have ended. Returns whether anything
    /// has changed that others should know.
    fn listen(&mut self) -> bool {
        let mut changed = false;
        let mut gone = Vec::new();
        for (v, child) in &mut self.children {
            let before = child.has.state;
            changed |= child.listen();
            if child.has.state == State::Serving && before != State::Serving {
                let (options, at) = (&child.has.options, &child.has.at);
                say::out(&format!("{v}: mount -t nfs -o {options} {at} DIR"));
            }
            if let Some(end) = child.ended() {
                gone.push((v.clone(), end));
            }
        }
        changed |= !gone.is_empty();
        for (v, end) in gone {
            self.children.remove(&v);
            match end {
                Ok(()) => say::out(&format!("{v}: let go")),
                Err(why) => {
                    say::err(&format!("{v}: {why}"));
                    self.refused.insert(v, (Instant::now() + 2 * self.after, why));
                }
            }
        }
        changed
    }

    /// Says that it is alive, looks around, and does what is to be done.
    fn turn(&mut self, acts: bool) {
        let now = Instant::now();
        self.refused.retain(|_, (until, _)| *until > now);
        let looked = self.say_so().and_then(|()| self.others.look(&self.objects, &self.id));
        let looked = looked.and_then(|()| self.list());
        if let Err(e) = looked {
            // Nothing is known of the others, and no volume would open.
            return tracing::warn!("{}: {e}", self.url.display());
        }
        self.forget();
        if !acts {
            return;
        }
        match step(&self.id, &self.members(), &self.volumes) {
            Step::Open(some) => self.open(some),
            Step::LetGo(v) => {
                let child = self.children.get_mut(&v).expect("Q3: who lets a volume go has it");
                let state = child.has.state;
                assert_eq!(state, State::Serving, "Q3: {v} is let go, and is not served");
                say::out(&format!("{v}: closed, for a server that has fewer"));
                child.end();
            }
            Step::Stay => return,
        }
        if let Err(e) = self.say_so() {
            tracing::warn!("{}: {e}", self.url.display());
        }
    }

    /// Which volumes there are.
    fn list(&mut self) -> Result<(), String> {
        if self.listed.is_some_and(|at| at.elapsed() < self.after) {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        for name in self.objects.folders()?.into_iter().filter(|n| !n.starts_with('.')) {
            if !is_name(&name) {
                tracing::warn!("{name:?}: no name that a pool can serve");
                continue;
            }
            // The last object of mkfs, and none that is ever deleted.
            let known = self.volumes.contains(&name);
            if known || self.objects.get(&format!("{name}/volume"))?.is_some() {
                found.insert(name);
            }
        }
        self.volumes = found;
        self.listed = Some(Instant::now());
        Ok(())
    }

    /// The records of servers that are long dead go.
    fn forget(&mut self) {
        let (now, long) = (Instant::now(), self.after * FORGOTTEN + Duration::from_secs(60));
        for (id, _) in self.others.0.iter().filter(|(_, h)| h.silent(now) > long) {
            if let Err(e) = self.objects.delete(&format!("{SERVERS}{id}")) {
                tracing::warn!("{e}");
            }
        }
    }

    /// All that are alive, with this one.
    fn members(&self) -> BTreeMap<String, Member> {
        let now = Instant::now();
        let alive = self.others.0.iter().filter(|(_, h)| h.silent(now) < self.after / 2);
        let others = alive.map(|(id, h)| (id.clone(), member(&h.record)));
        others.chain([(self.id.clone(), member(&self.record))]).collect()
    }

    /// How many are on their way.
    fn opening(&self) -> usize {
        self.children.values().filter(|c| c.has.state == State::Opening).count()
    }

    fn open(&mut self, some: Vec<String>) {
        let opening = self.opening();
        for v in some.into_iter().take(AT_ONCE.saturating_sub(opening)) {
            let known = self.children.contains_key(&v) || self.refused.contains_key(&v);
            assert!(!known, "P1: {v} is to be opened once more");
            match self.start(&v) {
                Ok(child) => drop(self.children.insert(v, child)),
                Err(why) => {
                    say::err(&format!("{v}: {why}"));
                    self.refused.insert(v, (Instant::now() + 2 * self.after, why));
                }
            }
        }
        let now = self.opening();
        assert!(now <= AT_ONCE.max(opening), "Q2: {now} volumes are being opened at once");
    }

    fn start(&self, v: &str) -> Result<Child, String> {
        let port = self.free_port()?;
        let line: Vec<OsString> = std::env::args_os().skip(1).collect();
        let (url, at) = (format!("{}{v}", self.url.display()), format!("{}:{port}", self.nfs.0));
        let mut arguments = arguments(&line, (self.url.as_os_str(), &url), v, &at);
        if self.cache.is_none() {
            // All of them may be this server's one day.
            let share = crate::image::default_cache() / self.volumes.len().max(1) as u64;
            arguments.push(format!("--cache={}", share.max(CACHE_MIN)).into());
        }
        Child::start(&arguments, port).map_err(|e| format!("it cannot be started: {e}"))
    }

    /// The first port from the one that was named that nobody has.
    fn free_port(&self) -> Result<u16, String> {
        let (address, first) = &self.nfs;
        let host = address.trim_start_matches('[').trim_end_matches(']');
        let is_free = |port: &u16| {
            let ours = self.children.values().any(|c| c.port == *port);
            let at = (host, *port).to_socket_addrs().ok().and_then(|mut a| a.next());
            !ours && at.is_some_and(|at| TcpListener::bind(at).is_ok())
        };
        match first {
            0 => Ok(0),
            first => (*first..=u16::MAX)
                .find(is_free)
                .ok_or_else(|| format!("no port is free at {address} from {first} on")),
        }
    }

    /// Closes all, and takes its record away.
    fn end(mut self) -> Result<Outcome, Failure> {
        self.children.values_mut().for_each(Child::end);
        let mut next = Instant::now();
        let mut failed = None;
        while !self.children.is_empty() {
            let before: BTreeSet<String> = self.refused.keys().cloned().collect();
            let mut changed = self.listen();
            let new = self.refused.iter().find(|(v, _)| !before.contains(*v));
            failed = failed.or(new.map(|(v, (_, why))| format!("{v}: closing: {why}")));
            changed |= Instant::now() >= next;
            if changed {
                next = Instant::now() + self.every;
                if let Err(e) = self.say_so() {
                    tracing::warn!("{}: {e}", self.url.display());
                }
                notify::alive();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let gone = self.objects.delete(&format!("{SERVERS}{}", self.id));
        match failed.map_or(gone, Err) {
            Ok(()) => Ok(Outcome::Done),
            Err(why) => Err(Failure::Failed(why)),
        }
    }
}

/// What a record says, as the plan has it.
fn member(record: &Record) -> Member {
    let in_state = |is: &dyn Fn(State) -> bool| -> BTreeSet<String> {
        let those = record.volumes.iter().filter(|(_, h)| is(h.state));
        those.map(|(v, _)| v.clone()).collect()
    };
    let refused = in_state(&|s| s == State::Refused);
    let has = in_state(&|s| s != State::Refused);
    Member { rests: in_state(&|s| s == State::Serving).len() == has.len(), has, refused }
}
