//! What a killed process leaves in a folder that is a bucket: an object is written under its name
//! and `#` and a number, and gets its name when it is whole. What has only the former is in no
//! listing, and is taken away when it is so old that nobody writes it any more. Whoever does all
//! the same, a process that stood still, finds it gone and writes it again.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// Nobody takes longer to write an object.
const OLD: Duration = Duration::from_secs(600);

/// Takes leftovers in the folder, and in those directly below it, away. Returns how many.
pub(crate) fn take_away(folder: &Path) -> usize {
    let below = entries(folder).filter(|(_, meta)| meta.is_dir()).map(|(path, _)| path);
    let folders: Vec<_> = below.chain([folder.to_owned()]).collect();
    let mut taken = 0;
    for (path, meta) in folders.iter().flat_map(|f| entries(f)) {
        let age = meta.modified().ok().and_then(|m| SystemTime::now().duration_since(m).ok());
        let left = meta.is_file() && is_staged(&path) && age.is_some_and(|age| age >= OLD);
        if left && std::fs::remove_file(&path).is_ok() {
            tracing::info!("{}: left by a process that was killed; removed", path.display());
            taken += 1;
        }
    }
    taken
}

fn entries(folder: &Path) -> impl Iterator<Item = (std::path::PathBuf, std::fs::Metadata)> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten();
    all.filter_map(|e| Some((e.path(), e.metadata().ok()?)))
}

fn is_staged(path: &Path) -> bool {
    let number = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.rsplit_once('#'));
    number.is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::fs::File;

    #[test]
    fn only_what_is_old_and_has_no_name_of_its_own_goes() {
        let dir = crate::file::beside_the_build("staged");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("log")).unwrap();
        let old = SystemTime::now() - 2 * OLD;
        for (name, is_old) in [
            ("volume", true),
            ("volume#1", true),
            ("log/0000000000000007", true),
            ("log/0000000000000007#1", true),
            ("log/0000000000000008#12", true),
            ("log/0000000000000009#1", false),
            ("log/name#x", true),
        ] {
            let file = File::create(dir.join(name)).unwrap();
            if is_old {
                file.set_modified(old).unwrap();
            }
        }
        assert_eq!(take_away(&dir), 3);
        let mut left: Vec<_> = entries(&dir.join("log")).map(|(p, _)| p).collect();
        left.sort();
        let names: Vec<_> = left.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["0000000000000007", "0000000000000009#1", "name#x"]);
        assert!(dir.join("volume").exists() && !dir.join("volume#1").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
