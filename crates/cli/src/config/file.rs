//! The file as it is written: keys, their values as texts, and where each stands. It knows no
//! option.

use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A place in the text: bytes from its start.
pub(super) type At = usize;

/// One key.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) at: At,
    /// Its value, or those of its list, as texts; `true` and `false` of a switch too.
    pub(super) values: Vec<(String, At)>,
    /// Does it stand below a volume?
    pub(super) of_volume: bool,
}

/// A volume's section.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) at: At,
    pub(super) keys: Vec<Key>,
}

impl Volume {
    /// The texts of a key.
    pub(super) fn strings(&self, name: &str) -> impl Iterator<Item = &str> {
        let keys = self.keys.iter().filter(move |k| k.name == name);
        keys.flat_map(|k| k.values.iter().map(|v| v.0.as_str()))
    }
}

/// A whole file.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Where each line begins.
    lines: Vec<At>,
    pub(super) general: Vec<Key>,
    pub(super) volumes: Vec<Volume>,
}

impl File {
    /// Reads it. Errors: `FILE:LINE:COLUMN: what`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<File, String> {
        let newlines = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(n, _)| n + 1);
        let lines = std::iter::once(0).chain(newlines).collect();
        let mut file =
            File { path: path.to_owned(), lines, general: Vec::new(), volumes: Vec::new() };
        let table = DeTable::parse(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            file.wrong(at, e.message().lines().next().unwrap_or("no TOML"))
        })?;
        for (name, value) in in_order(table.get_ref()) {
            if name.get_ref() != "volume" {
                if value.get_ref().is_table() {
                    let why = format!("unknown section {}: write [volume.NAME]", name.get_ref());
                    return Err(file.wrong(name.span().start, &why));
                }
                let key = file.key(name, value, false)?;
                file.general.push(key);
                continue;
            }
            let Some(volumes) = value.get_ref().as_table() else {
                return Err(file.wrong(value.span().start, "a volume is a section: [volume.NAME]"));
            };
            for (name, value) in in_order(volumes) {
                let volume = file.volume(name, value)?;
                file.volumes.push(volume);
            }
        }
        Ok(file)
    }

    fn volume(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Volume, String> {
        let at = name.span().start;
        let Some(keys) = value.get_ref().as_table() else {
            return Err(self.wrong(at, "a volume is a section: [volume.NAME]"));
        };
        let keys = in_order(keys).into_iter().map(|(n, v)| self.key(n, v, true));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Volume { name: name.get_ref().to_string(), at, keys })
    }

    fn key(
        &self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        of_volume: bool,
    ) -> Result<Key, String> {
        let one = |v: &Spanned<DeValue<'_>>| self.text(v).map(|t| (t, v.span().start));
        let values = match value.get_ref() {
            DeValue::Array(all) => all.iter().map(one).collect::<Result<_, _>>()?,
            _ => vec![one(value)?],
        };
        let name_text = name.get_ref().to_string();
        Ok(Key { name: name_text, at: name.span().start, values, of_volume })
    }

    fn text(&self, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
        Ok(match value.get_ref() {
            DeValue::String(s) => s.to_string(),
            DeValue::Integer(n) => n.to_string(),
            DeValue::Float(n) => n.to_string(),
            DeValue::Boolean(b) => b.to_string(),
            other => {
                let why = format!("a {} is no value of an option", other.type_str());
                return Err(self.wrong(value.span().start, &why));
            }
        })
    }

    /// What is wrong at a place.
    pub(super) fn wrong(&self, at: At, why: &str) -> String {
        let line = self.lines.partition_point(|start| *start <= at);
        let column = at - self.lines[line - 1] + 1;
        format!("{}:{line}:{column}: {why}", self.path.display())
    }
}

/// A table's entries as they stand in the text.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(name, _)| {
        let Range { start, .. } = name.span();
        start
    });
    all
}
