//! Maintenance by the public API: what is planned, done, kept and mended, with and without a provider.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alluvium::backend::{IndexImage, SimIndex};
use alluvium::checkpoint::PendingFile;
use alluvium::fs::sim::{Operation, Persistence};
use alluvium::fs::{DirEntry, ReadFile, SimDisk};
use alluvium::maintenance::{Done, Task, VersionSpan};
use alluvium::prelude::*;
use alluvium::{
    Backend, Checkpoint, Clock, ErrorKind, IdSource, LocalCheckpoint, Maintenance, MaintenanceOptions, Result,
    RocksDbProvider, StoreOptions, Version,
};

use super::care::*;

/// Ten keys of a hundred, one of them removed, the rest new in every version.
fn commit(provider: &RocksDbProvider, version: u64) {
    let mut batch = provider.begin(Version(version - 1)).unwrap();
    for step in 0..10_u64 {
        batch.put(FAMILY, &((version * 7 + step) % 100).to_be_bytes(), &version.to_be_bytes()).unwrap();
    }
    batch.remove(FAMILY, &((version * 3) % 100).to_be_bytes()).unwrap();
    assert_eq!(batch.commit().unwrap(), Version(version));
}

fn model(versions: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    for version in 1..=versions {
        for step in 0..10_u64 {
            map.insert(((version * 7 + step) % 100).to_be_bytes().to_vec(), version.to_be_bytes().to_vec());
        }
        map.remove(((version * 3) % 100).to_be_bytes().as_slice());
    }
    map
}

fn content(store: &impl ReadStore) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let entries = store.scan(FAMILY).unwrap().map(std::result::Result::unwrap);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn check(provider: &RocksDbProvider, versions: impl IntoIterator<Item = u64>) {
    for version in versions {
        assert_eq!(content(&provider.read_at(Version(version)).unwrap()), model(version), "version {version}");
    }
}

/// A store of 25 versions with a snapshot of the twentieth, whose file is named.
fn with_a_snapshot(disk: &SimDisk) -> PathBuf {
    let provider = open(disk, manual());
    (1..=20).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    (21..=25).for_each(|version| commit(&provider, version));
    files(disk, ".snapshot").pop().unwrap()
}

#[test]
fn maintenance_without_a_provider_leaves_few_files_and_every_retained_version() {
    let disk = SimDisk::new(1);
    let provider = open(&disk, manual());
    (1..=400).for_each(|version| commit(&provider, version));
    let maintenance = maintenance(&disk, 10);
    let plan = maintenance.plan().unwrap();
    assert!(plan.tasks.iter().any(|planned| matches!(planned.task, Task::Collapse { .. })), "{plan:?}");
    assert_eq!((plan.open.replayed_deltas, plan.oldest), (400, Version(391)));
    let would = maintenance.retirable(GO_ON).unwrap();
    let before = disk.files();
    assert_eq!(before, disk.files(), "a dry run changes nothing");
    assert!(would.deleted.is_empty(), "nothing makes up for any delta yet: {would:?}");
    let done = maintenance.maintain(GO_ON).unwrap();
    assert!(done.iter().any(|done| matches!(done, Done::Retired(_))), "{done:?}");
    assert!(disk.files().len() < 40, "{} files: {:#?}", disk.files().len(), disk.files());
    assert_eq!(maintenance.plan().unwrap().tasks, []);
    check(&provider, 391..=400);
    let gone = provider.read_at(Version(390)).unwrap_err();
    assert!(matches!(gone.kind(), ErrorKind::VersionNotFound { .. }), "{gone}");
    // The writer never noticed.
    commit(&provider, 401);
    drop(provider);
    let provider = open(&disk, manual());
    assert_eq!(content(&provider.begin(Version(401)).unwrap()), model(401));
    assert!(provider.tail_length() <= 27, "{}", provider.tail_length());
}

#[test]
fn a_dry_run_says_what_a_retirement_then_does() {
    let disk = SimDisk::new(2);
    let provider = open(&disk, manual());
    (1..=30).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    (31..=40).for_each(|version| commit(&provider, version));
    let maintenance = maintenance(&disk, 5);
    let before = disk.files();
    let would = maintenance.retirable(GO_ON).unwrap();
    assert_eq!(disk.files(), before);
    assert!(would.deleted.iter().all(|(_, why)| !why.is_empty()) && would.deleted.len() == 30, "{would:?}");
    assert_eq!(maintenance.retire(GO_ON).unwrap(), would);
    check(&provider, 36..=40);
}

#[test]
fn the_changes_of_more_versions_than_can_be_read_stay_where_that_is_asked_for() {
    let disk = SimDisk::new(3);
    let provider = open(&disk, manual());
    (1..=30).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    (31..=40).for_each(|version| commit(&provider, version));
    let options = MaintenanceOptions::default().retain_versions(2).unwrap().retain_changes(20);
    Maintenance::on(checkpoint(&disk), id(), options).retire(GO_ON).unwrap();
    assert_eq!(files(&disk, ".delta").len(), 20);
    assert_eq!(provider.versions().unwrap().len(), 2);
}

#[test]
fn a_bad_snapshot_is_made_anew_from_what_is_left() {
    let disk = SimDisk::new(4);
    let snapshot = with_a_snapshot(&disk);
    let good = disk.read_file(&snapshot).unwrap();
    disk.flip_bit(&snapshot, 8 * 4_200).unwrap();
    let maintenance = maintenance(&disk, 100);
    assert_eq!(maintenance.verify(GO_ON).unwrap().damaged.len(), 1);
    let repaired = maintenance.repair(GO_ON).unwrap().into_result().unwrap();
    assert_eq!(repaired.remade.len(), 1);
    assert_eq!(repaired.remade[0].0, snapshot);
    assert_eq!(repaired.readable, [VersionSpan { first: Version(1), last: Version(25) }]);
    assert_eq!(maintenance.verify(GO_ON).unwrap().damaged, []);
    let remade = disk.read_file(&snapshot).unwrap();
    assert_eq!(remade.len(), good.len());
    check(&open(&disk, manual()), 1..=25);
}

#[test]
fn a_bad_collapsed_delta_is_made_anew_while_its_parts_are_there_and_reported_when_they_are_not() {
    let disk = SimDisk::new(5);
    let provider = open(&disk, manual());
    (1..=10).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    (11..=20).for_each(|version| commit(&provider, version));
    assert_eq!(provider.collapse().unwrap(), Version(20));
    drop(provider);
    let collapsed = files(&disk, "-00000000000000000020.00000000000000000001.delta").pop().unwrap();
    disk.flip_bit(&collapsed, 8 * 4_200).unwrap();
    let maintenance = maintenance(&disk, 100);
    let without_parts = disk.fork();
    let repaired = maintenance.repair(GO_ON).unwrap();
    assert_eq!((repaired.remade.len(), repaired.irreparable.len()), (1, 0));
    check(&open(&disk, manual()), 1..=20);

    let part = files(&without_parts, "00000000000000000015.00000000000000000001.delta").pop().unwrap();
    alluvium::fs::Disk::remove(&without_parts, &part).unwrap();
    let repaired = self::maintenance(&without_parts, 100).repair(GO_ON).unwrap();
    let span = |first, last| VersionSpan { first: Version(first), last: Version(last) };
    assert_eq!((repaired.lost.clone(), repaired.readable.clone()), (vec![span(15, 20)], vec![span(1, 14)]));
    assert!(without_parts.files().contains(&collapsed), "what cannot be made anew stays");
    let error = repaired.into_result().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { file, .. } if *file == collapsed), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("lost versions: 15 to 20") && text.contains("readable versions: 1 to 14"), "{text}");
}

#[test]
fn a_retirement_lets_nothing_go_for_the_sake_of_a_run_that_cannot_be_opened() {
    let disk = SimDisk::new(6);
    let snapshot = with_a_snapshot(&disk);
    disk.truncate(&snapshot, 100).unwrap();
    let retired = maintenance(&disk, 2).retire(GO_ON).unwrap();
    assert_eq!(retired.deleted, []);
    let provider = open(&disk, manual());
    assert_eq!(provider.passed_over(), [snapshot]);
    check(&provider, 24..=25);
}

#[test]
fn a_retirement_reads_every_page_of_what_others_go_for_the_sake_of() {
    let disk = SimDisk::new(16);
    let snapshot = with_a_snapshot(&disk);
    disk.flip_bit(&snapshot, 8 * 4_200).unwrap();
    let maintenance = maintenance(&disk, 2);
    assert_eq!(maintenance.retire(GO_ON).unwrap().deleted, [], "the snapshot opens, but a page of it is damaged");
    let repaired = maintenance.repair(GO_ON).unwrap().into_result().unwrap();
    assert_eq!(repaired.remade.len(), 1, "its parts were still there");
    assert_eq!(maintenance.retire(GO_ON).unwrap().deleted.len(), 20);
    check(&open(&disk, manual()), 24..=25);
}

#[test]
fn a_file_that_the_medium_does_not_give_back_is_damage_and_is_made_anew() {
    let disk = SimDisk::new(17);
    let provider = open(&disk, manual());
    (1..=20).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    drop(provider);
    let snapshot = files(&disk, ".snapshot").pop().unwrap();
    let maintenance = maintenance(&disk, 100);
    let reads = AtomicU64::new(0);
    // Of the whole verification, the reads in the snapshot, which is the last file.
    for nth in (1..).map(|step| step * 40) {
        disk.fail_at(nth, &[Operation::Read], io::ErrorKind::Other, Persistence::Once);
        let before = disk.faults_fired();
        let verified = maintenance.verify(GO_ON).unwrap();
        if disk.faults_fired() == before {
            break;
        }
        assert_eq!(verified.damaged.len(), 1, "read {nth}");
        reads.fetch_add(1, Ordering::Relaxed);
    }
    assert!(reads.into_inner() > 3);
    disk.clear_faults();
    let bad = disk.clone();
    let repaired = maintenance.repair(&move |bytes| {
        // As the first page of the snapshot has been read, the next cannot be.
        if bytes > 0 && bad.faults_fired() == 0 {
            bad.fail_at(1, &[Operation::Read], io::ErrorKind::Other, Persistence::Once);
        }
        ControlFlow::Continue(())
    });
    let repaired = repaired.unwrap();
    assert!(repaired.remade.iter().all(|(file, _)| *file == snapshot), "{repaired:?}");
    check(&open(&disk, manual()), 1..=20);
}

#[test]
fn what_a_killed_maintainer_has_left_goes_and_what_one_is_writing_stays() {
    let disk = SimDisk::new(18);
    let provider = open(&disk, manual());
    (1..=12).for_each(|version| commit(&provider, version)); // too few to be collapsed
    let temporaries =
        |disk: &SimDisk| disk.files().iter().filter(|path| path.to_string_lossy().contains("/.tmp-")).count();
    let left = Mutex::new(None);
    let maintainer = maintenance(&disk, 100);
    maintainer
        .compact(&|_| {
            assert_eq!(temporaries(&disk), 1);
            let other = maintenance(&disk, 100);
            assert_eq!(other.retirable(GO_ON).unwrap().deleted, [], "somebody is writing it");
            assert_eq!(other.retire(GO_ON).unwrap().deleted, []);
            left.lock().unwrap().get_or_insert_with(|| disk.fork());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((temporaries(&disk), files(&disk, ".snapshot").len()), (0, 1));
    let killed = left.into_inner().unwrap().unwrap();
    assert_eq!(temporaries(&killed), 1);
    let would = maintenance(&killed, 100).retirable(GO_ON).unwrap();
    assert!(would.deleted[0].1.contains("ended before"), "{would:?}");
    let done = maintenance(&killed, 100).maintain(GO_ON).unwrap();
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!(temporaries(&killed), 0);
}

#[test]
fn a_task_that_is_stopped_leaves_nothing_behind() {
    let disk = SimDisk::new(7);
    let provider = open(&disk, manual());
    (1..=50).for_each(|version| commit(&provider, version));
    let before = disk.files();
    let stopped = maintenance(&disk, 10).compact(&|_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(stopped.kind(), ErrorKind::Cancelled), "{stopped}");
    assert_eq!(disk.files(), before);
    assert_eq!(maintenance(&disk, 10).compact(GO_ON).unwrap(), Version(50));
}

#[test]
fn a_store_that_is_not_there_has_nothing_to_do() {
    let disk = SimDisk::new(8);
    let maintenance = maintenance(&disk, 10);
    assert_eq!(maintenance.plan().unwrap().tasks, []);
    assert_eq!(maintenance.maintain(GO_ON).unwrap(), []);
    assert_eq!(maintenance.retire(GO_ON).unwrap().deleted, []);
    assert_eq!(maintenance.compact(GO_ON).unwrap(), Version::EMPTY);
    assert_eq!(maintenance.repair(GO_ON).unwrap().runs, 0);
    assert_eq!(disk.files(), Vec::<PathBuf>::new());
}

/// A checkpoint that refuses to make anything but single deltas, forks and announcements while it is told to.
#[derive(Debug)]
struct Refusing {
    inner: LocalCheckpoint,
    refuses: Arc<AtomicBool>,
    tried: Arc<AtomicU64>,
}

impl Checkpoint for Refusing {
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>> {
        let name = path.rsplit('/').next().unwrap();
        if self.refuses.load(Ordering::Relaxed) && (name.contains('-') || name.contains("snapshot")) {
            self.tried.fetch_add(1, Ordering::Relaxed);
            return self.inner.create(path, "no name for a file");
        }
        self.inner.create(path, temporary)
    }

    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn length(&self, path: &str) -> Result<Option<u64>> {
        self.inner.length(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path)
    }

    fn sync(&self, dir: &str) -> Result<()> {
        self.inner.sync(dir)
    }

    fn display_path(&self, path: &str) -> PathBuf {
        self.inner.display_path(path)
    }
}

#[test]
fn what_fails_in_the_background_holds_up_no_commit_rests_for_a_while_shows_and_leaves_nothing_behind() {
    let disk = SimDisk::new(9);
    let (refuses, tried) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let refusing = Refusing { inner: checkpoint(&disk), refuses: Arc::clone(&refuses), tried: Arc::clone(&tried) };
    let refusing: Arc<dyn Checkpoint> = Arc::new(refusing);
    let clock = Arc::new(ByHand::default());
    let index = SimIndex::from_image(&IndexImage::default());
    let options = StoreOptions::default().retain_versions(5).unwrap();
    let by_hand: Arc<dyn Clock> = Arc::<ByHand>::clone(&clock);
    let provider =
        RocksDbProvider::open_with(index.backend(), refusing, id(), options, IdSource::seeded(1), by_hand).unwrap();
    let mut version = 0;
    let mut go_on = |commits: u64| {
        for _ in 0..commits {
            version += 1;
            commit(&provider, version);
            index.run_pending();
        }
        version
    };
    go_on(60);
    assert_eq!((provider.upkeep().tasks_failed, tried.load(Ordering::Relaxed)), (1, 1), "{:?}", provider.upkeep());
    assert!(provider.upkeep().last_error.unwrap().starts_with("a collapse: "));
    for (pause, failures) in [(1_000, 2), (1_000, 2), (1_000, 3), (3_000, 3), (1_000, 4)] {
        clock.0.fetch_add(pause, Ordering::Relaxed);
        go_on(32);
        assert_eq!(provider.upkeep().tasks_failed, failures, "after {pause} ms more");
    }
    let head = go_on(0);
    assert_eq!(files(&disk, ".delta").len() as u64, head, "single deltas and nothing else");
    assert!(disk.files().iter().all(|path| !path.to_string_lossy().contains(".tmp-")));
    refuses.store(false, Ordering::Relaxed);
    clock.0.fetch_add(600_000, Ordering::Relaxed);
    let head = go_on(32);
    let upkeep = provider.upkeep();
    assert!(upkeep.tasks_done > 1 && upkeep.tasks_failed == 4, "{upkeep:?}");
    assert!(upkeep.replayed_deltas < 50 && upkeep.base_runs > 0 && !upkeep.is_behind, "{upkeep:?}");
    assert!(disk.files().len() < 60, "{} files", disk.files().len());
    check(&provider, head - 4..=head);
}

#[test]
fn a_load_that_passes_damage_over_has_it_made_anew_in_the_background() {
    let disk = SimDisk::new(10);
    let snapshot = with_a_snapshot(&disk);
    disk.truncate(&snapshot, 1_000).unwrap();
    let index = SimIndex::from_image(&IndexImage::default());
    let provider = RocksDbProvider::open(index.backend(), checkpoint(&disk), id(), StoreOptions::default()).unwrap();
    assert_eq!(provider.passed_over(), std::slice::from_ref(&snapshot));
    index.run_pending();
    assert_eq!((provider.upkeep().tasks_done, provider.upkeep().tasks_failed), (1, 0));
    assert_eq!(provider.passed_over(), Vec::<PathBuf>::new());
    assert_eq!(provider.verify(|_| ControlFlow::Continue(())).unwrap().damaged, []);
    check(&provider, 1..=25);
}

#[test]
fn damage_that_a_read_meets_is_mended_behind_it_and_what_cannot_be_is_not_read_again_and_again() {
    let disk = SimDisk::new(11);
    let snapshot = with_a_snapshot(&disk);
    disk.flip_bit(&snapshot, 8 * 4_200).unwrap();
    let (index, clock) = (SimIndex::from_image(&IndexImage::default()), Arc::new(ByHand::default()));
    let by_hand: Arc<dyn Clock> = Arc::<ByHand>::clone(&clock);
    let open = || {
        let (checkpoint, ids) = (checkpoint(&disk), IdSource::seeded(1));
        RocksDbProvider::open_with(
            index.backend(),
            checkpoint,
            id(),
            StoreOptions::default(),
            ids,
            Arc::clone(&by_hand),
        )
    };
    let provider = open().unwrap();
    let all = |provider: &RocksDbProvider| {
        let state = provider.begin(Version(25)).unwrap();
        let found: Result<BTreeMap<_, _>> = state
            .scan(FAMILY)
            .unwrap()
            .map(|entry| entry.map(|entry| (entry.key.to_vec(), entry.value.to_vec())))
            .take(1_000)
            .collect();
        found
    };
    let error = all(&provider).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { file, .. } if *file == snapshot), "{error}");
    index.run_pending();
    assert_eq!(all(&provider).unwrap(), model(25), "without being opened again");
    assert_eq!((provider.upkeep().tasks_done, provider.upkeep().tasks_failed), (1, 0));
    drop(provider);

    // Of the newest version's own delta there is no other copy.
    let newest = files(&disk, "/00000000000000000025.00000000000000000001.delta").pop().unwrap();
    disk.flip_bit(&newest, 8 * 200).unwrap();
    let provider = open().unwrap();
    for _ in 0..50 {
        if provider.begin(Version(25)).is_ok() {
            all(&provider).unwrap_err();
        }
        index.run_pending();
    }
    assert_eq!(provider.upkeep().tasks_done, 1, "{:?}", provider.upkeep());
    clock.0.fetch_add(3_600_000, Ordering::Relaxed);
    all(&provider).unwrap_err();
    index.run_pending();
    assert_eq!(provider.upkeep().tasks_done, 2, "{:?}", provider.upkeep());
}

#[test]
fn a_scrub_finds_what_nobody_has_read_and_mends_it_before_anybody_does() {
    let disk = SimDisk::new(12);
    let (index, clock) = (SimIndex::from_image(&IndexImage::default()), Arc::new(ByHand::default()));
    let by_hand: Arc<dyn Clock> = Arc::<ByHand>::clone(&clock);
    let options = StoreOptions::default().scrub_every(Some(Duration::from_hours(1)));
    let checkpoint = checkpoint(&disk);
    let provider =
        RocksDbProvider::open_with(index.backend(), checkpoint, id(), options, IdSource::seeded(1), by_hand).unwrap();
    (1..=20).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    let snapshot = files(&disk, ".snapshot").pop().unwrap();
    disk.flip_bit(&snapshot, 8 * 4_200).unwrap();
    let damaged = || provider.verify(|_| ControlFlow::Continue(())).unwrap().damaged.len();
    (21..=60).for_each(|version| commit(&provider, version));
    index.run_pending();
    assert_eq!(damaged(), 1);
    clock.0.fetch_add(3_600_000, Ordering::Relaxed);
    (61..=100).for_each(|version| commit(&provider, version));
    index.run_pending();
    assert_eq!(damaged(), 0);
    // And before anything is let go for the sake of a file, that is read as well.
    provider.snapshot().unwrap();
    disk.flip_bit(files(&disk, ".snapshot").pop().unwrap(), 8 * 4_200).unwrap();
    assert_eq!(damaged(), 1);
    clock.0.fetch_add(600_000, Ordering::Relaxed);
    (101..=220).for_each(|version| commit(&provider, version));
    index.run_pending();
    assert_eq!(damaged(), 0);
    assert!(files(&disk, "/00000000000000000050.00000000000000000001.delta").is_empty());
    check(&provider, 121..=220);
}

#[test]
fn a_store_whose_newest_version_is_damaged_goes_on_from_an_older_one() {
    let disk = SimDisk::new(19);
    let provider = open(&disk, manual());
    (1..=25).for_each(|version| commit(&provider, version));
    drop(provider);
    disk.truncate(files(&disk, "/00000000000000000025.00000000000000000001.delta").pop().unwrap(), 30).unwrap();
    let before = disk.files();
    let try_at = |options| RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint(&disk), id(), options);
    let error = try_at(manual()).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("open_at"), "{error}");
    assert_eq!(disk.files(), before, "a refusal claims nothing");
    let provider = try_at(manual().open_at(Version(24))).unwrap();
    assert_eq!(content(&provider.begin(Version(24)).unwrap()), model(24));
    commit(&provider, 25);
    drop(provider);
    check(&open(&disk, manual()), 1..=25);
    let beyond = try_at(manual().open_at(Version(26))).unwrap_err();
    assert!(matches!(beyond.kind(), ErrorKind::VersionNotFound { .. }), "{beyond}");
}

#[test]
fn of_two_repairs_at_once_the_later_one_leaves_the_file_that_the_other_made() {
    let disk = SimDisk::new(20);
    let provider = open(&disk, manual());
    (1..=20).for_each(|version| commit(&provider, version));
    provider.snapshot().unwrap();
    drop(provider);
    let snapshot = files(&disk, ".snapshot").pop().unwrap();
    disk.flip_bit(&snapshot, 8 * 4_200).unwrap();
    let all: usize = disk.files().iter().map(|file| disk.read_file(file).unwrap().len()).sum();
    let made = Mutex::new(None);
    let repaired = maintenance(&disk, 100)
        .repair(&|bytes| {
            // Everything has been read, and the new file is being written.
            if bytes > all as u64 {
                made.lock().unwrap().get_or_insert_with(|| {
                    assert_eq!(maintenance(&disk, 100).repair(GO_ON).unwrap().remade.len(), 1);
                    disk.read_file(&snapshot).unwrap()
                });
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((repaired.remade.len(), repaired.irreparable.len()), (1, 0));
    assert_eq!(disk.read_file(&snapshot).unwrap().as_slice(), made.into_inner().unwrap().unwrap().as_slice());
    check(&open(&disk, manual()), 1..=20);
}

#[test]
fn processes_that_end_after_each_commit_leave_a_bounded_number_of_files() {
    let disk = SimDisk::new(21);
    let mut most = 0;
    for version in 1..=1_500 {
        let index = SimIndex::from_image(&IndexImage::default());
        let options = StoreOptions::default().retain_versions(5).unwrap();
        let provider = RocksDbProvider::open(index.backend(), checkpoint(&disk), id(), options).unwrap();
        commit(&provider, version);
        drop(provider); // before the background had a turn
        most = most.max(disk.files().len());
    }
    assert!(most < 600, "{most} files");
    check(&open(&disk, manual()), 1_496..=1_500);
}
