//! What front ends were asked, and how long the answers took: a series of latencies for each front
//! end, volume and client, percentiles of all that was answered and of the last half minute, and
//! the slowest of late. It knows no protocol and no volume, only names and times; whoever shows it
//! (Prometheus, a page, a table) reads [`Recorder`].

mod latency;
mod prometheus;
mod recorder;
mod series;
mod slow;

pub use latency::Percentiles;
pub use prometheus::{VolumeMetrics, encode_series, encode_volumes};
/// Ends the text of a scrape.
pub use prometheus_client::encoding::text::encode_eof;
pub use recorder::{CLIENTS_MAX, Recorder};
pub use series::{OperationSummary, Series, SeriesSummary};
pub use slow::{SLOW, Slow};
