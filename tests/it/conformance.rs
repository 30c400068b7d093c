//! The providers that ship, held against the public suite.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use alluvium::prelude::*;
use alluvium::store::conformance::ProviderFactory;
use alluvium::{
    Backend, Checkpoint, LocalCheckpoint, MemoryProvider, Residency, Result, RocksDbProvider, StateStoreId,
};
use alluvium::{StoreOptions, Version};

fn options() -> StoreOptions {
    StoreOptions::default().busy_timeout(Duration::from_millis(30))
}

/// Everything in the heap; no local state.
struct InMemory;

impl ProviderFactory for InMemory {
    type Provider = MemoryProvider;

    fn open(&self, checkpoint: Arc<dyn Checkpoint>, id: StateStoreId) -> Result<MemoryProvider> {
        MemoryProvider::open(checkpoint, id, options())
    }

    fn elsewhere(&self) -> Self {
        Self
    }
}

/// One backend for all its providers, as a process has.
struct Indexed {
    residency: Residency,
    make: fn() -> Local,
    local: Mutex<Local>,
}

/// A backend and, where it has one, the work directory that goes with it.
struct Local {
    backend: Backend,
    _work_dir: Option<tempfile::TempDir>,
}

impl Local {
    fn in_heap() -> Self {
        Self { backend: Backend::in_memory().unwrap(), _work_dir: None }
    }

    #[cfg(feature = "rocksdb")]
    fn on_rocksdb() -> Self {
        let work_dir = tempfile::tempdir().unwrap();
        // A directory of its own below: what has no marker is not ours.
        let backend = Backend::open(work_dir.path().join("work"), alluvium::BackendOptions::default()).unwrap();
        Self { backend, _work_dir: Some(work_dir) }
    }
}

impl Indexed {
    fn new(residency: Residency, make: fn() -> Local) -> Self {
        Self { residency, make, local: Mutex::new(make()) }
    }
}

impl ProviderFactory for Indexed {
    type Provider = RocksDbProvider;

    fn open(&self, checkpoint: Arc<dyn Checkpoint>, id: StateStoreId) -> Result<RocksDbProvider> {
        let backend = self.local.lock().unwrap().backend.clone();
        RocksDbProvider::open(&backend, checkpoint, id, options().residency(self.residency))
    }

    fn elsewhere(&self) -> Self {
        Self::new(self.residency, self.make)
    }

    fn forget(&self) {
        *self.local.lock().unwrap() = (self.make)();
    }

    fn maintain(&self, provider: &RocksDbProvider, turn: u64) -> Result<()> {
        match turn % 4 {
            0 => provider.collapse().map(drop),
            1 => provider.settle(),
            2 => provider.snapshot().map(drop),
            _ => provider.settle().and_then(|()| self.local.lock().unwrap().backend.flush()),
        }
    }
}

mod memory {
    alluvium::provider_conformance!(super::InMemory);
}

mod mapped_in_heap {
    alluvium::provider_conformance!(super::Indexed::new(super::Residency::Mapped, super::Local::in_heap));
}

mod resident_in_heap {
    alluvium::provider_conformance!(super::Indexed::new(super::Residency::Resident, super::Local::in_heap));
}

#[cfg(feature = "rocksdb")]
mod mapped_on_rocksdb {
    alluvium::provider_conformance!(super::Indexed::new(super::Residency::Mapped, super::Local::on_rocksdb));
}

#[cfg(feature = "rocksdb")]
mod resident_on_rocksdb {
    alluvium::provider_conformance!(super::Indexed::new(super::Residency::Resident, super::Local::on_rocksdb));
}

/// G7 on a real disk, with a real rename.
#[test]
fn a_checkpoint_directory_that_was_renamed_opens_at_its_new_place() {
    let all = tempfile::tempdir().unwrap();
    let id = || StateStoreId::new("op", 0, "state").unwrap();
    let (old, new) = (all.path().join("old"), all.path().join("new"));
    let factory = Indexed::new(Residency::Mapped, Local::in_heap);
    let provider = factory.open(LocalCheckpoint::open(&old).unwrap().into(), id()).unwrap();
    let mut batch = provider.begin(Version(0)).unwrap();
    batch.put(alluvium::FamilyId::DEFAULT, b"k", b"1").unwrap();
    batch.commit_with(b"position").unwrap();
    provider.snapshot().unwrap();
    drop(provider);
    #[expect(clippy::disallowed_methods, reason = "the user's rename, not ours")]
    std::fs::rename(&old, &new).unwrap();
    let provider = factory.open(LocalCheckpoint::open(&new).unwrap().into(), id()).unwrap();
    let view = provider.read_at(Version(1)).unwrap();
    assert_eq!(view.get(alluvium::FamilyId::DEFAULT, b"k").unwrap().unwrap(), b"1");
    assert_eq!(provider.metadata(Version(1)).unwrap(), b"position");
    let batch = provider.begin(Version(1)).unwrap();
    assert_eq!(batch.commit().unwrap(), Version(2));
    assert!(!old.exists());
}

/// The index takes in what is committed without being asked, so that reads stay bounded.
#[test]
fn the_tail_stays_short_however_many_commits_follow_each_other() {
    let disk = alluvium::fs::SimDisk::new(3);
    let checkpoint = LocalCheckpoint::on(Arc::new(disk), "/checkpoint").unwrap();
    let options = StoreOptions::default().longest_tail(4).unwrap();
    let id = StateStoreId::new("op", 0, "state").unwrap();
    let provider = RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint, id, options).unwrap();
    for version in 0..100u64 {
        let mut batch = provider.begin(Version(version)).unwrap();
        batch.put(alluvium::FamilyId::DEFAULT, &version.to_be_bytes(), b"1").unwrap();
        batch.commit().unwrap();
        assert!(provider.tail_length() <= 4, "{} deltas wait after version {version}", provider.tail_length());
    }
    let batch = provider.begin(Version(100)).unwrap();
    assert_eq!(batch.scan(alluvium::FamilyId::DEFAULT).unwrap().count(), 100);
}

/// The index keeps stores by name: two of one name in two checkpoints would take each other's generations away.
#[test]
fn stores_of_one_name_in_two_checkpoints_do_not_share_a_backend() {
    let backend = Backend::in_memory().unwrap();
    let id = || StateStoreId::new("op", 0, "state").unwrap();
    let disk = alluvium::fs::SimDisk::new(2);
    let open = |seed| {
        let disk = if seed == 2 { disk.clone() } else { alluvium::fs::SimDisk::new(seed) };
        let checkpoint = LocalCheckpoint::on(Arc::new(disk), "/checkpoint").unwrap();
        RocksDbProvider::open(&backend, checkpoint, id(), StoreOptions::default())
    };
    let first = open(1).unwrap();
    // Somebody else writes the second one, and must not be fenced by an open that is refused.
    let second = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    let elsewhere =
        RocksDbProvider::open(&Backend::in_memory().unwrap(), second, id(), StoreOptions::default()).unwrap();
    let error = open(2).unwrap_err();
    elsewhere.begin(Version(0)).unwrap().commit().unwrap();
    drop(elsewhere);
    assert_eq!(*error.kind(), alluvium::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("op/0/state"), "{error}");
    drop(first);
    open(2).unwrap();
}
