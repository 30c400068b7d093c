#![doc = include_str!("../README.md")]

/// What a program that uses a store needs in scope: the traits.
pub mod prelude {
    pub use crate::store::{ReadStore, StateStoreProvider, WriteStore};
}

// The floors of docs/architecture.md, from the ground up. Imports only ever point down.
mod budget;
mod bytes;
mod checksum;
mod clock;
mod codec;
mod entry;
mod error;
mod ranges;
mod version;

pub mod fs;

pub mod backend;
pub mod catalog;
pub mod checkpoint;
pub mod run;
pub mod wal;

mod overlay;

pub mod store;

pub mod maintenance;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

pub use backend::{Backend, BackendOptions};
pub use bytes::Bytes;
pub use checkpoint::{Checkpoint, LocalCheckpoint};
pub use clock::{Clock, SystemClock};
pub use entry::{
    Families, FamilyId, MAX_FAMILIES, MAX_KEY_BYTES, MAX_METADATA_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES, Name,
    StateStoreId,
};
pub use error::{Advice, Error, ErrorKind, Result};
pub use maintenance::{Maintenance, MaintenanceOptions};
pub use run::{Access, PageCodec};
pub use store::{
    ChangeEvent, Changed, Changes, Difference, Differences, Entry, Exported, ExportedFile, FileInfo, FileRole, History,
    Inventory, MemoryProvider, ReadStore, Residency, Retired, RocksDbProvider, Scan, StateStoreProvider, StoreOptions,
    SurveyedVersion, Transaction, Upkeep, UpkeepState, Verified, VersionInfo, VersionSurvey, View, WriteStore,
};
pub use version::{Epoch, IdSource, Mark, RunId, RunKind, StoreUid, Version, VersionId};
