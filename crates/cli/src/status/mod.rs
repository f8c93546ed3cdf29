//! What a running server tells of itself: one [`Report`], collected when somebody asks, over HTTP
//! on a port (`--http`: a page, `/metrics` for Prometheus, `/health`) and on a socket of the
//! machine's own (`cairn stats`, `cairn top`). It only asks the volumes; it changes nothing.

mod client;
mod collect;
mod control;
mod http;
mod openings;
mod report;
mod segments;

pub use client::{Server, servers};
pub use collect::{Shown, Status};
pub use control::Control;
pub use http::start;
pub use openings::OpeningWatch;
pub use report::{ClientReport, Report, VolumeReport};
pub use segments::Segments;
