//! The stores of a run: one backend, and a provider for each.

use std::sync::Arc;

use alluvium::{Backend, BackendOptions, Checkpoint, LocalCheckpoint, RocksDbProvider, StateStoreId, StoreOptions};

use super::Failure;
use super::meter::Accounts;
use super::plan::Plan;

/// All of them, open.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Goes first: a provider needs its backend.
    pub(crate) providers: Vec<RocksDbProvider>,
    pub(crate) backend: Backend,
}

impl Stores {
    pub(crate) fn open(plan: &Plan) -> Result<Self, Failure> {
        let limit_bytes = usize::try_from(plan.limit_bytes())?;
        let backend = Backend::open(plan.work(), BackendOptions::default().memory_limit(limit_bytes))?;
        let checkpoint: Arc<dyn Checkpoint> = Arc::new(LocalCheckpoint::open(plan.checkpoint())?);
        let open = |store: u64| -> Result<RocksDbProvider, Failure> {
            let id = StateStoreId::new("scale", u32::try_from(store)?, "state")?;
            let options = StoreOptions::default().residency(plan.residency);
            Ok(RocksDbProvider::open(&backend, Arc::clone(&checkpoint), id, options)?)
        };
        let providers = (0..plan.stores).map(open).collect::<Result<_, _>>()?; // as many as the plan says
        Ok(Self { providers, backend })
    }

    /// Whom a meter asks: the backend, for as long as it is open.
    pub(crate) fn accounts(&self) -> Accounts {
        let backend = self.backend.clone();
        Box::new(move || backend.memory().held_bytes)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, &RocksDbProvider)> {
        (0..).zip(&self.providers)
    }
}
