//! Alluvium, in both residencies.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium::{
    Backend, BackendOptions, Clock, FamilyId, LocalCheckpoint, ReadStore, Residency, RocksDbProvider, StateStoreId,
    StateStoreProvider, StoreOptions, SystemClock, Version, WriteStore,
};

use crate::contender::{Contender, Each};
use crate::measure::Failure;
use crate::measure::workload::{BATCH_KEYS, Key, Workload, key, updates, value};

/// Keys of one commit while loading: few commits, so that loading is not what takes the time.
const LOAD_KEYS: usize = 10 * BATCH_KEYS;

/// A provider, and what it takes to open it again.
pub(crate) struct Stored {
    dir: PathBuf,
    limit_bytes: u64,
    residency: Residency,
    /// `None` only while it is being opened again.
    provider: Option<RocksDbProvider>,
    version: Version,
}

impl Stored {
    pub(crate) fn open(dir: PathBuf, limit_bytes: u64, residency: Residency) -> Result<Self, Failure> {
        let provider = open(&dir, limit_bytes, residency)?;
        let version = provider.latest()?;
        Ok(Self { dir, limit_bytes, residency, provider: Some(provider), version })
    }

    fn provider(&self) -> Result<&RocksDbProvider, Failure> {
        self.provider.as_ref().ok_or_else(|| "an earlier open failed".into())
    }
}

fn open(dir: &Path, limit_bytes: u64, residency: Residency) -> Result<RocksDbProvider, Failure> {
    let backend =
        Backend::open(dir.join("work"), BackendOptions::default().memory_limit(usize::try_from(limit_bytes)?))?;
    let checkpoint = LocalCheckpoint::open(dir.join("checkpoint"))?;
    let id = StateStoreId::new("bench", 0, "batch")?;
    Ok(RocksDbProvider::open(&backend, checkpoint, id, StoreOptions::default().residency(residency))?)
}

fn known(store: &impl ReadStore, key: &Key) -> Result<u64, Failure> {
    let stored = store.get(FamilyId::DEFAULT, key)?;
    Ok(stored.and_then(|stored| updates(key, &stored)).ok_or("a key has lost its value")?)
}

impl Contender for Stored {
    fn load(&mut self, workload: &Workload) -> Result<(), Failure> {
        let mut numbers = (0..workload.keys).peekable();
        while numbers.peek().is_some() {
            let mut transaction = self.provider()?.begin(self.version)?;
            for number in numbers.by_ref().take(LOAD_KEYS) {
                let key = key(number);
                transaction.put(FamilyId::DEFAULT, &key, &value(&key, 0))?;
            }
            self.version = transaction.commit()?;
        }
        self.settle()
    }

    fn batch(&mut self, picks: &[Key], clock: &SystemClock) -> Result<Duration, Failure> {
        let mut transaction = self.provider()?.begin(self.version)?;
        for key in picks {
            let count = known(&transaction, key)?;
            transaction.put(FamilyId::DEFAULT, key, &value(key, count + 1))?;
        }
        let began = clock.elapsed();
        self.version = transaction.commit()?;
        Ok(clock.elapsed().saturating_sub(began))
    }

    fn scan(&mut self, each: &mut Each<'_>) -> Result<(), Failure> {
        for entry in self.provider()?.read_at(self.version)?.scan(FamilyId::DEFAULT)? {
            let entry = entry?;
            each(&entry.key, &entry.value)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.provider()?.snapshot()?;
        Ok(())
    }

    fn reopen(&mut self, key: &Key, clock: &SystemClock) -> Result<Option<Duration>, Failure> {
        self.provider = None;
        fs::remove_dir_all(self.dir.join("work"))?;
        let began = clock.elapsed();
        let provider = open(&self.dir, self.limit_bytes, self.residency)?;
        let transaction = provider.begin(self.version)?;
        known(&transaction, key)?;
        let took = clock.elapsed().saturating_sub(began);
        transaction.abort();
        self.provider = Some(provider);
        Ok(Some(took))
    }

    fn roll_back(&mut self, key: &Key, clock: &SystemClock) -> Result<Option<Duration>, Failure> {
        let began = clock.elapsed();
        let transaction = self.provider()?.begin(self.version.previous())?;
        known(&transaction, key)?;
        let took = clock.elapsed().saturating_sub(began);
        transaction.abort();
        Ok(Some(took))
    }
}
