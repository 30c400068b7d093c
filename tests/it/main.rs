//! One integration binary, so that RocksDB links once.

#[cfg(test)]
#[path = "../crash/mod.rs"]
mod crash;
mod smoke;
