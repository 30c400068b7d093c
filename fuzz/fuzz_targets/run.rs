//! Any bytes as a run, and a good run with bytes replaced: read or refused, nothing worse.
#![no_main]

use alluvium::run::{read_edited, read_untrusted};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u16, u8)>, &[u8])| {
    let _ = read_edited(&input.0);
    let _ = read_untrusted(input.1);
});
