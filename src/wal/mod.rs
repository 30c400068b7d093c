//! The write-ahead log: takes in a stream's records before anyone processes them, and gives them back after a crash.

mod ahead;
mod batched;
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
mod record;
mod recovery;
mod registry;
mod replay;
#[cfg(test)]
mod schedules;
mod segment;
mod sink;
mod survey;
mod verdict;
mod watermark;

pub use batched::BatchedLog;
pub use contract::{Cleaned, Progress, Records, Skipped, WriteAheadLog};
pub use format::{MAX_RECORD_BYTES, RecordCodec, SegmentHeader};
pub use log::FileLog;
#[cfg(any(test, feature = "conformance"))]
pub use log::read_untrusted;
pub use name::SegmentName;
pub use options::{Durability, LogOptions, RecoveryMode, Wait, WriteOptions};
#[cfg(any(test, feature = "conformance"))]
pub use planted::Planted;
pub use record::{LogId, Lsn, NewRecord, Record, RecordHandle, RecordKind};
pub use recovery::Recovery;
pub use registry::{LogFactory, LogRegistry, LogRole, LogSettings};
pub use verdict::Verdict;
