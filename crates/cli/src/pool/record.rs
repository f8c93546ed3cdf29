//! What a server of a pool says of itself in an object of its own: who it is, that it is alive, and
//! which volumes it has. Advice for the other servers, and for people: no safety hangs on it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the names of these objects begin with, below the pool's prefix.
pub const SERVERS: &str = ".pool/";

/// How far a server is with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being opened, and may turn out to be somebody else's.
    Opening,
    Serving,
    /// It is being closed.
    Ending,
    /// It could not be opened: not tried again for a while, and nobody's.
    Refused,
}

impl State {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            State::Opening => "opening",
            State::Serving => "serving",
            State::Ending => "ending",
            State::Refused => "refused",
        }
    }
}

/// What a server says of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Has {
    pub state: State,
    /// Where it is mounted from, as mount(8) has it: HOST:/NAME.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// With these options.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Why it could not be opened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Has {
    /// Nothing but how far it is.
    pub fn new(state: State) -> Has {
        Has { state, at: String::new(), options: String::new(), why: String::new() }
    }
}

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// Who it is, for a person.
    pub server: String,
    /// Raised each time.
    pub count: u64,
    /// It says so about as often, in milliseconds.
    pub every_ms: u64,
    pub volumes: BTreeMap<String, Has>,
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // names and numbers can always be written
    }

    /// None: it is none, or a later version's.
    pub fn decode(raw: &[u8]) -> Option<Record> {
        serde_json::from_slice(raw).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        let serving = Has { at: "a:/v".into(), ..Has::new(State::Serving) };
        let refused = Has { why: "it is in use".into(), ..Has::new(State::Refused) };
        let volumes = [("v".to_owned(), serving), ("w".to_owned(), refused)].into();
        let r = Record { server: "process 7 on a".into(), count: 9, every_ms: 1000, volumes };
        assert_eq!(Record::decode(&r.encode()), Some(r.clone()));
        let raw = r.encode();
        assert_eq!(Record::decode(&raw[..raw.len() - 2]), None, "cut short");
    }
}
