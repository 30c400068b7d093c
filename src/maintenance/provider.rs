//! A provider's own maintenance.

use std::ops::ControlFlow;

use super::options::MaintenanceOptions;
use super::plan::{Plan, plan};
use super::repair::{Repaired, repair};
use crate::error::Result;
use crate::store::RocksDbProvider;

impl RocksDbProvider {
    /// Says what is worth doing for the store's files, without doing it.
    ///
    /// # Errors
    /// As [`Maintenance::plan`](super::Maintenance::plan).
    pub fn plan(&self) -> Result<Plan> {
        plan(&self.core().directory.catalog()?, &MaintenanceOptions::from(&self.core().options))
    }

    /// Verifies, and makes every damaged run anew whose content is still there in others.
    ///
    /// # Errors
    /// As [`Maintenance::repair`](super::Maintenance::repair).
    pub fn repair(&self, observe: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Repaired> {
        repair(&self.core().directory, observe)
    }
}
