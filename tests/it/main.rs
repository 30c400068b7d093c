//! One integration binary, so that RocksDB links once.

mod bad_input;
mod conformance;
#[path = "../crash/mod.rs"]
mod crash;
#[cfg(feature = "rocksdb")]
mod process;
mod smoke;
