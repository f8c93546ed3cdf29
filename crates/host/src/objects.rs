//! Objects in a bucket, or in a folder in its place, for who has no volume there: one request at a
//! time, which is waited for. What the objects mean it does not know.

use crate::bucket::{HostBucket, Url};
use env::{BucketError, BucketErrorKind, ObjectDone, ObjectOp};

/// The objects below a prefix.
#[derive(Clone, Debug)]
pub struct Objects(HostBucket);

impl Objects {
    /// Nothing is asked of the bucket yet. Errors are for the user, here and below.
    pub fn open(url: &Url) -> Result<Objects, String> {
        HostBucket::open(url).map(Objects)
    }

    fn ask(&self, op: ObjectOp) -> Result<ObjectDone, BucketError> {
        self.0.ask_now(op)
    }

    /// All of an object; None: there is none.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        match self.ask(ObjectOp::Get(name.to_owned(), None)) {
            Ok(ObjectDone::Bytes(bytes)) => Ok(Some(bytes)),
            Ok(_) => Ok(None),
            Err(e) if e.kind == BucketErrorKind::NotFound => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Makes an object, in place of what there is.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        let put = ObjectOp::Put(name.to_owned(), bytes.into());
        self.ask(put).map(drop).map_err(|e| e.to_string())
    }

    /// Takes an object away; none of that name is no error.
    pub fn delete(&self, name: &str) -> Result<(), String> {
        self.ask(ObjectOp::Delete(vec![name.to_owned()])).map(drop).map_err(|e| e.to_string())
    }

    /// The names that begin with `prefix`, in order.
    pub fn list(&self, prefix: &str) -> Result<Vec<String>, String> {
        let (prefix, after) = (prefix.to_owned(), String::new());
        match self.ask(ObjectOp::List { prefix, after }) {
            Ok(ObjectDone::Names(names)) => Ok(names),
            Ok(_) => Ok(Vec::new()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// What stands before the first `/` in names, in order and once each: one LIST for each
    /// thousand of these, however many objects there are.
    pub fn folders(&self) -> Result<Vec<String>, String> {
        self.0.folders_now()
    }
}
