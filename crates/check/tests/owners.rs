//! Blocks that two files claim: what is in a block says whose it is, and no file loses anything
//! because another one's pointer is wrong.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::asked::{asked, edited, repaired};
use crate::common::wide::made4;
use crate::common::{Scratch, made, tool};

const M: u64 = 1 << 20;

/// The blocks of a file, as debugfs lists them: a map's own come before what they lead to.
fn blocks(s: &Scratch, image: &[u8], path: &str) -> Vec<u64> {
    let text = asked(s, image, &format!("blocks {path}"));
    text.split_whitespace().map(|n| n.parse().unwrap()).collect()
}

/// All that these have: contents, names, attributes. A damaged directory's names are left out.
fn all(s: &Scratch, image: &[u8], but: &str) -> Vec<(String, String)> {
    let files = ["/double", "/sparse", "/dir0/file2", "/dir1/file5", "/dir2/file5", "/dir3/file5"];
    let dirs = ["/many", "/dir0", "/dir1/inner", "/dir2", "/dir3"];
    let queries = files.iter().map(|f| format!("cat {f}"));
    let queries = queries.chain(dirs.iter().map(|d| format!("ls -p {d}")));
    let queries = queries.chain(["ea_get /dir0/file2 user.colour".to_owned()]);
    let queries: Vec<String> = queries.filter(|q| !q.contains(but)).collect();
    let (img, script) = (s.path("all.img"), s.path("queries"));
    std::fs::write(&img, image).unwrap();
    std::fs::write(&script, queries.join("\n") + "\n").unwrap();
    let out = tool("debugfs").arg("-f").arg(&script).arg(&img).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let answers: Vec<String> = text.split("debugfs: ").skip(1).map(str::to_owned).collect();
    assert_eq!(answers.len(), queries.len());
    answers.into_iter().zip(queries).collect()
}

/// Each of these pointers made to lead to a block that is another file's costs that nothing.
fn costs_nothing(s: &Scratch, image: &[u8], wrong: &[(&str, String)]) {
    for (path, request) in wrong {
        let before = all(s, image, path);
        let mut broken = edited(s, image, request);
        let report = repaired(s, &mut broken, request);
        let after = all(s, &broken, path);
        let pairs = before.iter().zip(&after).filter(|(a, b)| a != b);
        let other: Vec<&str> = pairs.map(|((_, asked), _)| asked.as_str()).collect();
        assert!(other.is_empty(), "{request}\n{other:?}\n{:#?}", report.findings);
    }
}

#[test]
fn a_wrong_pointer_costs_no_other_file_its_map() {
    let s = Scratch::new("owner-map");
    let image = made(&["-t", "ext2", "-I", "256"], 1024, 12 * M);
    let double = blocks(&s, &image, "/double");
    let sparse = blocks(&s, &image, "/sparse");
    // Behind the first twelve come the indirect block, its 256, the double one, one of its.
    let [ind, dind, below] = [double[12], double[12 + 257], double[12 + 258]];
    let xattr = asked(&s, &image, "stat /dir0/file2");
    let xattr = xattr.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let xattr: u64 = xattr.parse().unwrap();
    let many = blocks(&s, &image, "/many");
    let mut wrong = Vec::new();
    for path in ["/dir0/file5", "/dir3/file5"] {
        for to in [ind, dind, below, xattr, sparse[0], sparse[1], many[1]] {
            wrong.push((path, format!("sif {path} block[0] {to}\n")));
        }
        // Data that looks like pointers, or is none.
        for to in [double[30], *sparse.last().unwrap(), xattr, many[2], sparse[0], ind, dind] {
            wrong.push((path, format!("sif {path} block[IND] {to}\n")));
            wrong.push((path, format!("sif {path} block[DIND] {to}\n")));
        }
    }
    for path in ["/dir0", "/many"] {
        for to in [ind, below, xattr, sparse[1], *sparse.last().unwrap()] {
            let n = if path == "/many" { 11 } else { 1 };
            let size = 1024 * (n + 1);
            wrong.push((path, format!("sif {path} block[{n}] {to}\nsif {path} size {size}\n")));
        }
    }
    costs_nothing(&s, &image, &wrong);
}

#[test]
fn a_block_of_names_stays_with_its_directory() {
    let s = Scratch::new("owner-names");
    for options in [&["-t", "ext2"][..], &["-t", "ext4", "-O", "metadata_csum,^extents,^64bit"]] {
        let image = made(options, 1024, 12 * M);
        let first = |path: &str| blocks(&s, &image, path)[0];
        let many = blocks(&s, &image, "/many");
        let mut wrong = Vec::new();
        for path in ["/dir0", "/dir3", "/dir1/inner"] {
            for other in ["/dir0", "/dir2", "/dir3", "/many"] {
                if other != path {
                    wrong.push((path, format!("sif {path} block[0] {}\n", first(other))));
                }
            }
            let size = format!("sif {path} size 2048\n");
            wrong.push((path, format!("sif {path} block[1] {}\n{size}", many[3])));
        }
        if options[1] == "ext2" {
            wrong.retain(|(_, request)| !request.contains("block[1]"));
        }
        costs_nothing(&s, &image, &wrong);
    }
}

#[test]
fn a_node_of_extents_stays_with_its_file() {
    let s = Scratch::new("owner-node");
    for sums in ["^metadata_csum", "metadata_csum"] {
        let image = made4(&["-J", "size=1", "-O", sums], 1024, 20 * M);
        let tree = asked(&s, &image, "ex /pieces");
        let nodes = tree.lines().filter(|l| ["0/ 2", "1/ 2"].iter().any(|n| l.contains(n)));
        let nodes: Vec<u64> =
            nodes.map(|l| l.split_whitespace().nth(7).unwrap().parse().unwrap()).collect();
        let pieces = asked(&s, &image, "cat /pieces");
        for node in nodes.iter().take(3) {
            for path in ["/dir0/file5", "/dir3/file5", "/dir0", "/dir2"] {
                // One extent more, behind the first, of one block.
                let request = format!(
                    "sif {path} block[0] 0x2f30a\nsif {path} block[6] 5\nsif {path} block[7] 1\n\
                     sif {path} block[8] {node}\nsif {path} size 6144\n"
                );
                let mut broken = edited(&s, &image, &request);
                repaired(&s, &mut broken, &request);
                assert!(asked(&s, &broken, "cat /pieces") == pieces, "{sums}: {request}");
            }
        }
    }
}
