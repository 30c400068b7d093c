//! What the tests of maintenance share: a store on a simulated disk, those who look after it, and time that is moved by hand.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium::fs::SimDisk;
use alluvium::{
    Backend, Clock, FamilyId, LocalCheckpoint, Maintenance, MaintenanceOptions, RocksDbProvider, StateStoreId,
    StoreOptions, Upkeep,
};

pub(super) const FAMILY: FamilyId = FamilyId::DEFAULT;
pub(super) const GO_ON: &(dyn Fn(u64) -> ControlFlow<()> + Sync) = &|_| ControlFlow::Continue(());

pub(super) fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

pub(super) fn checkpoint(disk: &SimDisk) -> LocalCheckpoint {
    LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap()
}

pub(super) fn manual() -> StoreOptions {
    StoreOptions::default().upkeep(Upkeep::Manual)
}

pub(super) fn open(disk: &SimDisk, options: StoreOptions) -> RocksDbProvider {
    RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint(disk), id(), options).unwrap()
}

pub(super) fn maintenance(disk: &SimDisk, retain: usize) -> Maintenance {
    Maintenance::on(checkpoint(disk), id(), MaintenanceOptions::default().retain_versions(retain).unwrap())
}

pub(super) fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

/// Waits for what other threads bring about; whether it came.
pub(super) fn comes(is_so: impl Fn() -> bool) -> bool {
    let mut patience = 50_000_000_u64; // minutes
    while !is_so() && patience > 0 {
        patience -= 1;
        std::thread::yield_now();
    }
    patience > 0
}

/// Time that is moved by hand.
#[derive(Debug, Default)]
pub(super) struct ByHand(pub(super) AtomicU64);

impl Clock for ByHand {
    fn wall_ms(&self) -> u64 {
        0
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
