//! Keys and the options of `cairn serve` that they stand for. It knows no file.

use super::file::Key;
use crate::args::{NearArgs, OpenArgs, ServeArgs};
use crate::say;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use serde_json::{Value, json};
use std::any::TypeId;
use std::ffi::OsString;
use strsim::levenshtein;

/// The options that are no keys: what they mean for one volume that is made on the way, or for
/// where the configuration is.
const NO_KEYS: [&str; 4] = ["config", "size", "profile", "of-pool"];
/// Keys of a volume beside those that say how it is opened.
const OF_VOLUMES_ALONE: [&str; 3] = ["image", "mount", "options"];

fn serve() -> Command {
    NearArgs::augment_args(ServeArgs::augment_args(Command::new("serve")))
}

/// What clap knows the options by.
pub(super) fn ids() -> Vec<String> {
    serve().get_arguments().map(|a| a.get_id().to_string()).collect()
}

/// The name of a key as that of an option: `options` is `-o`, as the list of a mount.
fn is_named(arg: &Arg, key: &str) -> bool {
    match arg.get_long() {
        Some(long) => long == key && !NO_KEYS.contains(&long),
        None => key == "options" && arg.get_short() == Some('o'),
    }
}

/// May a key stand below a volume, as one of its own?
pub(super) fn of_volume(key: &str) -> bool {
    let open = NearArgs::augment_args(OpenArgs::augment_args(Command::new("open")));
    OF_VOLUMES_ALONE.contains(&key)
        || open.get_arguments().any(|a| a.get_long() == Some(key) && !NO_KEYS.contains(&key))
}

/// A key as arguments. Errors: it is none that can stand there, or its value is none.
pub(super) fn as_arguments(key: &Key) -> Result<Vec<OsString>, String> {
    let command = serve();
    let known = command.get_arguments().find(|a| is_named(a, &key.name));
    let here = if key.of_volume { of_volume(&key.name) } else { !only_of_volumes(&key.name) };
    let Some(arg) = known.filter(|_| here) else {
        return Err(unknown(key, &command, known.is_some()));
    };
    let dashed = match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => "-o".to_owned(),
    };
    if arg.get_action().takes_values() {
        let several = matches!(arg.get_action(), ArgAction::Append);
        return match &key.values[..] {
            [_] => Ok(with(&dashed, key)),
            _ if several => Ok(with(&dashed, key)),
            _ => Err(format!("{} has one value", key.name)),
        };
    }
    match key.values.iter().map(|v| v.0.as_str()).collect::<Vec<_>>()[..] {
        ["true"] => Ok(vec![dashed.into()]),
        ["false"] => Ok(Vec::new()),
        _ => Err(format!("{} is true or false", key.name)),
    }
}

fn with(dashed: &str, key: &Key) -> Vec<OsString> {
    let pair = |v: &(String, usize)| match dashed {
        "-o" => format!("-o{}", v.0),
        _ => format!("{dashed}={}", v.0),
    };
    key.values.iter().map(|v| pair(v).into()).collect()
}

fn only_of_volumes(key: &str) -> bool {
    OF_VOLUMES_ALONE.contains(&key)
}

/// What to say of a key that cannot stand there.
fn unknown(key: &Key, command: &Command, elsewhere: bool) -> String {
    let name = &key.name;
    if elsewhere || name == "image" {
        let place = if key.of_volume { "the head of the file" } else { "below a volume" };
        return format!("{name:?} stands at {place}").replace("at below", "below");
    }
    let longs = command.get_arguments().filter_map(Arg::get_long).filter(|l| !NO_KEYS.contains(l));
    let near = longs.chain(OF_VOLUMES_ALONE).min_by_key(|l| levenshtein(l, name));
    match near.filter(|l| levenshtein(l, name) <= 2) {
        Some(near) => format!("unknown key {name:?}: is it {near:?}?"),
        None => {
            format!("unknown key {name:?}: keys are the options of `cairn serve` by their names")
        }
    }
}

/// What holds after a command line, by the names of the options that can be keys: numbers as
/// numbers, what may be said several times as a list, null where nothing is said.
pub(super) fn shown(given: &ArgMatches) -> Vec<(String, Value)> {
    let named = |arg: &Arg| match arg.get_long() {
        Some(long) => (!NO_KEYS.contains(&long)).then(|| long.to_owned()),
        None => arg.get_short().map(|_| "options".to_owned()),
    };
    let all = serve();
    all.get_arguments().filter_map(|a| Some((named(a)?, value(a, given)))).collect()
}

/// The value of an option; its type is the one that the table says.
fn value(arg: &Arg, given: &ArgMatches) -> Value {
    let id = arg.get_id().as_str();
    let kind = arg.get_value_parser().type_id();
    let texts = || given.get_raw(id).into_iter().flatten().map(|v| v.to_string_lossy());
    if matches!(arg.get_action(), ArgAction::Append) {
        return json!(texts().collect::<Vec<_>>());
    }
    if !arg.get_action().takes_values() {
        return json!(given.get_flag(id));
    }
    if kind == TypeId::of::<u64>() {
        return json!(given.get_one::<u64>(id));
    }
    if kind == TypeId::of::<f64>() {
        return json!(given.get_one::<f64>(id));
    }
    json!(texts().next())
}

/// Are these arguments right in themselves?
pub(super) fn try_alone(args: &[OsString]) -> Result<(), String> {
    let mut line: Vec<OsString> = vec!["serve".into()];
    // Options of a mount are taken with a mount only.
    if args.iter().any(|a| a.to_string_lossy().starts_with("-o")) {
        line.push("--mount=/".into());
    }
    line.extend(args.iter().cloned());
    let tried = serve().try_get_matches_from(line);
    tried.map(drop).map_err(|e| say::one_line(&e.render().to_string()))
}

/// Does the command line say this already, or something that goes not with it?
pub(super) fn is_overruled(key: &str, given: impl Fn(&str) -> bool) -> bool {
    let command = serve();
    let Some(arg) = command.get_arguments().find(|a| is_named(a, key)) else { return false };
    let id = |a: &Arg| a.get_id().to_string();
    let against =
        |a: &Arg| command.get_arg_conflicts_with(a).iter().map(|c| id(c)).collect::<Vec<_>>();
    let rivals = command.get_arguments().filter(|a| against(a).contains(&id(arg))).map(&id);
    let mut rivals = rivals.chain(against(arg));
    given(&id(arg)) || rivals.any(|other| given(&other))
}
