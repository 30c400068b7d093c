//! The uncommitted writes of one transaction.
//!
//! ```text
//! put ─► arena (frozen chunks, one being filled)     entries in write order ─► hash table: newest entry of a key
//! scan ─► sorted rows: each scan sorts only what was written since the last one, and holds what it sorted
//! commit ─► the newest entry of every key, in key order ─► the delta run
//! ```
//!
//! Promises: a point read costs one hash probe; a scan sees the writes made before it and none after; a key written many
//! times is handed to the commit once. Memory is the bytes written plus about 40 per entry, held as a lease on the budget;
//! overwritten bytes are given back when they outweigh the live ones.
//!
//! It does not spill to disk: a transaction that outgrows its share of the budget gets `MemoryLimit`.

mod arena;
mod rows;
mod table;

pub(crate) use table::Overlay;
