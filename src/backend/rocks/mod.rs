//! The index in RocksDB. Nothing outside of this folder names it.
//!
//! Four column families, all flushed together (`atomic_flush`) and none of them logged:
//! ```text
//! default    nothing; RocksDB wants it
//! state      store u32 BE · generation u32 BE · full key  →  0 (tombstone) or 1 · value
//! versions   store u32 BE · version u64 BE · epoch u64 BE →  version record
//! meta       what generations there are: `registry` has the rows
//! ```
//! Order: whatever belongs together is in one write batch, and after a crash all column families stand at one batch.
//! Memory: block cache with index and filter blocks in it, memtables charged to it; a registry of one small record a store and a
//! generation, and each generation's deleted ranges. What it does not do: it never reads what another format wrote, and repairs nothing;
//! damage means that the directory is wiped at the next open.

mod engine;
mod families;
mod generations;
mod options;
mod record;
mod registry;
mod restore;
mod scan;
#[cfg(test)]
mod tests;

pub(super) use engine::RocksEngine;
