//! One integration binary, so that RocksDB links once.

mod smoke;
