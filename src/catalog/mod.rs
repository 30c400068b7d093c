//! The catalogue: from a listing of a store's directory to "which runs make version *v*".
//!
//! ```text
//! Listing ─► head ─► lineage ─► chains ─► Catalog ─► Claim (open) · Chain (load) · Retirement (clean up)
//! ```
//!
//! It is a pure function: no I/O, no clock, no randomness. Every listing that any interleaving of writers, zombies,
//! crashes, collapses and retirement can leave has one answer, or a typed error that says what is missing.
//!
//! Promises:
//! - the **head** is the newest version of the highest epoch that has runs; the **lineage** goes from it down each
//!   epoch to its fork's base; a run counts if the lineage owns the version it makes, and is void otherwise;
//! - a **chain** starts at the newest usable snapshot and has the fewest runs above it;
//! - **retirement** deletes only what no retained version, pin or live claim can reach;
//! - the **protocol** of opening, committing and retiring is here as pure functions, which a test checks in all
//!   interleavings of three processes.
//!
//! Memory is a few dozen bytes a file; time is O(files) to make a catalogue and O(runs on the way) for a chain.
//! It reads no file: whether a run's content is whole is for the reader to say, who passes it back as unusable.
//!
//! What follows is `docs/formats/checkpoint.md`.
//!
#![doc = include_str!("../../docs/formats/checkpoint.md")]

mod catalogue;
mod chain;
mod fork;
mod lineage;
mod listing;
mod name;
mod protocol;
mod reachable;
mod tiers;

#[cfg(test)]
mod directory;
#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod histories;

pub(crate) use catalogue::Catalog;
pub(crate) use fork::{Fork, ForkRecord, MAX_FORK_BYTES};
pub(crate) use listing::Listing;
pub use name::RunName;
pub(crate) use name::{FORKS, FileName, TemporaryName};
pub(crate) use protocol::{Claim, Confirmation, Wanted, fenced_by};
pub(crate) use reachable::{Deletion, Doomed, Sparing, Tangle};
pub(crate) use tiers::{MERGED_RUNS, next_merge};
