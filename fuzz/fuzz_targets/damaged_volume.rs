#![no_main]
//! Volumes damaged as the fuzzer likes, opened, walked, changed, closed and repaired. It finds
//! panics and runs without end; what is right it does not know.

libfuzzer_sys::fuzz_target!(|input: &[u8]| lab::use_damaged(input));
