#![no_main]
//! What a hostile client sends, from raw bytes to odd arguments of every procedure, to a server
//! with a volume behind it. It finds panics, calls without a reply, and volumes that stop working.

#[path = "../../crates/nfs/tests/hostile/mod.rs"]
mod hostile;
#[path = "../../crates/nfs/tests/hostile/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|input: &[u8]| script::run(input));
