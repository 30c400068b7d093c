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
//!
//! # Example
//!
//! A receiver writes what comes in; a job takes it from there into its state, and commits with the state how far it has come. So after a crash nothing
//! is missed, and nothing counted twice.
//!
//! ```
//! use alluvium::prelude::*;
//! use alluvium::wal::{FileLog, LogOptions, Lsn, WriteAheadLog};
//! use alluvium::{Backend, LocalCheckpoint, Result, RocksDbProvider, StateStoreId, StoreOptions};
//!
//! /// Counts the records that the state has not seen yet.
//! fn batch(log: &FileLog, store: &RocksDbProvider) -> Result<Lsn> {
//!     let version = store.latest()?;
//!     // Empty before the first commit.
//!     let mut seen = store.metadata(version)?.first_chunk().map_or(Lsn::NONE, |bytes| Lsn(u64::from_le_bytes(*bytes)));
//!     let mut batch = store.begin(version)?;
//!     let users = batch.create_family("users")?;
//!     let mut records = log.read_from(seen.next())?;
//!     while let Some(record) = records.next_record()? {
//!         let clicks = batch.get(users, record.payload)?.map_or(0, |bytes| bytes[0]);
//!         batch.put(users, record.payload, &[clicks + 1])?;
//!         seen = record.lsn;
//!     }
//!     batch.commit_with(&seen.0.to_le_bytes())?;
//!     Ok(seen)
//! }
//!
//! # fn main() -> Result<()> {
//! # let scratch = tempfile::tempdir().expect("a directory for the test");
//! # std::env::set_current_dir(scratch.path()).expect("to work in it");
//! let backend = Backend::in_memory()?;
//! let id = StateStoreId::new("clicks", 0, "state")?;
//! let store = RocksDbProvider::open(&backend, LocalCheckpoint::open("checkpoint")?, id, StoreOptions::default())?;
//! let log = FileLog::open("log", LogOptions::default())?;
//! log.write(b"ada", 1_767_225_600_000)?; // durable when this returns
//! let ben = log.write(b"ben", 1_767_225_600_003)?;
//! assert_eq!(batch(&log, &store)?, ben.lsn);
//! assert_eq!(&log.read(&ben)?[..], b"ben"); // by its handle, which can be kept
//!
//! // The job is killed; it opens its log again, and more comes in.
//! drop(log);
//! let log = FileLog::open("log", LogOptions::default())?;
//! let ada = log.write(b"ada", 1_767_225_600_009)?;
//! assert_eq!(batch(&log, &store)?, ada.lsn);
//! let state = store.read_at(store.latest()?)?;
//! let users = state.family("users").expect("it was made with the first batch");
//! assert_eq!(state.get(users, b"ada")?.as_deref(), Some(&[2][..]));
//! assert_eq!(state.get(users, b"ben")?.as_deref(), Some(&[1][..]));
//! // Whole segments that no version needs to which the job may go back.
//! log.clean_below(ada.lsn)?;
//! # Ok(())
//! # }
//! ```

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
mod plan;
mod planted;
mod progress;
mod record;
mod recovery;
mod registry;
mod replay;
mod reserve;
mod segment;
mod sink;
mod survey;
mod verdict;
mod watermark;

pub use batched::BatchedLog;
pub use contract::{Cleaned, Records, Skipped, WriteAheadLog};
pub use format::{MAX_RECORD_BYTES, RecordCodec, SegmentHeader};
pub use log::FileLog;
#[cfg(any(test, feature = "conformance"))]
pub use log::read_untrusted;
pub use name::SegmentName;
pub use options::{Durability, LogOptions, RecoveryMode, Wait, WriteOptions};
#[cfg(any(test, feature = "conformance"))]
pub use planted::Planted;
pub use progress::{Progress, RecoveryObserver};
pub use record::{LogId, Lsn, NewRecord, Record, RecordHandle, RecordKind};
pub use recovery::Recovery;
pub use registry::{LogFactory, LogRegistry, LogRole, LogSettings};
pub use verdict::Verdict;
