//! Alluvium: a versioned, memory-bounded state store for stream jobs.

// The floors of docs/architecture.md, from the ground up. Imports only ever point down.
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

mod overlay;

pub mod store;

pub use bytes::Bytes;
pub use clock::{Clock, SystemClock};
pub use entry::{FamilyId, Families, Name, StateStoreId};
pub use error::{Advice, Error, ErrorKind, Result};
pub use version::{Epoch, IdSource, Mark, RunId, StoreUid, Version, VersionId};
