//! A pool: the volumes below one prefix of a bucket, served by several machines, each volume by one
//! of them. It decides who opens what, and nothing that safety hangs on.
//!
//! Rule        Each server writes an object that says which volumes it has, and reads those of the
//!             others; all come to the same spread by themselves (plan.rs). A volume is opened as
//!             any other: by its fence (crates/bucket), after its writer was silent. Where two want
//!             one, the fence lets one in, and the other tries elsewhere.
//! Terms       *server*: one `cairn serve URL/`. *Record*: its object. *Alive*: heard of within
//!             half of `--takeover-after`, by the clock of who looks.
//!
//! In the bucket, below the pool's prefix:
//!
//! ```text
//!  NAME/…                    a volume: letters, digits, `.`, `_`, `-`; the first no `.`
//!  .pool/SERVER              a record, JSON                                          record.rs
//! ```
//!
//! Invariants  P1 a volume is opened that this server neither has nor has refused lately.
//!
//! States      volume: nobody's -plan::step-> opening -its process says so-> serving
//!             -too many, or the server ends-> ending -its process has ended-> nobody's;
//!             opening -its process has failed-> refused -a while later-> nobody's
//! Recovery    a server that dies is silent; the others open its volumes when each one's own writer
//!             was silent for `--takeover-after`. Its record is forgotten after a while.
//! Cost        a PUT, a LIST, and a GET for each other server, each fifth of `--takeover-after`; a
//!             LIST of the volumes, and a GET for what is none, each `--takeover-after`.

mod child;
mod members;
mod plan;
mod record;
mod server;

pub use child::{Kept, belong};
pub use members::{Heard, Members};
pub use record::{Record, State};
pub use server::serve;

use crate::Failure;
use host::{Objects, Url};
use std::path::Path;

/// Is a pool meant? A URL that ends with a slash.
pub fn is_pool(image: &Path) -> bool {
    image.to_str().is_some_and(|i| i.contains("://") && i.ends_with('/'))
}

/// The objects of a pool. Errors: that is no URL, or a volume's.
pub fn objects_of(url: &Path) -> Result<Objects, Failure> {
    let shown = url.display();
    let Some(place) = Url::of(url)? else {
        return Err(Failure::Usage(format!("{shown}: a pool's URL is s3://BUCKET/PREFIX/")));
    };
    let objects = Objects::open(&place)?;
    if objects.get("volume").map_err(|e| format!("{shown}: {e}"))?.is_some() {
        let why = "there is a volume here, and not a folder of volumes: leave the last / out";
        return Err(Failure::Failed(format!("{shown}: {why}")));
    }
    Ok(objects)
}

/// May this be the name of a volume in a pool?
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
}
