//! The arguments of `cairn copy`. Who copies, and how, is the command's business.

use crate::size;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct CopyArgs {
    /// The volume; where it is served or mounted on this machine, its mount point will do.
    pub src: PathBuf,
    /// A new file, a device, or an earlier copy, of which only what differs is written.
    pub dst: PathBuf,
    /// How long the volume's users may have to wait for the last of it.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = size::seconds)]
    pub hold: f64,
    /// Even if there is something else in DST.
    #[arg(long)]
    pub force: bool,
}
