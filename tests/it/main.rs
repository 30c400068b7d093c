//! One integration binary, so that RocksDB links once.

mod bad_input;
mod conformance;
#[path = "../crash/mod.rs"]
mod crash;
mod smoke;
