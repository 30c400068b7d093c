//! One integration binary, so that RocksDB links once.

mod bad_input;
mod conformance;
mod smoke;
