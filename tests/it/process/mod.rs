//! The proof on a real machine: processes that are killed, stopped, and failed call by call, with RocksDB under them.
//!
//! ```text
//!   model     batches that follow from a number, and what the store must hold after any line of them
//!   writer    the child: this very binary, started again; follows a plan and tells each step on its standard error
//!   child     the parent's side: starts a writer, hears what it tells, kills it, knows which lines may be there then
//!   check     the store holds one of those lines, whole, at every version
//!   games     what happens to a work directory while nobody looks
//!   tests     kill (at random moments) · strace (at every call) · zombies · work directories · bytes read at open
//! ```
//!
//! **Repeating a failure.** Every test prints its seed; `ALLUVIUM_SEED` sets it. Plans, contents and games follow from it; the
//! moment of a kill does not, quite.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests fail by panicking, and print seeds and counts"
)]

mod check;
mod child;
mod games;
mod kill;
mod model;
mod opening;
mod strace;
mod work_dirs;
mod writer;
mod zombies;
