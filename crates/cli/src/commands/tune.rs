//! `cairn resize`, `cairn label`, `cairn uuid`: what a closed volume is, changed where it lies.

use crate::args::{LabelArgs, ResizeArgs, UuidArgs};
use crate::device::FileDevice;
use crate::image::about;
use crate::progress::Bar;
use crate::{Failure, Outcome, size};
use host::{HostFile, now};
use std::path::Path;
use std::sync::Arc;
use volume::{LABEL_BYTES_MAX, Resize};

/// `cairn resize`.
pub fn resize(a: &ResizeArgs) -> Result<Outcome, Failure> {
    let shown = a.image.display();
    refuse_store(&a.image, "its size is that of its store, which cannot grow: `cairn lfs export`")?;
    let file = crate::disk::open(&a.image, false)?;
    let (has, asked) = (file.size_bytes(), a.size.unwrap_or(file.size_bytes()));
    let file = Arc::new(file);
    let mut held = crate::hold::hold(&file, false)?;
    let (now_secs, mut bar) = (now().wall.secs() as u32, Bar::new());
    let looked = volume::resize(&FileDevice(file.clone()), asked, now_secs, &mut bar);
    let growth = match looked.map_err(|e| about(&a.image, &e.to_string()))? {
        Resize::Larger(growth) => growth,
        Resize::Same => {
            tell!("{shown}: has that size already: {}", size::show(asked));
            return Ok(Outcome::Done);
        }
        Resize::Smaller { bytes, used } => return Err(smaller(&shown, asked, (bytes, used))),
    };
    let fixed = file.is_device() || crate::disk::partition_of(&a.image).is_some();
    if growth.bytes() > has && fixed {
        let (need, have) = (size::show(growth.bytes()), size::show(has));
        let why = format!("{shown}: it has only {have}, and the volume would need {need}");
        return Err(Failure::Failed(why));
    }
    if growth.bytes() > has {
        file.grow(growth.bytes()).map_err(|e| format!("{shown}: {e}"))?;
    }
    // Nothing fails while nobody has the file, or the volume would stay marked as used.
    held.iter_mut().for_each(|h| h.moves(None));
    let file = Arc::into_inner(file).expect("nobody else has it");
    let file = Arc::new(file.grown(growth.bytes()));
    held.iter_mut().for_each(|h| h.moves(Some(file.clone())));
    if let Err(e) = growth.apply(&mut FileDevice(file.clone()), &mut bar) {
        return Err(Failure::Failed(undone(&file, has, &format!("{shown}: {e}"))));
    }
    let (before, after) = growth.groups();
    tell!(
        "{shown}: {} now; {}, {} of them new",
        size::show(growth.bytes()),
        size::count(after.into(), "group"),
        after - before
    );
    if growth.leaves_reserve() {
        tell!(
            "{shown}: what was reserved for descriptors is used up; those of the new groups lie in \
             them (meta_bg)"
        );
    }
    Ok(Outcome::Done)
}

/// What makes it smaller, which is not done here.
fn smaller(shown: &std::path::Display<'_>, asked: u64, (bytes, used): (u64, u64)) -> Failure {
    let (have, kib) = (size::show(bytes), asked / 1024);
    if asked < used {
        let used = size::show(used);
        return Failure::Failed(format!(
            "{shown}: it has {have}, of which {used} are in use, and shrinking is not in this \
             version: `e2fsck -f {shown} && resize2fs -M {shown}` makes it as small as it can be"
        ));
    }
    Failure::Failed(format!(
        "{shown}: it has {have}, and shrinking is not in this version: `e2fsck -f {shown} && \
         resize2fs {shown} {kib}K` does that"
    ))
}

/// Why it failed, and what the volume is now. One of the old size gets its file's old length back.
fn undone(file: &Arc<HostFile>, length: u64, why: &str) -> String {
    match volume::probe(&FileDevice(file.clone())) {
        Ok(p) if p.is_clean() => {
            let _ = file.cut(length); // holes beyond the volume do no harm
            format!("{why}; the volume is as it was")
        }
        _ => format!("{why}; nothing is lost: `cairn fsck --repair`, then once more"),
    }
}

/// `cairn label`.
pub fn label(a: &LabelArgs) -> Result<Outcome, Failure> {
    let Some(label) = &a.label else {
        tell!("{}", format::shown(super::info::superblock(&a.image)?.label().as_bytes()));
        return Ok(Outcome::Done);
    };
    if label.len() > LABEL_BYTES_MAX {
        let why = format!("{label}: a label has at most {LABEL_BYTES_MAX} bytes");
        return Err(Failure::Usage(why));
    }
    refuse_store(&a.image, "its label is given by `cairn mkfs --label`")?;
    let mut device = FileDevice(Arc::new(crate::disk::open(&a.image, false)?));
    let _held = crate::hold::hold(&device.0, false)?;
    volume::set_label(&mut device, label).map_err(|e| about(&a.image, &e.to_string()))?;
    Ok(Outcome::Done)
}

/// `cairn uuid`.
pub fn uuid(a: &UuidArgs) -> Result<Outcome, Failure> {
    let Some(wanted) = &a.uuid else {
        tell!("{}", hyphened(&super::info::superblock(&a.image)?.uuid()));
        return Ok(Outcome::Done);
    };
    let uuid = match wanted.as_str() {
        "random" => super::mkfs::new_uuid()?,
        text => parsed(text).ok_or_else(|| {
            Failure::Usage(format!("{text}: no UUID: 32 hexadecimal digits, or `random`"))
        })?,
    };
    refuse_store(&a.image, "its UUID is the store's, and stays")?;
    let mut device = FileDevice(Arc::new(crate::disk::open(&a.image, false)?));
    let _held = crate::hold::hold(&device.0, false)?;
    volume::set_uuid(&mut device, uuid).map_err(|e| about(&a.image, &e.to_string()))?;
    tell!("{}", hyphened(&uuid));
    Ok(Outcome::Done)
}

fn refuse_store(image: &Path, why: &str) -> Result<(), Failure> {
    match super::lfs::is_store(image)? {
        true => Err(Failure::Failed(format!(
            "{}: a volume in a log-structured store: {why}",
            image.display()
        ))),
        false => Ok(()),
    }
}

pub(super) fn hyphened(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn parsed(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let whole = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = whole.then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
    number.filter(|n| *n != 0).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_and_read() {
        let text = "0f9f6f5c-6b4e-4f57-9c38-7c2a8e9d1b11";
        let uuid = parsed(text).expect("it is one");
        assert_eq!((hyphened(&uuid).as_str(), uuid[0]), (text, 0x0f));
        assert_eq!(parsed(&text.replace('-', "")), Some(uuid));
        for none in ["", "0f9f", "zf9f6f5c-6b4e-4f57-9c38-7c2a8e9d1b11", &"0".repeat(32)] {
            assert_eq!(parsed(none), None);
        }
    }
}
