//! What debugfs does to an image and says of it, and a repair that e2fsck accepts. Which damage is
//! done is the tests' question.

use super::{Scratch, check_both, e2fsck, tool};
use check::{Options, Report};

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

/// Repairs the image, as e2fsck accepts it.
pub fn repaired(s: &Scratch, image: &mut Vec<u8>, what: &str) -> Report {
    let report = check_both(image, &OPTIONS).unwrap();
    assert!(report.left.is_empty(), "{what}: {:#?}", report.left);
    report.plan.apply(image, &mut ()).unwrap();
    let (code, text) = e2fsck(s, image);
    assert_eq!(code, 0, "{what}: {:#?}\n{text}", report.findings);
    report
}
