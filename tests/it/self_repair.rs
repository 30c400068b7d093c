//! Damage, and who must not make it worse: retirements, repairs side by side, openings, tasks that fail.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::checkpoint::PendingFile;
use alluvium::fs::{DirEntry, ReadFile, SimDisk};
use alluvium::maintenance::VersionSpan;
use alluvium::prelude::*;
use alluvium::{
    Checkpoint, Clock, ErrorKind, IdSource, LocalCheckpoint, Result, RocksDbProvider, StoreOptions, Version,
};

use super::care::*;

/// A bit of the first page of a snapshot, and of a delta.
const IN_SNAPSHOT: u64 = 8 * 4_200;
const IN_DELTA: u64 = 8 * 200;

fn put(provider: &RocksDbProvider, version: u64, key: u64, bytes: usize) {
    let mut batch = provider.begin(Version(version - 1)).unwrap();
    let value = vec![u8::try_from(version % 251).unwrap(); bytes];
    batch.put(FAMILY, &key.to_be_bytes(), &value).unwrap();
    batch.put(FAMILY, b"newest", &version.to_be_bytes()).unwrap();
    assert_eq!(batch.commit().unwrap(), Version(version));
}

/// A hundred keys of a kilobyte, and a snapshot of them.
fn with_a_snapshot(disk: &SimDisk) -> PathBuf {
    let provider = open(disk, manual());
    (1..=20).for_each(|version| put(&provider, version, version, 1_000));
    provider.snapshot().unwrap();
    files(disk, ".snapshot").pop().unwrap()
}

fn newest(store: &impl ReadStore) -> Result<u64> {
    let entries: Result<BTreeMap<_, _>> = store
        .scan(FAMILY)?
        .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
        .take(10_000)
        .collect();
    Ok(u64::from_be_bytes(entries?[b"newest".as_slice()].as_slice().try_into().unwrap()))
}

fn delta(disk: &SimDisk, version: u64) -> PathBuf {
    let single = format!("/{version:020}.");
    files(disk, ".delta").into_iter().find(|path| path.to_string_lossy().contains(&single)).unwrap()
}

/// A store in the care of a background that has its turns when it is told to.
struct Job {
    provider: RocksDbProvider,
    index: SimIndex,
    clock: Arc<ByHand>,
}

impl Job {
    fn start(on: impl Into<Arc<dyn Checkpoint>>, retain: usize) -> Self {
        let (index, clock) = (SimIndex::from_image(&IndexImage::default()), Arc::new(ByHand::default()));
        let by_hand: Arc<dyn Clock> = Arc::<ByHand>::clone(&clock);
        let options = StoreOptions::default().retain_versions(retain).unwrap();
        let provider =
            RocksDbProvider::open_with(index.backend(), on, id(), options, IdSource::seeded(1), by_hand).unwrap();
        Self { provider, index, clock }
    }

    /// Commits up to `last`, one every `millis`, each with a turn of the background after it.
    fn run(&self, last: u64, millis: u64) {
        for version in self.provider.latest().unwrap().0 + 1..=last {
            put(&self.provider, version, 1_000 + version % 1_500, 4_000);
            self.index.run_pending();
            self.clock.0.fetch_add(millis, Ordering::Relaxed);
        }
    }
}

#[test]
fn no_version_that_can_be_read_is_given_up_for_one_that_cannot() {
    let disk = SimDisk::new(1);
    with_a_snapshot(&disk);
    let provider = open(&disk, manual());
    (21..=60).for_each(|version| put(&provider, version, version, 10));
    drop(provider);
    disk.flip_bit(delta(&disk, 55), IN_DELTA).unwrap();
    let before = disk.files();
    for refused in [maintenance(&disk, 5).retire(GO_ON), maintenance(&disk, 5).retirable(GO_ON)] {
        let error = refused.unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("no version is given up"), "{error}");
    }
    assert_eq!(disk.files(), before);
    let provider = open(&disk, manual().open_at(Version(54)));
    assert_eq!(newest(&provider.begin(Version(54)).unwrap()).unwrap(), 54);
}

#[test]
fn a_job_that_runs_on_over_damage_that_it_does_not_read_keeps_what_can_be_read() {
    let disk = SimDisk::new(2);
    with_a_snapshot(&disk);
    let job = Job::start(checkpoint(&disk), 5);
    job.run(30, 100);
    disk.flip_bit(delta(&disk, 29), IN_DELTA).unwrap();
    job.run(140, 100);
    assert!(job.provider.upkeep().tasks_failed > 0, "{:?}", job.provider.upkeep());
    drop(job);
    let repaired = maintenance(&disk, 5).repair(GO_ON).unwrap();
    let readable = repaired.readable.first().copied();
    assert!(readable.is_some_and(|span| span.last >= Version(28)), "{repaired:?}");
    open(&disk, manual().open_at(Version(28))).begin(Version(28)).unwrap();
}

#[test]
fn what_goes_for_the_sake_of_a_run_below_a_claim_is_proven_too() {
    let disk = SimDisk::new(3);
    let first = open(&disk, manual());
    (1..=40).for_each(|version| put(&first, version, version, 10));
    first.snapshot().unwrap();
    disk.flip_bit(files(&disk, ".snapshot").pop().unwrap(), 8 * 4_100).unwrap();
    let late = open(&disk, manual().open_at(Version(10)));
    let live = open(&disk, manual());
    let mut batch = late.begin(Version(10)).unwrap();
    batch.put(FAMILY, b"late", b"x").unwrap();
    assert!(matches!(batch.commit().unwrap_err().kind(), ErrorKind::Fenced { .. }));
    // What was published all the same is the head for now, and `live` has claimed on the lineage that it left.
    maintenance(&disk, 5).retire(GO_ON).unwrap();
    put(&live, 41, 41, 10);
    drop((first, late, live));
    assert_eq!(maintenance(&disk, 100).repair(GO_ON).unwrap().lost, []);
    assert_eq!(newest(&open(&disk, manual()).read_at(Version(41)).unwrap()).unwrap(), 41);
}

#[test]
fn what_another_process_has_repaired_is_found_mended_without_a_restart() {
    let disk = SimDisk::new(4);
    let snapshot = with_a_snapshot(&disk);
    disk.flip_bit(&snapshot, IN_SNAPSHOT).unwrap();
    let job = Job::start(checkpoint(&disk), 5);
    assert_eq!(maintenance(&disk, 5).repair(GO_ON).unwrap().remade.len(), 1);
    newest(&job.provider.begin(Version(20)).unwrap()).unwrap_err();
    job.index.run_pending();
    assert_eq!(newest(&job.provider.begin(Version(20)).unwrap()).unwrap(), 20);
    assert_eq!(newest(&job.provider.read_at(Version(20)).unwrap()).unwrap(), 20);
    job.run(1_000, 60_000);
    assert_eq!((job.provider.upkeep().tasks_failed, disk.files().len() < 64), (0, true));
}

/// A checkpoint that makes no snapshots.
#[derive(Debug)]
struct NoSnapshots(LocalCheckpoint);

impl Checkpoint for NoSnapshots {
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>> {
        let temporary = if path.ends_with(".snapshot") { "no name for a file" } else { temporary };
        self.0.create(path, temporary)
    }

    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.0.open(path)
    }

    fn length(&self, path: &str) -> Result<Option<u64>> {
        self.0.length(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<DirEntry>> {
        self.0.list(dir)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.0.delete(path)
    }

    fn sync(&self, dir: &str) -> Result<()> {
        self.0.sync(dir)
    }

    fn display_path(&self, path: &str) -> PathBuf {
        self.0.display_path(path)
    }
}

#[test]
fn a_task_that_fails_keeps_no_other_from_being_done() {
    for millis in [100, 60_000] {
        let disk = SimDisk::new(5);
        let on: Arc<dyn Checkpoint> = Arc::new(NoSnapshots(checkpoint(&disk)));
        let job = Job::start(on, 5);
        job.run(1_500, millis);
        let upkeep = job.provider.upkeep();
        assert!(upkeep.tasks_failed > 0 && disk.files().len() < 64, "{} files, {upkeep:?}", disk.files().len());
    }
}

#[test]
fn damage_that_maintenance_itself_meets_is_mended() {
    for millis in [1_000, 60_000] {
        let disk = SimDisk::new(6);
        let snapshot = with_a_snapshot(&disk);
        disk.flip_bit(&snapshot, IN_SNAPSHOT).unwrap();
        let job = Job::start(checkpoint(&disk), 2_000);
        job.run(1_500, millis);
        let found = maintenance(&disk, 2_000).verify(GO_ON).unwrap();
        assert_eq!((found.damaged.len(), found.lost.len()), (0, 0), "{:?}", job.provider.upkeep());
    }
    let disk = SimDisk::new(7);
    let snapshot = with_a_snapshot(&disk);
    let provider = open(&disk, manual());
    (21..=200).for_each(|version| put(&provider, version, version, 10_000));
    disk.flip_bit(&snapshot, IN_SNAPSHOT).unwrap();
    maintenance(&disk, 5).maintain(GO_ON).unwrap();
    assert_eq!(maintenance(&disk, 5).verify(GO_ON).unwrap().damaged, []);
    assert!(disk.files().len() < 64, "{} files", disk.files().len());
}

#[test]
fn an_opening_leaves_a_repair_that_is_at_work_its_file() {
    let disk = SimDisk::new(8);
    let snapshot = with_a_snapshot(&disk);
    disk.flip_bit(&snapshot, IN_SNAPSHOT).unwrap();
    let opened = Mutex::new(None);
    let is_writing = || disk.files().iter().any(|path| path.to_string_lossy().contains("/.tmp-"));
    let repaired = maintenance(&disk, 100).repair(&|_| {
        if is_writing() {
            opened.lock().unwrap().get_or_insert_with(|| {
                let provider = open(&disk, manual());
                put(&provider, 21, 21, 10);
            });
        }
        ControlFlow::Continue(())
    });
    let remade: Vec<PathBuf> = repaired.unwrap().remade.into_iter().map(|(file, _)| file).collect();
    assert_eq!(remade, [snapshot]);
    assert!(opened.into_inner().unwrap().is_some());
}

#[test]
fn an_opening_that_catches_up_does_so_at_its_own_pace() {
    let disk = SimDisk::new(9);
    let provider = open(&disk, manual());
    (1..=400).for_each(|version| put(&provider, version, version, 10_000));
    drop(provider);
    let slow = StoreOptions::default().retain_versions(5).unwrap().upkeep_pace(NonZeroU64::MIN);
    let index = SimIndex::from_image(&IndexImage::default());
    // At a byte a second it would take weeks.
    let provider = RocksDbProvider::open(index.backend(), checkpoint(&disk), id(), slow).unwrap();
    assert!(disk.files().len() < 100, "{} files", disk.files().len());
    assert_eq!(newest(&provider.begin(Version(400)).unwrap()).unwrap(), 400);
}

#[test]
fn where_a_fork_is_damaged_everything_below_it_is_told_to_be_lost() {
    let disk = SimDisk::new(10);
    for epoch in 0..3 {
        let provider = open(&disk, manual());
        (epoch * 10 + 1..=epoch * 10 + 10).for_each(|version| put(&provider, version, version, 10));
    }
    disk.flip_bit(files(&disk, "forks/00000000000000000003").pop().unwrap(), 300).unwrap();
    let found = maintenance(&disk, 100).verify(GO_ON).unwrap();
    assert_eq!(found.lost, [VersionSpan { first: Version(1), last: Version(30) }]);
    assert_eq!(found.damaged.len(), 1);
}

#[test]
fn damage_where_nobody_looks_costs_no_version() {
    let disk = SimDisk::new(11);
    let provider = open(&disk, manual());
    (1..=20).for_each(|version| put(&provider, version, version, 10));
    provider.snapshot().unwrap();
    drop(provider);
    let maintainer = maintenance(&disk, 1);
    maintainer.maintain(GO_ON).unwrap();
    disk.flip_bit(files(&disk, ".snapshot").pop().unwrap(), 8 * 3_000).unwrap(); // the padding before the first page
    let found = maintainer.verify(GO_ON).unwrap();
    assert_eq!((found.damaged.len(), found.lost), (1, Vec::new()));
    let repaired = maintainer.repair(GO_ON).unwrap();
    assert_eq!((repaired.irreparable.len(), repaired.lost.len()), (1, 0), "nothing else holds it");
    assert_eq!(repaired.readable, [VersionSpan { first: Version(20), last: Version(20) }]);
    assert!(repaired.into_result().is_err());
    let provider = open(&disk, manual());
    put(&provider, 21, 21, 10);
    provider.snapshot().unwrap();
    maintainer.maintain(GO_ON).unwrap();
    assert_eq!(maintainer.verify(GO_ON).unwrap().damaged, []);
    assert_eq!(newest(&provider.begin(Version(21)).unwrap()).unwrap(), 21);
}
