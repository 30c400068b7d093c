//! The write-ahead log: takes in a stream's records before anyone processes them, and gives them back after a crash.
//!
//! ```text
//!   write ──► group     whoever comes first writes and syncs for all who wait; LSNs in order
//!               │
//!             sink      puts frames together, rolls, seals, goes on in a new segment when one fails
//!               │
//!   ┌───────────▼──────────── the folder ───────────────────────────┐
//!   │ log-…-1 (sealed)  log-…-2 (sealed)  log-…-3   durable  horizon │
//!   └──┬──────────────────┬──────────────────┬───────────────────────┘
//!    chunk              chunk              chunk     verified frames, half a MiB at a time
//!      └── replay ────────┴──────────────────┘       read by handle: one positioned read
//!   survey ─► verdict ─► recovery                    opening: what is there, what it means, what is done
//! ```
//!
//! **Order.** Records are ordered by LSN, whatever their times say. Acknowledgements come in that order for each durability.
//!
//! **Durability.** As the write asks for: see [`Durability`]. What was acknowledged as durable is there after any crash, or opening and reading say
//! which record is damaged or missing, by file and offset. Records that were not acknowledged are there whole or not at all.
//!
//! **Memory.** A lone writer's record is not copied, or once; what waits in the queue holds leases on a budget,
//! which may be a backend's ([`LogOptions::memory`]). Reading takes two chunks a thread,
//! or the largest record, for any number of records. An open log holds a few hundred bytes a segment.
//!
//! **Not here.** No replication, no transactions over several records, no changing of what was written. The format is in `docs/formats/log.md`, the
//! reasons in `docs/decisions/0005-the-log.md`.

mod ahead;
mod batched;
mod behind;
mod chunk;
mod cleaner;
mod compress;
mod contract;
mod folder;
mod format;
mod group;
pub mod inspect;
mod log;
mod name;
mod options;
mod planted;
mod primitives;
mod queue;
mod record;
mod recovery;
mod registry;
mod replay;
mod reserve;
#[cfg(test)]
mod schedules;
mod segment;
mod sink;
mod survey;
mod ticket;
mod verdict;
mod watermark;

pub use batched::BatchedLog;
pub use contract::{Cleaned, Progress, Records, Skipped, WriteAheadLog};
pub use format::{MAX_RECORD_BYTES, RecordCodec, SegmentHeader};
pub use log::FileLog;
#[cfg(any(test, feature = "conformance"))]
pub use log::read_untrusted;
pub use name::SegmentName;
pub use options::{Durability, LogOptions, RecoveryMode, RecoveryObserver, Wait, WriteOptions};
#[cfg(any(test, feature = "conformance"))]
pub use planted::Planted;
pub use record::{LogId, Lsn, NewRecord, Record, RecordHandle, RecordKind};
pub use recovery::Recovery;
pub use registry::{LogFactory, LogRegistry, LogRole, LogSettings};
pub use verdict::Verdict;
