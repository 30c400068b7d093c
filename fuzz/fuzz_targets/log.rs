//! Any bytes as the newest segment of a log, and a good one with bytes replaced: read or refused, in every mode, nothing worse.
//!
//! The suite feeds the same function (`tests/it/wal/hostile.rs`), so that it is built and run also without a fuzzer.
#![no_main]

use std::sync::LazyLock;

use alluvium::fs::SimDisk;
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/wal/untrusted.rs"]
mod untrusted;

static GOOD: LazyLock<SimDisk> = LazyLock::new(untrusted::good);

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    untrusted::feed(&GOOD, &input.0, input.1);
});
