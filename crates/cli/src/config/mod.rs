//! The configuration file of `cairn serve`: the options of the command line by their names, for all
//! volumes and for each, where the command line wins. What is wrong in it is told with line and
//! column.
//!
//! ```toml
//! nfs = "0.0.0.0:2049"            # options of `cairn serve`, for all volumes
//! mode = "unified"
//!
//! [volume.home]                   # served as /home
//! image = "/srv/home.img"
//! mode = "ordered"                # for this one
//! export = ["10.0.0.0/8,rw"]      # --export home=10.0.0.0/8,rw
//! ```
//!
//! A file becomes arguments, and these the same structures as those of the command line: there is
//! one table of options, and it is clap's.
//!
//! Invariants:
//! * F1. What the command line says holds, whatever the file says.

mod file;
mod options;

use crate::args::{Cli, Command, ServeArgs};
use crate::disk::real;
use crate::image::mode_of;
use crate::{Failure, say};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use file::{File, Key};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::iter::once;
use std::path::{Path, PathBuf};

/// Where it is looked for by `cairn config`.
pub const DEFAULT_PATH: &str = "/etc/cairn/cairn.toml";

/// One volume as it is to be served.
pub struct VolumeArgs {
    /// Its export's name, without the slash.
    pub name: String,
    /// Its image, and how it is opened and mounted.
    pub serve: ServeArgs,
    /// The same by the names of the options, where it comes from a file.
    pub shown: Vec<(String, Value)>,
}

/// What a file and the command line say together.
pub struct Config {
    /// The options of the server as a whole.
    pub serve: ServeArgs,
    /// The same by their names, where they come from a file.
    pub shown: Vec<(String, Value)>,
    /// Its volumes, in the file's order or the line's.
    pub volumes: Vec<VolumeArgs>,
}

/// Reads `path` and puts this process's command line above it.
///
/// Errors: one line for the first mistake, `FILE:LINE:COLUMN: what`.
pub fn load(path: &Path) -> Result<Config, Failure> {
    load_under(path, &std::env::args_os().collect::<Vec<_>>())
}

/// The command line's own volumes, where there is no file.
pub fn of_line(a: ServeArgs) -> Config {
    let one = |image: &PathBuf| VolumeArgs {
        name: name_of(image),
        serve: ServeArgs { images: vec![image.clone()], ..a.clone() },
        shown: Vec::new(),
    };
    let volumes = a.images.iter().map(one).collect();
    Config { serve: a, shown: Vec::new(), volumes }
}

/// A volume's name where none is given: its file's, without the ending.
pub fn name_of(image: &Path) -> String {
    crate::disk::stem(image)
}

/// The same under the bare command, as `cairn config` does.
pub fn load_alone(path: &Path) -> Result<Config, Failure> {
    load_under(path, &["cairn".into(), "serve".into(), "--config".into(), path.into()])
}

fn load_under(path: &Path, line: &[OsString]) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        let why = match e.kind() {
            std::io::ErrorKind::InvalidData => "this is no text, so no configuration".to_owned(),
            _ => e.to_string(),
        };
        Failure::Failed(format!("{}: {why}", path.display()))
    })?;
    let file = File::parse(path, &text).map_err(Failure::Usage)?;
    let given = matches_of(line)?;
    let general: Vec<OsString> = arguments(&file, &file.general, &given)?;
    let (serve, shown) = parsed(line, &general, &given)?;
    let shown = shown.into_iter().filter(|(name, _)| !options::of_volume(name)).collect();
    let mut volumes = Vec::new();
    let mut exports = Vec::new();
    let overruled = given_on_line(&given, "export");
    for v in &file.volumes {
        // A volume's own options stand for those of the file's head.
        let own =
            |k: &&Key| !v.keys.iter().any(|o| o.name == k.name) && options::of_volume(&k.name);
        let head: Vec<Key> = file.general.iter().filter(own).cloned().collect();
        let mut args = arguments(&file, &head, &given)?;
        args.extend(arguments(&file, &v.keys, &given)?);
        let (mut one, shown) = parsed(line, &args, &given)?;
        one.images = vec![image_of(&file, v)?];
        check_name(&file, v)?;
        let same = |o: &&VolumeArgs| real(&o.serve.images[0]) == real(&one.images[0]);
        if let Some(other) = volumes.iter().find(same) {
            let why = format!("volume {:?} has the image of {:?}", v.name, other.name);
            return Err(Failure::Usage(file.wrong(v.at, &why)));
        }
        let of_it = shown.into_iter().filter(|(name, _)| options::of_volume(name));
        let of_it = once(("image".to_owned(), json!(one.images[0]))).chain(of_it);
        let clients: Vec<_> = v.strings("export").filter(|_| !overruled).collect();
        exports.extend(clients.iter().map(|e| format!("{}={e}", v.name)));
        let shown = of_it.chain([("export".to_owned(), json!(clients))]).collect();
        volumes.push(VolumeArgs { name: v.name.clone(), serve: one, shown });
    }
    let mut serve = serve;
    if !serve.images.is_empty() {
        let why = "--config names the volumes: give images or a configuration, not both";
        return Err(Failure::Usage(why.into()));
    }
    check_general_exports(&file)?;
    serve.export.extend(exports);
    Ok(Config { serve, shown, volumes })
}

/// Does every export of the file's head name one of its volumes?
fn check_general_exports(file: &File) -> Result<(), Failure> {
    for key in file.general.iter().filter(|k| k.name == "export") {
        for (text, at) in &key.values {
            let stray = text.split_once('=').map_or("", |(name, _)| name);
            if !stray.is_empty() && !file.volumes.iter().any(|v| v.name == stray) {
                let names: Vec<&str> = file.volumes.iter().map(|v| v.name.as_str()).collect();
                let why = format!("export {stray:?}: no such volume, but {}", names.join(", "));
                return Err(Failure::Usage(file.wrong(*at, &why)));
            }
        }
    }
    Ok(())
}

/// A volume's name is its export's, one name of a path.
fn check_name(file: &File, v: &file::Volume) -> Result<(), Failure> {
    let bad = v.name.is_empty() || [".", ".."].contains(&&*v.name) || v.name.contains(['/', '\0']);
    let why = || format!("{:?} is no name for a volume: it is exported as /NAME", v.name);
    if bad { Err(Failure::Usage(file.wrong(v.at, &why()))) } else { Ok(()) }
}

fn image_of(file: &File, v: &file::Volume) -> Result<PathBuf, Failure> {
    if let Some(several) = v.keys.iter().find(|k| k.name == "image" && k.values.len() != 1) {
        return Err(Failure::Usage(file.wrong(several.at, "image has one value")));
    }
    let image = v.strings("image").next();
    let missing = || Failure::Usage(file.wrong(v.at, &format!("volume {:?} has no image", v.name)));
    image.map(PathBuf::from).ok_or_else(missing)
}

/// Keys as arguments, but for those that the command line gives, or contradicts. Each is tried
/// alone first, so that what is wrong is told at its place.
fn arguments(file: &File, keys: &[Key], given: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    let mut all = Vec::new();
    for key in keys.iter().filter(|k| !(k.of_volume && k.name == "image")) {
        if key.of_volume && key.name == "export" {
            check_export(file, key)?;
            continue;
        }
        let args = options::as_arguments(key).map_err(|why| file.wrong(key.at, &why));
        let args = args.map_err(Failure::Usage)?;
        options::try_alone(&args).and_then(|()| meaning(key)).map_err(|why| {
            let at = key.values.first().map_or(key.at, |v| v.1);
            Failure::Usage(file.wrong(at, &why))
        })?;
        if !options::is_overruled(&key.name, |name| given_on_line(given, name)) {
            all.extend(args);
        }
    }
    Ok(all)
}

/// Does a value mean something that can be done, as far as it says so by itself?
fn meaning(key: &Key) -> Result<(), String> {
    use crate::commands::serve::{check_address, mount_options};
    for (text, _) in &key.values {
        let tried = match key.name.as_str() {
            "mode" => mode_of(text).map(drop),
            "nfs" | "http" => check_address(&key.name, text),
            "options" => mount_options(std::slice::from_ref(text)).map(drop),
            _ => Ok(()),
        };
        if let Err(Failure::Usage(why) | Failure::Failed(why)) = tried {
            return Err(why);
        }
    }
    Ok(())
}

fn check_export(file: &File, key: &Key) -> Result<(), Failure> {
    for (text, at) in &key.values {
        let wrong = |why: String| Failure::Usage(file.wrong(*at, &format!("export: {why}")));
        nfs::check_clients(text).map_err(wrong)?;
    }
    Ok(())
}

/// What the command line itself says of `serve`.
fn matches_of(line: &[OsString]) -> Result<ArgMatches, Failure> {
    let all = Cli::command().try_get_matches_from(line);
    let mut all = all.map_err(|e| Failure::Usage(say::one_line(&e.render().to_string())))?;
    all.remove_subcommand().map(|(_, of)| of).ok_or_else(|| Failure::Usage("no command".into()))
}

/// The values of an option as they were written; none of a switch.
fn said<'a>(given: &'a ArgMatches, id: &str) -> Vec<&'a OsStr> {
    given.try_get_raw(id).ok().flatten().into_iter().flatten().collect()
}

fn given_on_line(given: &ArgMatches, id: &str) -> bool {
    let known = given.try_contains_id(id).is_ok();
    known && given.value_source(id) == Some(clap::parser::ValueSource::CommandLine)
}

/// The command line with more arguments behind its command's name; and what holds then, by the
/// names of the options.
fn parsed(
    line: &[OsString],
    more: &[OsString],
    given: &ArgMatches,
) -> Result<(ServeArgs, Vec<(String, Value)>), Failure> {
    let behind = line.iter().position(|a| a == "serve").map_or(line.len(), |n| n + 1);
    let (before, after) = line.split_at(behind);
    let line = before.iter().chain(more).chain(after);
    let wrong = |e: clap::Error| Failure::Usage(say::one_line(&e.render().to_string()));
    let all = Cli::command().try_get_matches_from(line).map_err(wrong)?;
    if let Some((_, now)) = all.subcommand() {
        let changed = |id: &str| given_on_line(given, id) && said(now, id) != said(given, id);
        let other = options::ids().into_iter().find(|id| changed(id));
        assert!(other.is_none(), "F1: {other:?} is on the command line, and does not hold");
    }
    let shown = all.subcommand().map(|(_, of)| options::shown(of)).unwrap_or_default();
    let Cli { command, bucket, .. } = Cli::from_arg_matches(&all).map_err(wrong)?;
    let near = bucket.near;
    match command {
        Command::Serve(mut a) => {
            a.open.near = Some(near);
            Ok((a, shown))
        }
        _ => Err(Failure::Usage("a configuration is for `cairn serve`".into())),
    }
}

#[cfg(test)]
mod tests;
