//! [`ProviderFactory`]: what the suite must know of a provider.

use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::entry::StateStoreId;
use crate::error::Result;
use crate::store::contract::StateStoreProvider;

/// Opens the providers that the suite tries. Its functions may be called in any order and from any
/// thread, with several providers open at once.
///
/// The bounds say what threads may do with a provider and with what it hands out.
pub trait ProviderFactory: Sized + Send + Sync {
    /// The provider. What it hands out can be sent to other threads and outlives it.
    type Provider: StateStoreProvider<Transaction: Send + 'static, View: Send + 'static> + Send + Sync + 'static;

    /// Opens the store called `id` in `checkpoint`, over whatever local state this factory keeps.
    ///
    /// A `begin` that finds the writer slot taken must give up within a second or so: the suite waits for it.
    ///
    /// # Errors
    /// What the provider reports.
    fn open(&self, checkpoint: Arc<dyn Checkpoint>, id: StateStoreId) -> Result<Self::Provider>;

    /// A factory of the same kind whose providers share no local state with this one's: another machine. The
    /// suite keeps it as long as its providers.
    #[must_use]
    fn elsewhere(&self) -> Self;

    /// Loses all local state, as a machine that is replaced does; providers that are open need not survive it.
    fn forget(&self) {}

    /// Does one of the provider's own kinds of upkeep; `turn` chooses. For what is not in the trait: collapsing, flushing.
    ///
    /// # Errors
    /// What the provider reports.
    fn maintain(&self, provider: &Self::Provider, turn: u64) -> Result<()> {
        _ = turn; // there is one kind
        provider.snapshot().map(drop)
    }
}

/// One behaviour: its name, and the function that panics where the provider behaves otherwise.
pub struct Behaviour<F> {
    /// The name of the function.
    pub name: &'static str,
    /// The check.
    pub check: fn(&F),
}

impl<F> std::fmt::Debug for Behaviour<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Behaviour").field("name", &self.name).finish_non_exhaustive()
    }
}
