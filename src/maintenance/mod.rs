//! Maintenance: files and bytes stay bounded, old versions go, damage is found and mended.
//!
//! ```text
//! catalogue + sizes ─► plan ─► collapse · snapshot · retire        ─► the same versions in fewer, wider runs
//!                      scrub ─► repair                             ─► damaged runs made anew from what is left
//! ```
//!
//! [`plan`](Maintenance::plan) is a pure function of a listing; acting on it is another matter, and may be done by anybody: by the
//! background thread of a backend (which is what a provider has unless it is told otherwise), by a caller of
//! `provider.maintain()`, or by a [`Maintenance`] in another process that holds no provider, no work directory and no
//! epoch. Any number of them may work at once: a run is made whole or not at all, two runs of one name hold the same, and
//! nothing is deleted that any of them could rely on.
//!
//! What it promises, with *n* commits and *r* retained versions (`plan` says the constants, a test holds them over a million
//! commits): every retained version can be loaded at every moment; there are at most *r* + O(log *n*) files; each changed byte is
//! rewritten O(log *n*) times whatever the size of the state; an open replays a bounded number of deltas.
//!
//! **Readers** pin what they read by holding it open: a view opens every run of its version when it is made, and on a file system
//! of one machine a file that is open or mapped stays whole until its last reader has ended, in whichever process that
//! is (`docs/decisions/0010`). So a retirement asks nobody, and the bytes leave the disk with the last reader.
//!
//! What it does not do: lock anything, hold up a commit, or delete a file because of its age or name.

mod act;
mod background;
mod options;
mod pace;
mod plan;
mod provider;
mod repair;
#[cfg(test)]
mod simulation;
mod standalone;

pub use crate::store::VersionSpan;
pub use options::MaintenanceOptions;
pub use plan::{OpenCost, Plan, Planned, Task, Urgency};
pub use repair::{Irreparable, Repaired};
pub use standalone::{Done, Maintenance};
