//! The arguments of the commands that change what a closed volume is: its size, its label, its
//! UUID. What they may be is the commands' business.

use crate::size;
use clap::Args;
use std::path::PathBuf;

/// Whole lines of `cairn resize`, below its help.
pub(super) const RESIZE_EXAMPLES: &str = "Examples:
  cairn resize disk.img 20G
      to 20 GiB; the file becomes longer, and stays sparse
  cairn resize /dev/vg/home
      to as much as the device has";
pub(super) const LABEL_EXAMPLES: &str = "Examples:
  cairn label disk.img
  cairn label disk.img home
  cairn label disk.img ''";
pub(super) const UUID_EXAMPLES: &str = "Examples:
  cairn uuid disk.img
  cairn uuid copy.img random
  cairn uuid disk.img 0f9f6f5c-6b4e-4f57-9c38-7c2a8e9d1b11";

#[derive(Args)]
pub struct ResizeArgs {
    /// The volume, closed: an image, a device, or IMAGE@pN.
    pub image: PathBuf,
    /// The volume's size [default: the device's, or the file's].
    #[arg(value_parser = size::parse)]
    pub size: Option<u64>,
}

#[derive(Args)]
pub struct LabelArgs {
    /// The volume, closed: an image, a device, or IMAGE@pN.
    pub image: PathBuf,
    /// Its name from now on, up to 16 bytes [default: show the one it has].
    pub label: Option<String>,
}

#[derive(Args)]
pub struct UuidArgs {
    /// The volume, closed: an image, a device, or IMAGE@pN.
    pub image: PathBuf,
    /// From now on: a UUID, or `random` for a new one [default: show the one it has].
    pub uuid: Option<String>,
}
