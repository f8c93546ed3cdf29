//! What a server tells of itself: `cairn stats` by its control socket, the page and its JSON by
//! HTTP, and the openings that a service keeps. What needs FUSE is skipped with a line where there
//! is none.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod served;

use rustix::process::Signal;
use serde_json::Value;
use served::{ANY, CAIRN, Folder, MountPoint, Server, cairn, s};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What `cairn stats` says of the server of this image.
fn stats(image: &Path) -> Value {
    let (code, out, err) = cairn(&["stats", s(image), "--json"]);
    assert_eq!(code, 0, "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 1, "{out}");
    all[0].clone()
}

/// An operation's count and errors.
fn counted(report: &Value, front: &str, operation: &str) -> (u64, u64) {
    let series = report["series"].as_array().unwrap();
    let of = series.iter().filter(|s| s["front"] == front);
    let operations = of.flat_map(|s| s["operations"].as_array().unwrap());
    let found: Vec<&Value> = operations.filter(|o| o["operation"] == operation).collect();
    assert_eq!(found.len(), 1, "{operation} of {front} in {report}");
    (found[0]["all"]["count"].as_u64().unwrap(), found[0]["errors"].as_u64().unwrap())
}

fn get(at: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn a_server_is_found_and_tells_what_it_was_asked() {
    let folder = Folder::new();
    let image = folder.volume("told", "16M");
    let server = Server::trusting(&[&image], ANY, &["--mode", "unified"]);
    let mut client = server.client("/told");
    let root = client.root.clone();
    for name in ["a", "b", "c", "a"] {
        let _ = client.mkdir(&root, name);
    }
    let report = stats(&image);
    assert_eq!(counted(&report, "nfs", "mkdir"), (4, 1));
    let v = &report["volumes"][0];
    assert_eq!((&v["state"], &v["mode"]), (&"ok".into(), &"unified".into()));
    assert!(v["log"]["bytes"].as_u64().unwrap() > 0, "{v}");
    assert!(v["bytes_free"].as_u64().unwrap() < v["bytes"].as_u64().unwrap());
    assert_eq!(v["openings"].as_array().unwrap().len(), 1);
    assert_eq!(
        report["clients"][0]["requests"],
        report["series"][0]["operations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["all"]["count"].as_u64().unwrap())
            .sum::<u64>()
    );
    let (code, out, _) = cairn(&["stats", "/told"]);
    assert!(code == 0 && out.contains("mkdir") && out.contains("in order after a crash"), "{out}");
    // An image is the same by whichever path.
    let other = folder.0.join("..").join(folder.0.file_name().unwrap()).join("told");
    assert_eq!(stats(&other)["volumes"][0]["name"], "told");
    let (code, _, err) = cairn(&["stats", "no-such-volume"]);
    assert!(
        code == 1 && err.contains("no volume no-such-volume") && err.contains("/told"),
        "{err}"
    );
    let (code, _, err) = cairn(&["top"]);
    assert!(code == 2 && err.contains("cairn stats"), "{err}");
    server.stop();
    let (code, _, err) = cairn(&["stats", s(&image)]);
    assert_eq!(code, 1, "its socket went with it: {err}");
}

#[test]
fn a_killed_server_leaves_nothing_that_is_in_the_way() {
    let folder = Folder::new();
    let image = folder.volume("killed", "16M");
    Server::trusting(&[&image], ANY, &[]).kill();
    assert_eq!(cairn(&["stats", s(&image)]).0, 1);
    let server = Server::trusting(&[&image], ANY, &[]);
    let opening = &stats(&image)["volumes"][0]["openings"][0];
    let recovered = opening["recovered"].as_str().unwrap_or_default();
    assert!(recovered.contains("replayed"), "{opening}");
    server.stop();
}

#[test]
fn a_service_keeps_how_its_volumes_were_opened() {
    let folder = Folder::new();
    let image = folder.volume("kept", "16M");
    let state = folder.0.join("state");
    std::fs::create_dir(&state).unwrap();
    for n in 1..=3 {
        let mut command = Command::new(CAIRN);
        command.args(["serve", "--nfs", ANY, s(&image)]).env("STATE_DIRECTORY", &state);
        let server = Server::launch(command, &folder.0.join("log"));
        let openings = stats(&image)["volumes"][0]["openings"].as_array().unwrap().len();
        assert_eq!(openings, n);
        server.stop();
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_obeys_no_name() {
    let folder = Folder::new();
    let image = folder.volume("<b>shown", "16M");
    let http = std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap().to_string();
    let server = Server::trusting(&[&image], ANY, &["--http", &http]);
    let (head, page) = get(&http, "/");
    assert!(head.starts_with("http/1.1 200") && head.contains("text/html"), "{head}");
    let elsewhere = page.matches("http://").count() - page.matches("http://www.w3.org/").count();
    assert!(elsewhere == 0 && !page.contains("https://"), "it works without a network");
    assert!(!page.contains("innerHTML"), "names are text, never markup");
    let (head, body) = get(&http, "/status.json");
    assert!(head.contains("application/json"), "{head}");
    let report: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(report["volumes"][0]["name"], "<b>shown");
    server.stop();
}

/// Dashboard and alerts ask for nothing that no server tells.
#[test]
fn what_the_dashboard_and_the_alerts_ask_for_is_told() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let folder = Folder::new();
    let image = folder.volume("told", "16M");
    let http = std::net::TcpListener::bind(ANY).unwrap().local_addr().unwrap().to_string();
    let server = Server::trusting(&[&image], ANY, &["--http", &http]);
    let mut client = server.client("/told");
    let top = client.root.clone();
    client.mkdir(&top, "d").unwrap();
    // Errors are told of once there has been one.
    assert!(client.lookup(&top, "none").is_err());
    // What only some volumes tell is named where it is counted.
    let sources = ["check/src/live/mod.rs", "mechanisms/src/jbd2/mod.rs", "volume/src/segments.rs"];
    let mut known: String = sources.map(|p| text(&format!("crates/{p}"))).concat();
    known.push_str(&text("crates/volume/src/objects.rs"));
    known.push_str(&text("crates/stats/src/prometheus.rs"));
    let (_, scrape) = get(&http, "/metrics");
    for line in [
        "cairn_volume_info{export=\"told\",mode=\"unified\",version=",
        "cairn_answers{export=\"told\"} 1",
        "cairn_opening_recovered{export=\"told\"} 0",
        "cairn_block_bytes{export=\"told\"} 4096",
    ] {
        assert!(scrape.lines().any(|l| l.starts_with(line)), "no {line} in {scrape}");
    }
    known.push_str(&scrape);
    server.stop();
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    for file in ["contrib/grafana/cairn.json", "contrib/prometheus/cairn.rules.yml"] {
        let asked = text(file);
        let names = asked.split(word).filter(|w| w.starts_with("cairn_"));
        let mut n = 0;
        for name in names {
            n += 1;
            let base = name.trim_end_matches("_bucket").trim_end_matches("_count");
            let base = base.trim_end_matches("_seconds");
            assert!(known.contains(name) || known.contains(base), "{file}: nobody tells {name}");
        }
        assert!(n > 10, "{file}");
    }
}

#[test]
fn a_mount_is_measured() {
    let folder = Folder::new();
    let Some(at) = MountPoint::new(&folder) else { return };
    let image = folder.volume("mounted", "16M");
    let server = Server::mounted(&image, &at, &[]);
    for n in 0..5 {
        std::fs::create_dir(at.file(&n.to_string())).unwrap();
    }
    assert!(std::fs::create_dir(at.file("0")).is_err());
    let report = stats(&image);
    assert_eq!(counted(&report, "fuse", "mkdir").0, 5);
    assert!(report["nfs"].is_null());
    assert_eq!(report["volumes"][0]["mount"], s(&at.0));
    server.stop();
}

#[test]
fn a_server_that_does_not_answer_is_not_taken_for_none() {
    let folder = Folder::new();
    let image = folder.volume("silent", "16M");
    let server = Server::trusting(&[&image], ANY, &[]);
    server.halt();
    let named = format!("process {}", server.id());
    let remedy = format!("kill -CONT {}", server.id());
    let asked = [
        &["stats", s(&image)][..],
        &["info", s(&image)],
        &["ls", s(&image), "/"],
        &["fsck", s(&image)],
        &["fsck", "--background", s(&image)],
        &["snapshot", "list", s(&image)],
    ];
    for args in asked {
        let begun = Instant::now();
        let (code, out, err) = cairn(args);
        let told = err.contains(&named) && err.contains(&remedy);
        assert!(code == 1 && told && !err.contains("end it first"), "{args:?}: {out}{err}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{args:?} waited");
    }
    server.signal(Signal::CONT);
    assert_eq!(stats(&image)["pid"], server.id());
    server.stop();
}
