//! Asking the writer: who does not write the volume leaves an object that says what it wants done,
//! and the writer looks for it as often as it beats. It does not know what that is done with.
//!
//! Rule        One asks at a time: the object `ask` is put only if absent. The writer that it is
//!             meant for, by its epoch, does it once, puts the answer, and takes the object away.
//! Invariants  Q1 what is asked is done by the writer of the epoch that it names, and by no other;
//!             so who takes the volume over does nothing that was asked of another.
//!             Q2 a writer does what bears one number once, however often it is asked.
//!             Q3 an answer is there before its `ask` is gone; so who finds neither asks again.
//!
//! ```text
//!  ask              the number, the epoch, `create` or `delete`, the snapshot: a line each
//!  answers/NUMBER   `done`, or why not
//! ```
//!
//! Recovery    none: an `ask` of another epoch is taken away by whoever writes then.
//! Cost        for the writer a GET for each heartbeat. Asking: some ten requests.

use crate::beat::Writer;
use crate::object::{Epoch, Serial};
use crate::store::{OpenOptions, Store};
use env::{Bucket, BucketErrorKind, Env, Nanos};
use std::rc::Rc;

const ASK: &str = "ask";
const ANSWERS: &str = "answers/";
const DONE: &str = "done";
/// A writer that beats and answers nothing for so long does not know this.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// It is looked so often for an answer.
const LOOK: Nanos = Nanos::from_millis(100);
/// Numbers that a writer remembers (Q2).
const REMEMBERED: usize = 1000;

/// What is wanted of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Make the one of this name.
    Create(String),
    /// Delete it.
    Delete(String),
}

/// What somebody asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    number: String,
    epoch: Epoch,
    /// What it is.
    pub wish: Wish,
}

impl Asked {
    fn encode(&self) -> Vec<u8> {
        let (verb, name) = match &self.wish {
            Wish::Create(name) => ("create", name),
            Wish::Delete(name) => ("delete", name),
        };
        let raw = format!("{}\n{:x}\n{verb}\n{name}\n", self.number, self.epoch.0.0).into_bytes();
        let again = Asked::decode(&raw);
        assert_eq!(again.as_ref(), Some(self), "I13: what is asked is read as something else");
        raw
    }
    fn decode(raw: &[u8]) -> Option<Asked> {
        let mut lines = std::str::from_utf8(raw).ok()?.lines();
        let number = lines.next().filter(|n| n.bytes().all(|b| b.is_ascii_hexdigit()))?.to_owned();
        let epoch = Epoch(Serial(u64::from_str_radix(lines.next()?, 16).ok()?));
        let (verb, name) = (lines.next()?, lines.next()?.to_owned());
        let wish = match verb {
            "create" => Wish::Create(name),
            "delete" => Wish::Delete(name),
            _ => return None,
        };
        Some(Asked { number, epoch, wish })
    }
    fn answer(&self) -> String {
        format!("{ANSWERS}{}", self.number)
    }
}

impl Store {
    /// How often somebody should look whether anything is asked; None: no more.
    pub fn looks_every(&self) -> Option<Nanos> {
        let (o, s) = (&self.inner.options, self.inner.state.borrow());
        let over = o.read_only || s.closing || s.failed.is_some();
        (!over).then(|| Nanos((o.after.0 / 5).max(1)))
    }

    /// What is asked of this writer now, if anything: it is to be done, and answered.
    pub async fn asked(&self) -> Option<Asked> {
        let raw = self.inner.bucket.get(ASK, None).await.ok()?;
        let asked = Asked::decode(&raw).filter(|a| a.epoch == self.opened().epoch); // Q1
        let Some(asked) = asked else {
            let _ = self.inner.bucket.delete(ASK).await; // or it is found again
            return None;
        };
        let known = {
            let all = self.inner.asked.borrow();
            all.iter().find(|a| a.0 == asked.number).map(|a| a.1.clone())
        };
        if let Some(answer) = known {
            self.tell(&asked, &answer?).await; // it is being done, if there is none
            return None;
        }
        let mut all = self.inner.asked.borrow_mut();
        all.push_back((asked.number.clone(), None));
        if all.len() > REMEMBERED {
            all.pop_front();
        }
        Some(asked)
    }

    /// It was done, or why not.
    pub async fn answer(&self, asked: &Asked, done: Result<(), String>) {
        let text = done.map_or_else(|why| why, |()| DONE.to_owned());
        {
            let mut all = self.inner.asked.borrow_mut();
            let known = all.iter_mut().find(|a| a.0 == asked.number);
            let before = known.and_then(|a| a.1.replace(text.clone()));
            assert!(before.is_none(), "Q2: what was asked as {} was done before", asked.number);
        }
        self.tell(asked, &text).await;
    }

    /// Puts the answer, and takes away what was asked if that could be done (Q3): else it is found
    /// again, and told again.
    async fn tell(&self, asked: &Asked, answer: &str) {
        let name = asked.answer();
        for _ in 0..3 {
            match self.inner.bucket.put(&name, answer.as_bytes().into()).await {
                Ok(()) => return drop(self.inner.bucket.delete(ASK).await),
                Err(e) => tracing::warn!("{e}"),
            }
        }
    }
}

/// Has the volume's writer do this, if there is one that is heard of. None: nobody writes, or
/// whoever did was silent for `options.after`. Errors: the writer's, or the bucket's.
pub async fn ask_writer(
    env: &Env,
    bucket: Rc<dyn Bucket>,
    options: &OpenOptions,
    wish: Wish,
) -> Result<Option<()>, String> {
    let (Wish::Create(name) | Wish::Delete(name)) = &wish;
    lfs::check_name(name)?; // it is a line of what is asked
    let read_only = OpenOptions { read_only: true, near: None, ..options.clone() };
    let store = Store::open(env.clone(), bucket, read_only).await?;
    let (bucket, epoch) = (&store.inner.bucket, store.opened().epoch);
    let number = format!("{:016x}{:016x}", env.random(), env.random());
    let asked = Asked { number, epoch, wish };
    let (began, mut heard) = (env.now(), env.now());
    let mut last = Writer::of(bucket, epoch).await;
    let mut is_asked = false;
    loop {
        let Some(writer) = last.as_ref().filter(|w| !w.closed) else { return Ok(None) };
        if !is_asked {
            // Another one's is waited for; whether this one is there is looked for.
            let _ = bucket.put_absent(ASK, asked.encode().into()).await;
        }
        let there = match bucket.get(ASK, None).await {
            Err(e) if e.kind == BucketErrorKind::NotFound => None,
            there => Some(there.map_err(|e| e.to_string())?),
        };
        match bucket.get(&asked.answer(), None).await {
            Ok(answer) => {
                let _ = bucket.delete(&asked.answer()).await;
                let answer = String::from_utf8_lossy(&answer).into_owned();
                return if answer == DONE { Ok(Some(())) } else { Err(answer) };
            }
            Err(e) if e.kind == BucketErrorKind::NotFound => (),
            Err(e) => return Err(e.to_string()),
        }
        // Q3: neither is there.
        is_asked = there.is_some_and(|raw| Asked::decode(&raw).as_ref() == Some(&asked));
        if env.now().since(began) > PATIENCE {
            return Err(format!(
                "{} writes it, and does not answer: on its machine the same command asks it \
                 directly",
                writer.name
            ));
        }
        env.sleep(LOOK).await;
        let now = Writer::of(bucket, epoch).await;
        if now.is_some() && now != last {
            (heard, last) = (env.now(), now);
        } else if env.now().since(heard) >= options.after {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        for wish in [Wish::Create("a b".into()), Wish::Delete("c".into())] {
            let asked = Asked { number: "0f".into(), epoch: Epoch(Serial(77)), wish };
            assert_eq!(Asked::decode(&asked.encode()), Some(asked));
        }
        assert_eq!(Asked::decode(b"../x\n7\ncreate\na\n"), None, "a number is one name");
        assert_eq!(Asked::decode(b"0f\n7\nresize\na\n"), None);
    }
}
