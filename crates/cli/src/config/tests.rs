//! Volumes with options of their own, the command line above them, and mistakes at their place.
//! They know the file as text only.

use super::*;

fn config(text: &str, line: &str) -> Result<Config, String> {
    let name = format!("cairn-config-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).expect("the folder for temporary files may be written");
    let line = format!("cairn serve --config /f {line}");
    let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let got = load_under(&path, &line);
    std::fs::remove_file(&path).expect("it was made");
    got.map_err(|e| match e {
        Failure::Usage(why) | Failure::Failed(why) => why.replace(&path.display().to_string(), "F"),
        Failure::Told(_) => unreachable!("nothing else runs"),
    })
}

const TWO: &str = r#"
nfs = "0.0.0.0:2049"
mode = "unified"
cache = "64M"

[volume.docs]
image = "/srv/docs.img"
mode = "ordered"
export = ["10.0.0.0/8,rw", "::1"]

[volume.mail]
image = "/srv/mail.img"
mount = "/var/mail"
options = "noatime,nodev"
read-only = true
"#;

#[test]
fn a_volume_has_its_own_options_above_those_of_all() {
    let c = config(TWO, "").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(c.serve.nfs.as_deref(), Some("0.0.0.0:2049"));
    assert_eq!(c.serve.export, ["docs=10.0.0.0/8,rw", "docs=::1"]);
    let [docs, mail] = &c.volumes[..] else { panic!("two volumes") };
    assert_eq!((docs.name.as_str(), mail.name.as_str()), ("docs", "mail"));
    assert_eq!(docs.serve.open.mode.as_deref(), Some("ordered"));
    assert_eq!(mail.serve.open.mode.as_deref(), Some("unified"));
    assert_eq!(docs.serve.open.cache, Some(64 << 20));
    assert_eq!(mail.serve.options, ["noatime,nodev"]);
    assert!(mail.serve.open.read_only && !docs.serve.open.read_only);
}

#[test]
fn the_command_line_wins() {
    let c = config(TWO, "--mode sync --no-nfs --cache 1G").unwrap_or_else(|e| panic!("{e}"));
    assert!(c.serve.no_nfs && c.serve.nfs.is_none());
    for v in &c.volumes {
        assert_eq!(v.serve.open.mode.as_deref(), Some("sync"), "{}", v.name);
        assert_eq!(v.serve.open.cache, Some(1 << 30));
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, why) in [
        ("mdoe = \"sync\"", "F:1:1: unknown key \"mdoe\": is it \"mode\"?"),
        ("\ncache = \"much\"", "F:2:9: invalid value 'much'"),
        ("rpcbind = 3", "F:1:1: rpcbind is true or false"),
        ("nfs = [\"a\", \"b\"]", "F:1:1: nfs has one value"),
        ("[volume.a]\nmode = \"sync\"", "F:1:9: volume \"a\" has no image"),
        ("[volume.a]\nimage=\"i\"\nhttp = \"x\"", "F:3:1: \"http\" stands at the head of the file"),
        ("image = \"i\"", "F:1:1: \"image\" stands below a volume"),
        ("[volume.a]\nimage = \"i\"\nexport = [\"10.0.0.0/99\"]", "F:3:11: "),
        ("export = [\"b=10.0.0.0/8\"]\n[volume.a]\nimage = \"i\"", "F:1:11: export \"b\": no such"),
        ("mode = ", "F:1:"),
        ("a = 1979-05-27", "F:1:5: a datetime is no value of an option"),
        ("[volum.a]\nimage = \"i\"", "F:1:2: unknown section volum: write [volume.NAME]"),
        ("[volume.a]\nimage = [\"i\", \"j\"]", "F:2:1: image has one value"),
        ("\nmode = \"best\"", "F:2:8: mode best is not in this version; there are sync, "),
        ("nfs = \"here\"", "F:1:7: --nfs here: write ADDRESS:PORT"),
        ("[volume.a]\nimage=\"i\"\nmount=\"/m\"\noptions=\"bad\"", "F:4:9: -o: option \"bad\""),
        ("[volume.a]\nimage=\"i\"\n[volume.b]\nimage=\"./i\"", "F:3:9: volume \"b\" has the"),
        ("[volume.a]\nimage=\"i\"\nexport=\"a=10.0.0.1\"", "F:3:8: export: a=10.0.0.1 is no addr"),
        ("volume = 3", "F:1:10: a volume is a section: [volume.NAME]"),
        ("config = \"/else\"", "F:1:1: unknown key \"config\""),
    ] {
        let got = config(text, "").map(drop).expect_err(text);
        assert!(got.starts_with(why), "{text:?}: {got:?}, not {why:?}");
    }
}

#[test]
fn every_option_of_a_volume_can_be_a_key() {
    use clap::Args;
    let open = crate::args::OpenArgs::augment_args(clap::Command::new("open"));
    for arg in open.get_arguments().filter(|a| !a.is_hide_set()) {
        let name = arg.get_long().expect("they have long names");
        assert!(options::of_volume(name), "{name}");
    }
}
