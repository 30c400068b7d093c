//! The state store: a provider that owns one store, its transactions and its readers.
//!
//! ```text
//! begin(v) ─► claim if need be ─► layers of v        overlay ─► tail ─► generation ─► base
//! commit   ─► delta: durable, visible, fenced? ─► acknowledged ─► on top of the tail
//! folding  ─► the oldest delta of the tail into the generation, in the background
//! snapshot ─► runs merged into one file ─► the base moves up, the old generation is dropped
//! read_at  ─► the runs of v, straight from the checkpoint
//! history  ─► changes, differences, export: without a writer, from the checkpoint alone
//! ```
//!
//! What it promises: what is read after a crash is the state at some version from the last acknowledged to the last
//! attempted, whole, or a typed error that names the file. One transaction at a time; readers at any time. Opening,
//! retrying, rolling back and taking over cost the number of files, never what is in them.
//!
//! What it does not do: decide when to collapse, to take a snapshot or to retire, which is `maintenance/`.

mod below;
mod caretaker;
mod changes;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod core;
mod difference;
mod directory;
mod export;
mod fold;
mod history;
mod inventory;
mod layers;
mod load;
mod memory;
mod open_chain;
mod opening;
mod options;
#[cfg(feature = "conformance")]
mod planted;
mod proven;
mod provider;
mod rewrite;
mod scan;
mod slot;
mod stats;
mod tenancy;
mod transaction;
mod unpublished;
mod upkeep;
mod versions;
mod view;

pub(crate) use caretaker::Caretaker;
pub use caretaker::UpkeepState;
pub use changes::{ChangeEvent, Changed, Changes};
pub use contract::{ReadStore, StateStoreProvider, VersionInfo, WriteStore};
pub(crate) use core::Core;
pub use difference::{Difference, Differences};
pub(crate) use directory::{DirectoryOptions, MOST_ATTEMPTS, StoreDirectory, is_about_the_listing};
pub use export::{Exported, ExportedFile};
pub use history::History;
pub use inventory::{FileInfo, FileRole, Inventory};
pub use memory::MemoryProvider;
pub(crate) use opening::is_about_the_file;
#[doc(hidden)]
#[cfg(feature = "conformance")]
pub use options::Planted;
pub use options::{Progress, Residency, StoreOptions, Upkeep};
pub use provider::RocksDbProvider;
pub(crate) use rewrite::{Observer, Prepared, collapse, prepare_collapsed, prepare_snapshot, write_snapshot};
pub use scan::{Entry, Scan};
pub use stats::{FamilyStats, Histogram, LargeEntry, Stats};
pub use transaction::Transaction;
pub(crate) use upkeep::{DamagedRun, Retained, readable_and_lost, retirable, retire, verify};
pub use upkeep::{Retired, Verified, VersionSpan};
pub use versions::{SurveyedVersion, VersionSurvey};
pub use view::View;
