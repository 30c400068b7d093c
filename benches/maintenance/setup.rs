//! Stores to measure: opening them, filling them, and counting what is written for them.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium::{
    Access, Backend, BackendOptions, Clock, FamilyId, LocalCheckpoint, ReadStore, Residency, RocksDbProvider,
    StateStoreId, StateStoreProvider, StoreOptions, SystemClock, Upkeep, Version, WriteStore,
};

use crate::Failure;
use crate::measure::workload::{BATCH_KEYS, Key, Workload, key, updates, value};

const LIMIT_BYTES: usize = 128 << 20;
const LOAD_KEYS: usize = 10 * BATCH_KEYS;

/// A store on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.dir.join("checkpoint")
    }

    /// Where the runs are.
    pub(crate) fn files(&self) -> PathBuf {
        self.checkpoint().join("state/bench/0/maintenance")
    }

    pub(crate) fn lose_work_directory(&self) -> Result<(), Failure> {
        let work = self.dir.join("work");
        if work.exists() {
            fs::remove_dir_all(work)?;
        }
        Ok(())
    }

    pub(crate) fn open(&self, options: StoreOptions) -> Result<RocksDbProvider, Failure> {
        let backend = Backend::open(self.dir.join("work"), BackendOptions::default().memory_limit(LIMIT_BYTES))?;
        Ok(RocksDbProvider::open(&backend, LocalCheckpoint::open(self.checkpoint())?, store()?, options)?)
    }

    /// Names and sizes of all files but forks.
    pub(crate) fn sizes(&self) -> Result<HashMap<String, u64>, Failure> {
        let mut sizes = HashMap::new();
        for entry in fs::read_dir(self.files())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(".tmp-")
                && let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                sizes.insert(name, metadata.len());
            }
        }
        Ok(sizes)
    }
}

pub(crate) fn store() -> Result<StateStoreId, Failure> {
    Ok(StateStoreId::new("bench", 0, "maintenance")?)
}

/// Puts every key once, and takes a snapshot.
pub(crate) fn load(provider: &RocksDbProvider, keys: u64) -> Result<(), Failure> {
    let mut numbers = (0..keys).peekable();
    while numbers.peek().is_some() {
        let mut batch = provider.begin(provider.latest()?)?;
        for number in numbers.by_ref().take(LOAD_KEYS) {
            let key = key(number);
            batch.put(FamilyId::DEFAULT, &key, &value(&key, 0))?;
        }
        batch.commit()?;
    }
    provider.snapshot()?;
    Ok(())
}

/// Reads and writes the keys of a batch; how long the commit took.
pub(crate) fn batch(provider: &RocksDbProvider, picks: &[Key], clock: &SystemClock) -> Result<Duration, Failure> {
    let mut batch = provider.begin(provider.latest()?)?;
    for key in picks {
        let count = get(&batch, key)?;
        batch.put(FamilyId::DEFAULT, key, &value(key, count + 1))?;
    }
    let began = clock.elapsed();
    batch.commit()?;
    Ok(clock.elapsed().saturating_sub(began))
}

/// How often a key has been updated.
pub(crate) fn get(store: &impl ReadStore, key: &Key) -> Result<u64, Failure> {
    let stored = store.get(FamilyId::DEFAULT, key)?;
    Ok(stored.and_then(|stored| updates(key, &stored)).ok_or("a key has lost its value")?)
}

/// The time until one key of the newest version has been read, for who comes with nothing but the checkpoint.
pub(crate) fn open_cold(place: &Place, options: StoreOptions, clock: &SystemClock) -> Result<Duration, Failure> {
    place.lose_work_directory()?;
    // Making the index's own directory is not what is measured.
    let backend = Backend::open(place.dir.join("work"), BackendOptions::default().memory_limit(LIMIT_BYTES))?;
    let began = clock.elapsed();
    let provider = RocksDbProvider::open(&backend, LocalCheckpoint::open(place.checkpoint())?, store()?, options)?;
    let head = provider.begin(provider.latest()?)?;
    head.get(FamilyId::DEFAULT, &key(1))?;
    Ok(clock.elapsed().saturating_sub(began))
}

/// The bytes that this process asks files for while it opens the store with positioned reads and reads one key.
pub(crate) fn bytes_to_open(place: &Place) -> Result<u64, Failure> {
    place.lose_work_directory()?;
    let backend = Backend::in_memory()?;
    let options = StoreOptions::default().access(Access::Positioned);
    let before = bytes_read()?;
    let provider = RocksDbProvider::open(&backend, LocalCheckpoint::open(place.checkpoint())?, store()?, options)?;
    provider.begin(provider.latest()?)?.get(FamilyId::DEFAULT, &key(1))?;
    Ok(bytes_read()?.saturating_sub(before))
}

fn bytes_read() -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).ok_or("no rchar in /proc/self/io")?;
    Ok(line.trim().parse()?)
}

/// The time to have the state `back` versions ago ready to write on, and one key of it read.
pub(crate) fn roll_back(provider: &RocksDbProvider, back: u64, clock: &SystemClock) -> Result<Duration, Failure> {
    let head = provider.latest()?;
    let to = Version(head.0.saturating_sub(back));
    let began = clock.elapsed();
    let batch = provider.begin(to)?;
    batch.get(FamilyId::DEFAULT, &key(1))?;
    let took = clock.elapsed().saturating_sub(began);
    batch.abort();
    Ok(took)
}

/// The time of a restore into the index from one snapshot, and that of copying the file of this snapshot and syncing the copy.
pub(crate) fn restore_and_copy(place: &Place, clock: &SystemClock) -> Result<(Duration, Duration), Failure> {
    let provider = place.open(StoreOptions::default().upkeep(Upkeep::Manual))?;
    let version = provider.snapshot()?;
    drop(provider);
    let restore = open_cold(place, StoreOptions::default().residency(Residency::Resident), clock)?;
    place.lose_work_directory()?;
    let prefix = format!("{:020}.", version.0);
    let is_it = |name: &&String| name.starts_with(&prefix) && name.ends_with(".snapshot");
    let sizes = place.sizes()?;
    let name = sizes.keys().find(is_it).ok_or("the snapshot is not there")?;
    let copies = place.dir.join("copies");
    fs::create_dir_all(&copies)?;
    let began = clock.elapsed();
    let mut from = fs::File::open(place.files().join(name))?;
    let mut to = fs::File::options().write(true).create_new(true).open(copies.join(name))?;
    // As `cat` does it: through a buffer.
    let mut buffer = vec![0; 128 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => break,
            count => to.write_all(buffer.get(..count).unwrap_or_default())?,
        }
    }
    to.sync_all()?;
    let took = clock.elapsed().saturating_sub(began);
    fs::remove_dir_all(copies)?;
    Ok((restore, took))
}

/// Picks that no batch of a measurement has.
pub(crate) fn picks(keys: u64, number: u64) -> Vec<Key> {
    Workload { keys, seed: 1 }.picks(number)
}
