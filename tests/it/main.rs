//! One integration binary, so that RocksDB links once.

mod conformance;
mod smoke;
