//! The checkpoint: the durable home of the runs, behind a trait.
//!
//! ```text
//!   create ─► append … ─► publish      a file appears at its path whole and durable, or not at all; one winner
//!   list · open · delete · sync        what is there; read it in place; let it go
//! ```
//!
//! Promises:
//! - **order**: a listing shows every file that was published before it began;
//! - **durability**: a published file survives a crash, with every directory above it; a file found in a listing does so once
//!   [`Checkpoint::sync`] of its directory has returned, since its publisher may have died before its own sync;
//! - **memory**: nothing grows with the number of files.
//!
//! No file is ever overwritten. What the names mean is not known here: `docs/formats/checkpoint.md` says it, and the
//! catalogue reads them. [`LocalCheckpoint`] is a local directory; others plug in behind [`Checkpoint`].

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
mod local;

pub use contract::{Checkpoint, MAX_COMPONENT_BYTES, MAX_PATH_BYTES, PendingFile, check_component, check_path};
pub use local::LocalCheckpoint;
