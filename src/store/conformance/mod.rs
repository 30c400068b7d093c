//! The suite that every [`StateStoreProvider`](super::StateStoreProvider) is held against, yours too.
//!
//! ```text
//!   ProviderFactory ── opens your provider over a checkpoint that the suite hands it
//!         │
//!   run(&factory)            every behaviour, one after the other
//!   behaviours()             the same as a list of (name, function)
//!   provider_conformance!    the same as one #[test] each
//! ```
//!
//! Each behaviour is a function of its own, named after what it shows; it starts with an empty store on a simulated disk of
//! its own, and fails by panicking, as a test does. `docs/conformance.md` says which behaviours of the field they stand for.
//!
//! What it asks for: the contract of [`store`](super), nothing of how a provider keeps its state. It needs some 300 MiB of heap,
//! since it tries the longest values. Random histories print their seed when they fail.
//!
//! What it does not do: lose power or kill processes (`tests/crash/` does), or measure anything.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::needless_for_each,
    reason = "a test suite fails by panicking, and its steps read best as one line each"
)]

mod basics;
mod contract;
mod damage;
mod families;
mod faulty;
mod fixture;
mod histories;
mod limits;
mod list;
mod publishing;
mod ranges;
mod scans;
mod transactions;
mod upkeep;
mod versions;
mod writers;

pub use contract::{Behaviour, ProviderFactory};
pub use list::{behaviours, run, run_one};
