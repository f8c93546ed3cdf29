//! What the core may ask of a bucket of an object store, and what a bucket promises. The rules are
//! the few that every such store keeps; nothing here knows which world the bucket is of.
//!
//! B1 An object is there as a whole or not at all, and durable when its PUT has succeeded.
//! B2 [`Bucket::put_absent`] succeeds for one of all who try a name, as long as nobody deletes it.
//! B3 A request that fails with [`BucketErrorKind::Unknown`] may have been carried out, or may be
//! later.
//! B4 What has been put before a LIST or GET begins is seen by it (strong consistency).
//! B5 Names are listed in the order of their bytes.

use crate::disk::{DiskError, DiskErrorKind, Local};
use std::fmt;
use std::sync::Arc;

/// The size of a device that is a bucket: it has no end.
pub const BUCKET_BYTES: u64 = u64::MAX;

/// What is asked of a bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectOp {
    /// Make an object, if there is none of that name.
    PutAbsent(String, Arc<[u8]>),
    /// Make an object, in place of what there is.
    Put(String, Arc<[u8]>),
    /// All of an object, or at most so many bytes from one on.
    Get(String, Option<(u64, u64)>),
    /// A range of an object that never changes under its name: what was read of it before may be
    /// the answer, even if it is gone meanwhile.
    GetKept {
        /// Its name.
        name: String,
        /// From which byte on, and how many at most.
        range: (u64, u64),
        /// What tells it from other objects that have had its name.
        of: [u8; 16],
        /// What is kept has shown to be wrong: it is read again, and kept instead.
        anew: bool,
    },
    /// The names behind `after` that begin with `prefix`.
    List {
        /// What they begin with.
        prefix: String,
        /// The last one that is not wanted; empty: all are.
        after: String,
    },
    /// Take objects away, at least one; none of such a name is no error. An error may leave some of
    /// them deleted.
    Delete(Vec<String>),
}

impl ObjectOp {
    /// The same with each name in it replaced by what `whole` makes of it: for a bucket that lies
    /// below a prefix of another.
    pub fn renamed(self, whole: impl Fn(String) -> String) -> ObjectOp {
        match self {
            ObjectOp::PutAbsent(name, bytes) => ObjectOp::PutAbsent(whole(name), bytes),
            ObjectOp::Put(name, bytes) => ObjectOp::Put(whole(name), bytes),
            ObjectOp::Get(name, range) => ObjectOp::Get(whole(name), range),
            ObjectOp::GetKept { name, range, of, anew } => {
                ObjectOp::GetKept { name: whole(name), range, of, anew }
            }
            ObjectOp::List { prefix, after } => {
                let after = if after.is_empty() { after } else { whole(after) };
                ObjectOp::List { prefix: whole(prefix), after }
            }
            ObjectOp::Delete(names) => ObjectOp::Delete(names.into_iter().map(whole).collect()),
        }
    }

    /// Its name in errors and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            ObjectOp::PutAbsent(..) | ObjectOp::Put(..) => "PUT",
            ObjectOp::Get(..) | ObjectOp::GetKept { .. } => "GET",
            ObjectOp::List { .. } => "LIST",
            ObjectOp::Delete(..) => "DELETE",
        }
    }
    /// The object, or the first of several, or what is listed.
    pub fn name(&self) -> &str {
        match self {
            ObjectOp::PutAbsent(name, _)
            | ObjectOp::Put(name, _)
            | ObjectOp::Get(name, _)
            | ObjectOp::GetKept { name, .. } => name,
            ObjectOp::Delete(names) => names.first().map_or("", String::as_str),
            ObjectOp::List { prefix, .. } => prefix,
        }
    }
    /// Bytes that go to the bucket with it.
    pub fn bytes(&self) -> u64 {
        match self {
            ObjectOp::PutAbsent(_, bytes) | ObjectOp::Put(_, bytes) => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectDone {
    /// It was put, or deleted.
    Done,
    /// What was got.
    Bytes(Vec<u8>),
    /// The same, without asking the bucket.
    Kept(Vec<u8>),
    /// What was listed.
    Names(Vec<String>),
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketErrorKind {
    /// There is an object of that name.
    Exists,
    /// There is none.
    NotFound,
    /// The store refuses such requests: asking again is of no use.
    Refused,
    /// What is there is not what was put: asking again is of no use.
    Damaged,
    /// Nobody knows whether it was carried out (B3).
    Unknown,
}

/// A failed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketError {
    /// What went wrong.
    pub kind: BucketErrorKind,
    /// The request.
    pub during: &'static str,
    /// The object's name.
    pub name: String,
    /// The store's words.
    pub detail: String,
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            BucketErrorKind::Exists => "there is such an object already",
            BucketErrorKind::NotFound => "there is no such object",
            BucketErrorKind::Refused => "the store refuses it",
            BucketErrorKind::Damaged => "the object is damaged",
            BucketErrorKind::Unknown => "the request failed",
        };
        write!(f, "{} {}: {what}", self.during, self.name)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}
impl std::error::Error for BucketError {}

impl From<BucketError> for DiskError {
    fn from(e: BucketError) -> DiskError {
        DiskError { kind: DiskErrorKind::Io, during: e.during, at: 0, detail: e.to_string() }
    }
}

/// A bucket, as seen from inside a volume: the objects below one prefix, which belongs to the
/// volume.
pub trait Bucket {
    /// Carries out one request (B1 to B5).
    fn ask(&self, op: ObjectOp) -> Local<'_, Result<ObjectDone, BucketError>>;

    /// Makes an object, if there is none of that name.
    fn put_absent(&self, name: &str, bytes: Arc<[u8]>) -> Local<'_, Result<(), BucketError>> {
        let asked = self.ask(ObjectOp::PutAbsent(name.to_owned(), bytes));
        Box::pin(async move { asked.await.map(|_| ()) })
    }
    /// Makes an object, in place of what there is.
    fn put(&self, name: &str, bytes: Arc<[u8]>) -> Local<'_, Result<(), BucketError>> {
        let asked = self.ask(ObjectOp::Put(name.to_owned(), bytes));
        Box::pin(async move { asked.await.map(|_| ()) })
    }
    /// All of an object, or of it from `range.0` on at most `range.1` bytes.
    fn get(
        &self,
        name: &str,
        range: Option<(u64, u64)>,
    ) -> Local<'_, Result<Vec<u8>, BucketError>> {
        let asked = self.ask(ObjectOp::Get(name.to_owned(), range));
        Box::pin(async move {
            match asked.await? {
                ObjectDone::Bytes(bytes) => Ok(bytes),
                _ => Ok(Vec::new()),
            }
        })
    }
    /// A range of an object that never changes under its name, from what is kept of it if that is
    /// there; `of` tells it from earlier objects of the same name. `anew`: what is kept is wrong.
    fn get_kept(
        &self,
        name: &str,
        range: (u64, u64),
        (of, anew): ([u8; 16], bool),
    ) -> Local<'_, Result<Vec<u8>, BucketError>> {
        let asked = self.ask(ObjectOp::GetKept { name: name.to_owned(), range, of, anew });
        Box::pin(async move {
            match asked.await? {
                ObjectDone::Bytes(bytes) | ObjectDone::Kept(bytes) => Ok(bytes),
                _ => Ok(Vec::new()),
            }
        })
    }
    /// The names behind `after` that begin with `prefix`, in order.
    fn list(&self, prefix: &str, after: &str) -> Local<'_, Result<Vec<String>, BucketError>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let asked = self.ask(ObjectOp::List { prefix, after });
        Box::pin(async move {
            match asked.await? {
                ObjectDone::Names(names) => Ok(names),
                _ => Ok(Vec::new()),
            }
        })
    }
    /// Takes an object away; none of that name is no error.
    fn delete(&self, name: &str) -> Local<'_, Result<(), BucketError>> {
        self.delete_all(vec![name.to_owned()])
    }
    /// Takes several away with one request. An error may leave some of them deleted.
    fn delete_all(&self, names: Vec<String>) -> Local<'_, Result<(), BucketError>> {
        let asked = self.ask(ObjectOp::Delete(names));
        Box::pin(async move { asked.await.map(|_| ()) })
    }
}
