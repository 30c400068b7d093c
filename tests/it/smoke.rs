//! The shortest way through the store, on a real disk.

use alluvium::prelude::*;
use alluvium::{Backend, LocalCheckpoint, RocksDbProvider, StateStoreId, StoreOptions, Version};

#[test]
fn what_is_committed_is_read_back_after_a_reopen_and_at_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let id = || StateStoreId::new("op", 0, "state").unwrap();
    #[cfg(feature = "rocksdb")]
    {
        let backend = Backend::open(dir.path().join("work"), alluvium::BackendOptions::default()).unwrap();
        let checkpoint = LocalCheckpoint::open(dir.path().join("other")).unwrap();
        let provider = RocksDbProvider::open(&backend, checkpoint, id(), StoreOptions::default()).unwrap();
        let mut batch = provider.begin(Version(0)).unwrap();
        batch.put(alluvium::FamilyId::DEFAULT, b"k", b"v").unwrap();
        batch.commit().unwrap();
        provider.settle().unwrap();
        assert_eq!(provider.tail_length(), 0);
    }
    for round in 0u64..5 {
        let backend = Backend::in_memory().unwrap();
        let checkpoint = LocalCheckpoint::open(dir.path().join("checkpoint")).unwrap();
        let provider = RocksDbProvider::open(&backend, checkpoint, id(), StoreOptions::default()).unwrap();
        assert_eq!(provider.latest().unwrap(), Version(round * 3));
        for step in 0..3 {
            let mut batch = provider.begin(provider.latest().unwrap()).unwrap();
            let family = batch.create_family("counts").unwrap();
            let version = round * 3 + step + 1;
            batch.put(family, b"newest", &version.to_be_bytes()).unwrap();
            batch.put(family, format!("key {version}").as_bytes(), b"x").unwrap();
            assert_eq!(batch.get(family, b"newest").unwrap().unwrap(), version.to_be_bytes());
            assert_eq!(batch.scan(family).unwrap().count() as u64, version + 1);
            assert_eq!(batch.commit_with(&version.to_be_bytes()).unwrap(), Version(version));
        }
        if round == 2 {
            assert_eq!(provider.snapshot().unwrap(), Version(9));
        }
        for version in 1..=(round + 1) * 3 {
            let view = provider.read_at(Version(version)).unwrap();
            let family = view.family("counts").unwrap();
            assert_eq!(view.get(family, b"newest").unwrap().unwrap(), version.to_be_bytes());
            assert_eq!(view.scan(family).unwrap().count() as u64, version + 1);
            assert_eq!(provider.metadata(Version(version)).unwrap(), version.to_be_bytes());
        }
        assert_eq!(provider.versions().unwrap().len() as u64, (round + 1) * 3);
    }
}
