//! The uncommitted writes of one transaction.
//!
//! ```text
//! put ─► table: arena (frozen chunks, one being filled) under a hash table: newest entry of a key
//!          │ over its share of the memory
//!          └► parts: sorted files in the work directory, newest last; 64 of one level become one of the next
//! get  ─► table ─► parts, newest first
//! scan ─► sorted rows of the table (each scan sorts only what was written since the last one) over the parts
//! commit ─► the newest entry of every key, in key order, out of the parts straight into the delta
//! ```
//!
//! Promises: a point read costs one hash probe, and a filter probe for each part; a scan sees the writes made before it and
//! none after; a key written many times is handed to the commit once; a transaction may be far larger than the memory.
//! Memory is the bytes written plus about 50 per entry, held as a lease on the budget, which it asks for before it takes;
//! overwritten bytes are given back when they outweigh the live ones. Reads never fail for lack of memory.
//!
//! What it cannot spill are deleted ranges: they stay in heap, 48 bytes each and their keys, and past the budget a
//! `delete_range` is refused.

mod arena;
mod part;
mod rows;
mod spilling;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use spilling::Overlay;
