//! What the files of other S3 tools say of a profile: keys, region, endpoint. `AWS_PROFILE` names
//! it, `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name the files, which are else
//! `~/.aws/credentials` and `~/.aws/config`. What the environment says goes before all of it; that
//! is our caller's business.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a profile says; nothing where there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Profile {
    /// The key's name, the key, and the session's token if there is one.
    pub(crate) keys: Option<(String, String, Option<String>)>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// Ways to keys that other tools go, and we do not.
const NOT_HERE: [&str; 4] = ["role_arn", "sso_session", "sso_start_url", "credential_process"];

/// The settings of one section.
type Section = BTreeMap<String, String>;

/// Reads the profile. `env`: the environment. Errors: one is named and is nowhere; or it leads to
/// its keys in a way that is not known here.
pub(crate) fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Profile, String> {
    let set = |name: &str| env(name).filter(|v| !v.is_empty());
    let named = set("AWS_PROFILE").or_else(|| set("AWS_DEFAULT_PROFILE"));
    let file = |name: &str, usual: &str| match set(name) {
        Some(path) => Some(PathBuf::from(path)),
        None => set("HOME").map(|own| PathBuf::from(own).join(usual)),
    };
    let text = |path: Option<PathBuf>| path.and_then(|p| std::fs::read_to_string(p).ok());
    let credentials = text(file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"));
    let config = text(file("AWS_CONFIG_FILE", ".aws/config"));
    let name = named.as_deref().unwrap_or("default");
    let in_config = if name == "default" { name.into() } else { format!("profile {name}") };
    let found = [
        credentials.as_deref().and_then(|t| section(t, name)),
        config.as_deref().and_then(|t| section(t, &in_config)),
    ];
    if named.is_some() && found.iter().all(Option::is_none) {
        return Err(format!("there is no profile {name} in the credentials and config files"));
    }
    profile_of(name, &found.map(Option::unwrap_or_default))
}

/// The credentials file goes before the other.
fn profile_of(name: &str, sections: &[Section]) -> Result<Profile, String> {
    let get = |key: &str| sections.iter().find_map(|s| s.get(key)).cloned();
    let keys = get("aws_access_key_id").zip(get("aws_secret_access_key"));
    if let Some(way) = NOT_HERE.iter().find(|way| keys.is_none() && get(way).is_some()) {
        return Err(format!(
            "profile {name} has {way}, which is not known here: `eval \"$(aws configure \
             export-credentials --format env)\"` brings its keys into the environment"
        ));
    }
    let keys = keys.map(|(id, secret)| (id, secret, get("aws_session_token")));
    let endpoint = get("endpoint_url").or_else(|| get("s3.endpoint_url"));
    Ok(Profile { keys, region: get("region"), endpoint })
}

/// A section of a file in the format of these tools. A setting without a value has further ones
/// below it, which are set in; they are named `setting.further`.
fn section(text: &str, wanted: &str) -> Option<Section> {
    let (mut found, mut inside, mut above) = (None, false, String::new());
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|b| b.split(']').next()) {
            inside = name.split_whitespace().eq(wanted.split_whitespace());
            if inside {
                found.get_or_insert_with(Section::new);
            }
            continue;
        }
        let (Some((key, value)), true) = (bare.split_once('='), inside) else { continue };
        let (key, value) = (key.trim().to_lowercase(), value.trim().to_owned());
        let is_below = line.starts_with([' ', '\t']) && !above.is_empty();
        let key = if is_below { format!("{above}.{key}") } else { key };
        if !is_below {
            above = if value.is_empty() { key.clone() } else { String::new() };
        }
        found.get_or_insert_with(Section::new).insert(key, value);
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = A\n\
        aws_secret_access_key=B=\n\n[ other ]\naws_access_key_id = C\n\
        aws_secret_access_key = D\naws_session_token = E\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\ns3 =\n  \
        endpoint_url = http://here\n  addressing_style = path\noutput = json\n\
        [profile other]\nendpoint_url=https://there\n[profile work]\nsso_session = x\n";

    fn with(name: Option<&str>) -> Result<Profile, String> {
        let here = std::process::id();
        let name = name.map(str::to_owned);
        let dir = std::env::temp_dir().join(format!("cairn-profile-{here}-{name:?}"));
        std::fs::create_dir_all(dir.join(".aws")).unwrap();
        std::fs::write(dir.join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(dir.join("elsewhere"), CONFIG).unwrap();
        let place = |n: &str| Some(dir.join(n).to_str().unwrap().to_owned());
        let read = read(&|variable| match variable {
            "HOME" => place(""),
            "AWS_CONFIG_FILE" => place("elsewhere"),
            "AWS_PROFILE" => name.clone(),
            _ => None,
        });
        std::fs::remove_dir_all(&dir).unwrap();
        read
    }

    fn some(s: &str) -> Option<String> {
        Some(s.to_owned())
    }

    #[test]
    fn the_default_and_a_named_profile_are_found_in_both_files() {
        let keys = Some(("A".into(), "B=".into(), None));
        let (region, endpoint) = (some("eu-central-1"), some("http://here"));
        assert_eq!(with(None), Ok(Profile { keys, region, endpoint }));
        let keys = Some(("C".into(), "D".into(), some("E")));
        let endpoint = some("https://there");
        assert_eq!(with(Some("other")), Ok(Profile { keys, region: None, endpoint }));
    }

    #[test]
    fn what_cannot_be_is_said() {
        assert!(with(Some("nobody")).unwrap_err().contains("no profile nobody"));
        assert!(with(Some("work")).unwrap_err().contains("export-credentials"));
        assert_eq!(read(&|_| None), Ok(Profile::default()), "without any file");
    }
}
