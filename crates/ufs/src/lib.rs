//! Which object is meant: names, directories, link counts, one operation a file, over the small [`Store`]
//! trait. It knows neither where blocks live (that is the store's) nor who asks (that is the front ends').

pub mod store;

pub use store::{InodeHandle, Limits, Store};
