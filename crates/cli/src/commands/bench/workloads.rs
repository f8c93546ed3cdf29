//! What `cairn bench` does: workloads as phases, each a function of a place and a number of
//! operations. They know nothing of where they run.

use super::Place;
use std::io;

/// A part of a workload.
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// Does `count` operations; how many that were.
    pub(super) run: fn(&mut dyn Place, u64) -> io::Result<u64>,
    /// Is it told of? Preparations and tidying up are not.
    pub(super) counted: bool,
}

const fn phase(name: &'static str, run: fn(&mut dyn Place, u64) -> io::Result<u64>) -> Phase {
    Phase { name, run, counted: true }
}

const fn silent(name: &'static str, run: fn(&mut dyn Place, u64) -> io::Result<u64>) -> Phase {
    Phase { name, run, counted: false }
}

/// The workloads by their names.
pub(super) const WORKLOADS: &[(&str, &[Phase])] = &[
    ("smallfiles", &[phase("create", create), phase("remove", remove)]),
    ("append", &[phase("append", append), silent("remove", remove_log)]),
    ("fsync", &[phase("fsync", fsync), silent("remove", remove_log)]),
    ("write", &[phase("write", write), silent("remove", remove_log)]),
    ("read", &[silent("write", write), phase("read", read), silent("remove", remove_log)]),
    (
        "operations",
        &[
            phase("mkdir", mkdir),
            phase("create", create_durably),
            silent("log", begin_log),
            phase("append", append_durably),
            phase("lookup", lookup),
            phase("getattr", getattr),
            phase("read", read_small),
            phase("remove", remove),
            silent("tidy", tidy),
        ],
    ),
];

const SMALL: [u8; 1024] = [7; 1024];
const LARGE_BYTES: u64 = 1 << 20;

fn create(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    for i in 0..count {
        p.create(&format!("f{i}"))?;
        p.write(0, &SMALL, false)?;
    }
    Ok(count)
}

fn create_durably(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    for i in 0..count {
        p.create(&format!("f{i}"))?;
        p.write(0, &SMALL, true)?;
    }
    Ok(count)
}

fn remove(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    (0..count).try_for_each(|i| p.remove(&format!("f{i}")))?;
    Ok(count)
}

fn begin_log(p: &mut dyn Place, _: u64) -> io::Result<u64> {
    p.create("log")?;
    Ok(1)
}

fn append(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    begin_log(p, 1)?;
    (0..count).try_for_each(|i| p.write(i * SMALL.len() as u64, &SMALL, false))?;
    Ok(count)
}

fn append_durably(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    (0..count).try_for_each(|i| p.write(i * SMALL.len() as u64, &SMALL, true))?;
    Ok(count)
}

fn fsync(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    begin_log(p, 1)?;
    for i in 0..count {
        p.write(i * SMALL.len() as u64, &SMALL, false)?;
        p.sync()?;
    }
    Ok(count)
}

fn write(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    begin_log(p, 1)?;
    let block = vec![7; LARGE_BYTES as usize];
    (0..count).try_for_each(|i| p.write(i * LARGE_BYTES, &block, false))?;
    p.sync()?;
    Ok(count)
}

fn read(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    p.open("log")?;
    let mut block = vec![0; LARGE_BYTES as usize];
    (0..count).try_for_each(|i| p.read(i * LARGE_BYTES, &mut block))?;
    Ok(count)
}

fn mkdir(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    (0..count).try_for_each(|i| p.mkdir(&format!("d{i}")))?;
    Ok(count)
}

fn lookup(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    (0..count).try_for_each(|i| p.open(&format!("f{i}")))?;
    Ok(count)
}

fn getattr(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    p.open("log")?;
    (0..count).try_for_each(|_| p.stat())?;
    Ok(count)
}

fn read_small(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    p.open("log")?;
    let mut block = SMALL;
    (0..count).try_for_each(|i| p.read(i * SMALL.len() as u64, &mut block))?;
    Ok(count)
}

fn remove_log(p: &mut dyn Place, _: u64) -> io::Result<u64> {
    p.remove("log")?;
    Ok(1)
}

fn tidy(p: &mut dyn Place, count: u64) -> io::Result<u64> {
    (0..count).try_for_each(|i| p.rmdir(&format!("d{i}")))?;
    remove_log(p, 1)
}
