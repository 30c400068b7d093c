//! [`Caretaker`]: who looks after a store's files while a provider has it open, and what there is to tell about it.

use std::fmt::Debug;
use std::sync::Arc;

/// Looks after a store, behind its writer's back; `S` is what it knows of it.
pub(crate) trait Caretaker<S>: Send + Sync + Debug {
    /// Hears of every commit. Returns at once.
    fn committed(&self, store: &Arc<S>);

    /// Hears that the store's upkeep, which somebody else did, is over.
    fn is_free(&self, store: &Arc<S>);

    /// How it is doing.
    fn tell(&self) -> UpkeepState;
}

/// How the maintenance of a store is doing. Counts are since the provider was opened; where nobody looks after the store, only
/// `read_sources` says anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UpkeepState {
    /// The deltas that an open would have had to replay at the last look, and those committed since.
    pub replayed_deltas: u64,
    /// The bytes of those that were there at the last look.
    pub replayed_bytes: u64,
    /// The runs of the base at the last look, as an open would find it.
    pub base_runs: u64,
    /// Their bytes.
    pub base_bytes: u64,
    /// The files and generations that a read of the newest version may touch now.
    pub read_sources: u64,
    /// Tasks that were done.
    pub tasks_done: u64,
    /// Tasks that failed; each is tried again after a pause.
    pub tasks_failed: u64,
    /// Why the last of them failed.
    pub last_error: Option<String>,
    /// Whether something was left undone at the last look that opening or reading suffers from.
    pub is_behind: bool,
}
