//! `cairn config`: looks at a configuration file, and shows what it comes to. It opens no volume.

use crate::args::{ConfigArgs, ConfigCommand};
use crate::config::{Config, load_alone};
use crate::image::check_open_args;
use crate::{Failure, Outcome, say};
use serde_json::Value;
use std::path::Path;

/// The command.
pub fn run(a: &ConfigArgs) -> Result<Outcome, Failure> {
    match &a.command {
        ConfigCommand::Check { file } => {
            let config = checked(file)?;
            let n = config.volumes.len();
            let volumes = if n == 1 { "1 volume".to_owned() } else { format!("{n} volumes") };
            tell!("{}: right, {volumes}", file.display());
        }
        ConfigCommand::Show { file, json } => {
            let config = checked(file)?;
            if *json {
                tell!("{}", as_json(&config));
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
        if !crate::disk::exists(&v.serve.images[0]) {
            let image = v.serve.images[0].display();
            say::err(&format!("{}: volume {}: there is no {image}", file.display(), v.name));
        }
        if let Some(Err(why)) = v.serve.mount.as_deref().map(fuse::check_place) {
            say::err(&format!("{}: volume {}: {why}", file.display(), v.name));
        }
    }
    if config.volumes.is_empty() {
        check_open_args(&config.serve.open)?;
    } else {
        super::serve::check(&config).map_err(|e| match e {
            Failure::Usage(why) => Failure::Usage(format!("{}: {why}", file.display())),
            other => other,
        })?;
    }
    Ok(config)
}

fn as_json(config: &Config) -> Value {
    let object = |pairs: &[(String, Value)]| Value::Object(pairs.iter().cloned().collect());
    let mut all = object(&config.shown);
    let volumes = config.volumes.iter().map(|v| (v.name.clone(), object(&v.shown)));
    all["volume"] = Value::Object(volumes.collect());
    all
}

/// As a configuration file; what is left to the volume or the machine is left out.
fn print(config: &Config) {
    let lines = |pairs: &[(String, Value)]| {
        let said = |v: &Value| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty());
        for (k, v) in pairs.iter().filter(|(_, v)| said(v)) {
            tell!("{k} = {v}");
        }
    };
    lines(&config.shown);
    for v in &config.volumes {
        tell!("\n[volume.{}]", v.name);
        lines(&v.shown);
    }
}
