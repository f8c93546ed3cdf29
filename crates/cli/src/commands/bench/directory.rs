//! A directory of this machine, by plain system calls. It does not know where that is mounted from.

use super::{Place, Target};
use crate::Failure;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directory.
pub(super) struct Tree(pub(super) PathBuf);

fn fail(at: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |e| Failure::Failed(format!("{}: {e}", at.display()))
}

impl Target for Tree {
    fn places(&self, folder: &str, threads: usize) -> Result<Vec<Box<dyn Place>>, Failure> {
        let at = self.0.join(folder);
        fs::create_dir(&at).map_err(fail(&at))?;
        let place = |t: usize| {
            let dir = at.join(format!("t{t}"));
            fs::create_dir(&dir).map_err(fail(&dir))?;
            Ok(Box::new(Folder { dir, file: None }) as Box<dyn Place>)
        };
        (0..threads).map(place).collect()
    }
    fn finish(self: Box<Self>, folder: &str, _: usize) -> Result<(), Failure> {
        let at = self.0.join(folder);
        fs::remove_dir_all(&at).map_err(fail(&at))
    }
}

struct Folder {
    dir: PathBuf,
    file: Option<File>,
}

impl Folder {
    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("no file is open"))
    }
}

impl Place for Folder {
    fn mkdir(&mut self, name: &str) -> io::Result<()> {
        fs::create_dir(self.dir.join(name))
    }
    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        self.file = Some(options.open(self.dir.join(name))?);
        Ok(())
    }
    fn open(&mut self, name: &str) -> io::Result<()> {
        self.file = Some(OpenOptions::new().read(true).write(true).open(self.dir.join(name))?);
        Ok(())
    }
    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) -> io::Result<()> {
        self.file()?.write_all_at(bytes, offset)?;
        if durable { self.file()?.sync_data() } else { Ok(()) }
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file()?.sync_all()
    }
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file()?.read_exact_at(into, offset)
    }
    fn stat(&mut self) -> io::Result<()> {
        self.file()?.metadata().map(drop)
    }
    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }
    fn rmdir(&mut self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.dir.join(name))
    }
}
