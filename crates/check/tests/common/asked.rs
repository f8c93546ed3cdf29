//! What debugfs does to an image and says of it, and a repair that e2fsck accepts. Which damage is
//! done is the tests' question.

use super::{Scratch, check_both, e2fsck, tool};
use check::{Options, Report};
use std::collections::BTreeMap;

pub const OPTIONS: Options = Options { now_secs: 1_900_000_000, verify: true, mark_clean: true };

/// The image after these requests to debugfs.
pub fn edited(s: &Scratch, image: &[u8], requests: &str) -> Vec<u8> {
    let (img, script) = (s.path("edited.img"), s.path("requests"));
    std::fs::write(&img, image).unwrap();
    std::fs::write(&script, requests).unwrap();
    let out = tool("debugfs").arg("-w").arg("-f").arg(&script).arg(&img).output().unwrap();
    assert!(out.status.success(), "{requests}: {}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(&img).unwrap()
}

/// What debugfs answers to a request.
pub fn asked(s: &Scratch, image: &[u8], request: &str) -> String {
    let img = s.path("asked.img");
    std::fs::write(&img, image).unwrap();
    let out = tool("debugfs").args(["-R", request]).arg(&img).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// All files of an image: the contents of each by its path. They are written below `name`.
pub fn files(s: &Scratch, image: &[u8], name: &str) -> BTreeMap<String, Vec<u8>> {
    let (img, dir) = (s.path("dumped.img"), s.path(name));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&img, image).unwrap();
    let dump = format!("rdump / {}", dir.display());
    let out = tool("timeout").args(["20", "/usr/sbin/debugfs", "-R", &dump]).arg(&img).output();
    out.unwrap();
    let mut all = BTreeMap::new();
    let mut folders = vec![dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(&dir).unwrap().to_string_lossy().into_owned();
                all.insert(name, std::fs::read(&path).unwrap_or_default());
            }
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    all
}

/// Repairs the image, as e2fsck accepts it.
pub fn repaired(s: &Scratch, image: &mut Vec<u8>, what: &str) -> Report {
    let report = check_both(image, &OPTIONS).unwrap();
    assert!(report.left.is_empty(), "{what}: {:#?}", report.left);
    report.plan.apply(image, &mut ()).unwrap();
    let (code, text) = e2fsck(s, image);
    assert_eq!(code, 0, "{what}: {:#?}\n{text}", report.findings);
    report
}
