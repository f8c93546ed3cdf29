//! The commands, one subject a file. What several share is in `image` and `args`.

pub mod bench;
pub mod check;
pub mod config;
pub mod copy;
pub mod crash;
pub mod files;
pub mod fsck;
pub mod generate;
pub mod get;
pub mod info;
pub mod lab;
pub mod lfs;
pub mod log;
pub mod mkfs;
mod nfs_server;
mod objects;
pub mod put;
pub mod recover;
pub mod remove;
pub mod replies;
pub mod rpcbind;
pub mod scrub;
pub mod serve;
mod served;
pub mod stats;
pub mod top;
pub mod tune;
