//! `cairn config`: looks at a configuration file, and shows what it comes to. It opens no volume.

use crate::args::{ConfigArgs, ConfigCommand, ServeArgs};
use crate::config::{Config, load_alone};
use crate::image::check_open_args;
use crate::{Failure, Outcome, say};
use serde_json::{Value, json};
use std::path::Path;

/// The command.
pub fn run(a: &ConfigArgs) -> Result<Outcome, Failure> {
    match &a.command {
        ConfigCommand::Check { file } => {
            let config = checked(file)?;
            let n = config.volumes.len();
            let volumes = if n == 1 { "1 volume".to_owned() } else { format!("{n} volumes") };
            say::out(&format!("{}: right, {volumes}", file.display()));
        }
        ConfigCommand::Show { file, json } => {
            let config = checked(file)?;
            if *json {
                say::out(&as_json(&config).to_string());
            } else {
                print(&config);
            }
        }
    }
    Ok(Outcome::Done)
}

/// The file, and whether what it says can be done.
fn checked(file: &Path) -> Result<Config, Failure> {
    let config = load_alone(file)?;
    for v in &config.volumes {
        check_open_args(&v.serve.open).map_err(|e| match e {
            Failure::Usage(why) => {
                Failure::Usage(format!("{}: volume {}: {why}", file.display(), v.name))
            }
            other => other,
        })?;
        if !v.serve.images[0].exists() {
            let image = v.serve.images[0].display();
            say::err(&format!("{}: volume {}: there is no {image}", file.display(), v.name));
        }
    }
    Ok(config)
}

/// What holds for a volume, by the names of the options.
fn of_volume(a: &ServeArgs) -> Vec<(&'static str, Value)> {
    let o = &a.open;
    vec![
        ("image", json!(a.images[0])),
        ("mode", json!(o.mode)),
        ("log", json!(o.log)),
        ("commit", json!(o.commit.map(|c| format!("{c:?}").to_lowercase()))),
        ("commit-interval", json!(o.commit_interval)),
        ("recovery-within", json!(o.recovery_within)),
        ("threshold", json!(o.threshold)),
        ("ordered-data", json!(o.ordered_data)),
        ("read-only", json!(o.read_only)),
        ("cache", json!(o.cache)),
        ("mount", json!(a.mount)),
        ("options", json!(a.options)),
    ]
}

fn of_server(a: &ServeArgs) -> Vec<(&'static str, Value)> {
    let nfs = a.nfs.clone().unwrap_or_else(|| "127.0.0.1:2049".into());
    vec![
        ("nfs", if a.no_nfs { Value::Null } else { json!(nfs) }),
        ("http", json!(a.http)),
        ("rpcbind", json!(a.rpcbind)),
        ("export", json!(a.export)),
    ]
}

fn as_json(config: &Config) -> Value {
    let object = |pairs: Vec<(&'static str, Value)>| {
        Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    };
    let mut all = object(of_server(&config.serve));
    let volumes = config.volumes.iter().map(|v| (v.name.clone(), object(of_volume(&v.serve))));
    all["volume"] = Value::Object(volumes.collect());
    all
}

/// As a configuration file; what is left to the volume or the machine is left out.
fn print(config: &Config) {
    let lines = |pairs: Vec<(&'static str, Value)>| {
        let said = |v: &Value| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty());
        for (k, v) in pairs.into_iter().filter(|(_, v)| said(v)) {
            say::out(&format!("{k} = {v}"));
        }
    };
    lines(of_server(&config.serve));
    for v in &config.volumes {
        say::out(&format!("\n[volume.{}]", v.name));
        lines(of_volume(&v.serve));
    }
}
