//! Runs: immutable files of sorted entries, the only durable form that state ever has.
//!
//! ```text
//!            put, tombstone … (ascending)                     get(key)                  cursor(range)
//!                      │                                          │                           │
//!   RunWriter ─► page ─┴► stripe: pages │ page index │ filter     ├─ top index ─► stripe      ├─ seek as a get does
//!                          ⋮                                      ├─ filter: one cache line   └─ then page by page
//!                         range tombstones │ metadata │           ├─ page index ─► page
//!                         properties │ top index │ footer         └─ page: tags ─► one key ─► value, not copied
//! ```
//!
//! - `RunWriter` streams entries into a file in about 1 MiB of memory, whatever their number.
//! - `Run` is an open file, shared between threads: point gets, cursors, verification.
//! - `Merge` makes one cursor of many layers, newest first, with range tombstones applied.
//!
//! **Order**: keys ascend byte by byte within a run; the writer refuses others and cursors check it. Within a run a point
//! entry beats a range tombstone; the range tombstones of a run delete in every older run. **Durability**: none here; the
//! caller syncs and publishes what the writer has written. **Memory**: an open run holds its header, its range tombstones
//! and one bit a block, nothing per key; mapped pages are the kernel's page cache. **Damage**: every block is checked
//! before its first use in a mapping (each time it is read, where it is not mapped), and `Run::verify` checks every byte
//! of the file.
//!
//! What runs do *not* do: they know nothing of other files, of lineages, or of which of them counts; a get does not look
//! at range tombstones (`Run::covers` does); nothing is cached, so that each get from a compressed page decompresses it.
//!
#![doc = include_str!("../../docs/formats/run.md")]

mod compress;
mod cursor;
mod filter;
mod footer;
mod header;
mod identity;
mod index;
mod merge;
mod page;
mod reader;
mod source;
#[cfg(any(test, feature = "conformance"))]
mod untrusted;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use cursor::RunCursor;
pub use header::PageCodec;
pub(crate) use header::RunHeader;
pub(crate) use merge::{Layer, Merge};
pub(crate) use reader::Run;
pub use source::Access;
#[doc(hidden)]
#[cfg(feature = "conformance")]
pub use untrusted::{read_edited, read_untrusted};
#[cfg(test)]
pub(crate) use writer::Packing;
pub(crate) use writer::{RunWriter, WriterOptions};
