//! What a running server tells of itself: one [`Report`], collected when somebody asks, over HTTP
//! on a port (`--http`: a page, `/metrics` for Prometheus, `/health`) and on a socket of the
//! machine's own (`cairn stats`, `cairn top`). It only asks the volumes, and changes nothing; on
//! the socket a checker can be begun, and a volume held still for a copy.

mod client;
mod collect;
mod control;
mod copies;
mod http;
mod openings;
mod report;
mod requests;
mod segments;

pub use client::{Server, is_silent, servers, silent, why_silent};
pub use collect::{Gone, Shown, Status};
pub use control::Control;
pub use copies::{Begun, Changed, Copies};
pub use http::start;
pub use openings::OpeningWatch;
pub use report::{ClientReport, Report, VolumeReport};
pub use requests::{Requests, money};
pub use segments::Segments;
