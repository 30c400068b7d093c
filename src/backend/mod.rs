//! The backend: one index for all stores of a process of what has changed since each store's base.
//!
//! ```text
//!  store/ ──► Generation ── filter (heap) ── deleted ranges (heap)
//!                 │
//!              Engine ──┬── RocksEngine    rocks/, the only place that names RocksDB
//!                       └── MemoryEngine   ordered maps, for tests and builds without RocksDB
//!  Worker: one thread, for what happens behind the callers' backs
//! ```
//!
//! A **generation** is the key range of one store in one stretch of its life. The deltas of the store are applied to it one after
//! the other; when the store's base moves up, a new generation begins and the old one is dropped.
//!
//! What it promises:
//! - *order*: a delta and the mark that says "applied" are seen together after a crash, or neither; a delta that was too
//!   large for one batch is recognised as torn;
//! - *durability*: none, and nobody needs it. After a crash the whole index is as it was at some earlier moment (`atomic_flush`
//!   over all column families, no log). The marks tell which deltas are missing;
//! - *memory*: block cache and memtables stay within their share of the limit; a filter of fixed size a generation; deleted
//!   ranges are kept merged;
//! - *disk*: a dropped generation's files are freed, also after a crash in between.
//!
//! What it does not do: it knows no lineage and no runs. Whether a generation fits a wanted version is the store's
//! decision, by its marks. It never touches a directory that does not carry its marker.

mod contract;
mod filter;
mod generation;
mod handle;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod options;
mod precedence;
#[cfg(feature = "rocksdb")]
mod rocks;
#[cfg(feature = "conformance")]
mod simulated;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod testing;
mod workdir;
mod worker;

pub use crate::budget::{MemoryHolder, MemoryShare, Shortages};
pub use contract::EngineMemory;
pub(crate) use contract::{Coverage, GenerationId, GenerationRecord, StoreNumber, VersionRecord};
pub(crate) use generation::Generation;
pub(crate) use handle::{Admission, InUse, Room};
pub use handle::{Backend, MemoryUse};
pub use options::{BackendCompression, BackendOptions, MIN_MEMORY_LIMIT_BYTES};
pub(crate) use precedence::{Patience, Precedence};
#[doc(hidden)]
#[cfg(feature = "conformance")]
pub use simulated::{IndexImage, SimIndex};
pub(crate) use worker::JobUrgency;
