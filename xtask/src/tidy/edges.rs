//! Which crate may know which: the table of the architecture, checked against every `Cargo.toml`.
//! It reads the two tables that end up in a build; what tests depend on is theirs alone.

use super::{Complaint, File};

/// Crate, and the crates of ours that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("env", &[]),
    ("format", &[]),
    // `format` for its numbers (BlockNo, Ino), not for its structures.
    ("cache", &["env", "format"]),
    ("sim", &["env"]),
    ("wal", &["env"]),
    ("vfs", &["env"]),
    ("integrity", &["env", "cache", "format"]),
    ("mechanisms", &["env", "cache", "format", "integrity", "wal"]),
    ("check", &["env", "format"]),
    ("ufs", &["env", "cache", "format", "vfs", "integrity", "check"]),
    ("ext", &["env", "cache", "format", "vfs", "ufs", "integrity", "check"]),
    ("lfs", &["env"]),
    // `lfs` for its groups and its table of extents.
    ("bucket", &["env", "lfs", "wal"]),
    (
        "volume",
        &[
            "env",
            "cache",
            "format",
            "integrity",
            "mechanisms",
            "vfs",
            "ufs",
            "ext",
            "lfs",
            "bucket",
            "check",
            "wal",
        ],
    ),
    ("stats", &[]),
    ("nfs", &["env", "vfs", "stats"]),
    ("host", &["env", "vfs"]),
    ("fuse", &["env", "vfs", "host", "stats"]),
    (
        "lab",
        &[
            "env",
            "cache",
            "format",
            "integrity",
            "mechanisms",
            "vfs",
            "ufs",
            "ext",
            "lfs",
            "bucket",
            "check",
            "volume",
            "nfs",
            "wal",
            "sim",
        ],
    ),
    ("xtask", &[]),
    ("powercut", &["env", "lab", "sim", "volume"]),
];

/// The one crate that may know everything.
const TOP: &str = "cli";

/// Crates that meet the real world, and so may name these packages.
const REAL_WORLD: &[&str] = &["host", "fuse", "lab", "powercut", "cli", "xtask"];
const REAL_WORLD_PACKAGES: &[&str] = &["tokio", "libc", "io-uring", "rand", "mio", "nix", "rustix"];

pub(crate) fn check(file: &File, out: &mut Vec<Complaint>) {
    let folder = file.path.rsplit('/').nth(1).unwrap_or_default();
    let allowed = ALLOWED.iter().find(|(name, _)| *name == folder).map(|(_, list)| *list);
    if allowed.is_none() && folder != TOP {
        let what = "a crate that the table of allowed edges does not know: add it there";
        out.push(Complaint::error(&file.path, 0, what));
        return;
    }
    for (line, name) in dependencies(&file.text) {
        let ours = name == TOP || ALLOWED.iter().any(|(n, _)| *n == name);
        if ours && allowed.is_some_and(|list| !list.contains(&name)) {
            let what = format!("`{folder}` may not depend on `{name}` (ARCHITECTURE.md)");
            out.push(Complaint::error(&file.path, line, what));
        }
        if REAL_WORLD_PACKAGES.contains(&name) && !REAL_WORLD.contains(&folder) {
            let what = format!("`{folder}` is core: `{name}` belongs behind a trait of `env`");
            out.push(Complaint::error(&file.path, line, what));
        }
    }
}

/// Names and lines of what stands in `[dependencies]` and `[build-dependencies]`, without the
/// prefix of our packages.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    manifest.lines().enumerate().filter_map(move |(i, line)| {
        let line = line.trim();
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            inside = is_dependency_table(table);
            // `[dependencies.name]` is a dependency written as a table of its own.
            let (parent, name) = table.rsplit_once('.')?;
            return is_dependency_table(parent).then(|| (i + 1, ours(name)));
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
        let is_entry = inside && !name.is_empty() && !name.starts_with('#');
        is_entry.then(|| (i + 1, ours(name)))
    })
}

fn is_dependency_table(table: &str) -> bool {
    let last = table.rsplit('.').next().unwrap_or_default();
    matches!(last, "dependencies" | "build-dependencies")
}

fn ours(name: &str) -> &str {
    let name = name.trim_matches('"');
    name.strip_prefix("cairn-").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(folder: &str, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        let path = format!("crates/{folder}/Cargo.toml");
        check(&File { path, text: text.to_owned() }, &mut out);
        out.into_iter().map(|c| c.what).collect()
    }

    #[test]
    fn an_edge_of_the_table_passes_and_another_fails() {
        let text = "[dependencies]\nenv.workspace = true\ntracing.workspace = true\n";
        assert!(complaints("cache", text).is_empty());
        let text = "[dependencies]\nmechanisms.workspace = true\n";
        assert_eq!(complaints("ext", text).len(), 1);
        assert_eq!(complaints("cache", text).len(), 1);
        assert!(complaints("cli", text).is_empty());
    }

    #[test]
    fn every_way_to_write_a_dependency_is_seen() {
        for text in [
            "[dependencies]\nsim = { path = \"../sim\" }\n",
            "[dependencies]\ncairn-sim = \"1\"\n",
            "[dependencies.sim]\npath = \"../sim\"\n",
            "[target.'cfg(unix)'.dependencies]\nsim.workspace = true\n",
            "[build-dependencies]\nsim.workspace = true\n",
        ] {
            assert_eq!(complaints("ufs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn tests_may_depend_on_anything() {
        assert!(complaints("ext", "[dev-dependencies]\nsim.workspace = true\n").is_empty());
    }

    #[test]
    fn the_core_does_not_name_the_real_world() {
        assert_eq!(complaints("vfs", "[dependencies]\ntokio = \"1\"\n").len(), 1);
        assert!(complaints("host", "[dependencies]\nlibc.workspace = true\n").is_empty());
    }

    #[test]
    fn an_unknown_crate_has_to_be_put_into_the_table() {
        assert_eq!(complaints("novel", "").len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        // Rows are in the order of the layers: each names only rows above it, with one exception
        // for what is not there yet.
        for (i, (name, list)) in ALLOWED.iter().enumerate() {
            for dep in *list {
                let at = ALLOWED.iter().position(|(n, _)| n == dep);
                let late = *name == "lab" || *name == "volume";
                assert!(at.is_some_and(|at| at < i) || late, "{name} -> {dep}");
            }
        }
    }
}
