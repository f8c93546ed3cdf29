//! House-keeping: `cargo xtask ci`, `cargo xtask tidy`.
fn main() {}
