//! Cases from the field, by their numbers there: what went wrong for people who run large state.
//!
//! | case | given | must |
//! |---|---|---|
//! | F2 | thousands of opens and closes | the number of files is bounded |
//! | G10 | a sliding window whose keys die before the next snapshot | disk use ≤ a small multiple of the live state |
//! | G7 | the checkpoint directory is moved | works there; no absolute path inside |
//! | X1 | the disk is full at any write | reopening works; nothing acknowledged is lost |
//! | X2 | a full disk gets space again | the next commit succeeds in the same process |
//! | X5 | one bit flipped in the newest snapshot | opens from the older one and the deltas, and says so |
//! | X8 | many inserts over two stores, close, reopen | every row is there |
//! | X10 | a range is deleted, crash, reopen | stays deleted |
//! | X11 | an iterator meets a broken page | an error that stays an error; nothing is skipped |

use std::collections::BTreeMap;
use std::io::ErrorKind::StorageFull;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium::fs::SimDisk;
use alluvium::fs::sim::{Persistence, Survivors};
use alluvium::prelude::*;
use alluvium::{
    Access, Backend, ErrorKind, FamilyId, History, LocalCheckpoint, MemoryProvider, Result, RocksDbProvider, Scan,
    StateStoreId, StoreOptions, Upkeep, Version,
};

const FAMILY: FamilyId = FamilyId::DEFAULT;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

fn try_open(disk: &SimDisk) -> Result<RocksDbProvider> {
    let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint")?;
    RocksDbProvider::open(&Backend::in_memory()?, checkpoint, id(), StoreOptions::default())
}

fn open(disk: &SimDisk) -> RocksDbProvider {
    try_open(disk).unwrap()
}

fn content(store: &impl ReadStore) -> Content {
    let entries = store.scan(FAMILY).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn commit(provider: &impl StateStoreProvider, key: &[u8], value: &[u8]) -> Result<Version> {
    let mut batch = provider.begin(provider.latest()?)?;
    batch.put(FAMILY, key, value)?;
    batch.commit()
}

fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    disk.files().into_iter().filter(|path| path.to_string_lossy().ends_with(suffix)).collect()
}

#[test]
fn f2_thousands_of_opens_and_closes_leave_no_files_behind() {
    let disk = SimDisk::new(1);
    let checkpoint = || LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    commit(&open(&disk), b"k", b"v").unwrap();
    let before = disk.files();
    for _ in 0..1_000 {
        drop(open(&disk));
    }
    for _ in 0..9_000 {
        drop(MemoryProvider::open(checkpoint(), id(), StoreOptions::default()).unwrap());
    }
    assert_eq!(disk.files(), before);
    // An older version begun on and given up, again and again, is a claim each time.
    let provider = open(&disk);
    for _ in 0..100 {
        provider.begin(Version(0)).unwrap().abort();
        provider.begin(Version(1)).unwrap().abort();
    }
    drop(provider);
    assert_eq!(disk.files(), before);
    // With a commit in each, the claims go with the versions.
    for round in 0..300_u32 {
        let provider = open(&disk);
        commit(&provider, &round.to_be_bytes(), b"v").unwrap();
        if round % 10 == 0 {
            provider.snapshot().unwrap();
            provider.retire(5).unwrap();
        }
    }
    let left = disk.files().len();
    assert!(left < 80, "{left} files");
    assert_eq!(content(&open(&disk).begin(Version(301)).unwrap()).len(), 301);
}

#[test]
fn g10_a_sliding_window_uses_a_small_multiple_of_its_live_state() {
    // Each commit adds 200 keys and removes those of 20 commits before: the state stays at 4,000 keys, about 0.5 MB.
    const WINDOW: u64 = 20;
    const KEYS: u64 = 200;
    let disk = SimDisk::new(10);
    let checkpoint = LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint").unwrap();
    let options = StoreOptions::default().retain_versions(10).unwrap().upkeep(Upkeep::Manual);
    let provider = RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint, id(), options).unwrap();
    let live = WINDOW * KEYS * (8 + 2 + 100);
    let mut most = 0;
    for version in 0..400 {
        let mut batch = provider.begin(Version(version)).unwrap();
        for key in 0..KEYS {
            batch.put(FAMILY, &(version * KEYS + key).to_be_bytes(), &[b'x'; 100]).unwrap();
            if version >= WINDOW {
                batch.remove(FAMILY, &((version - WINDOW) * KEYS + key).to_be_bytes()).unwrap();
            }
        }
        batch.commit().unwrap();
        provider.maintain(&|_| ControlFlow::Continue(())).unwrap();
        let used: u64 = disk.files().iter().map(|path| disk.read_file(path).unwrap().len() as u64).sum();
        most = most.max(used);
    }
    assert!(most < 12 * live, "{most} bytes for a live state of {live}");
    eprintln!("{most} bytes at most for a live state of {live}");
    assert_eq!(content(&provider.begin(Version(400)).unwrap()).len() as u64, WINDOW * KEYS);
}

#[test]
fn g7_a_moved_checkpoint_directory_opens_where_it_is_and_names_no_place() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (place.path().join("old place"), place.path().join("new/place"));
    let open = |root: &Path, backend: &Backend| {
        RocksDbProvider::open(backend, LocalCheckpoint::open(root).unwrap(), id(), StoreOptions::default()).unwrap()
    };
    let backend = Backend::in_memory().unwrap();
    let provider = open(&old, &backend);
    for number in 0..30_u32 {
        commit(&provider, &number.to_be_bytes(), b"v").unwrap();
        if number == 10 {
            provider.snapshot().unwrap();
        }
    }
    provider.collapse().unwrap();
    let before = content(&provider.begin(Version(30)).unwrap());
    drop(provider);
    std::fs::create_dir(new.parent().unwrap()).unwrap();
    move_directory(&old, &new);
    // With the index that knows the store from its old place, and without one.
    for backend in [backend, Backend::in_memory().unwrap()] {
        let provider = open(&new, &backend);
        let newest = provider.latest().unwrap();
        assert_eq!(
            content(&provider.begin(newest).unwrap()).len(),
            before.len() + usize::try_from(newest.0 - 30).unwrap()
        );
        assert_eq!(content(&provider.read_at(Version(30)).unwrap()), before);
        commit(&provider, format!("key {newest}").as_bytes(), b"v").unwrap();
    }
    assert!(!old.exists());
    let secret = place.path().file_name().unwrap().to_string_lossy().into_owned();
    for path in all_files(&new) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            !bytes.windows(secret.len()).any(|part| part == secret.as_bytes()),
            "{} names its place",
            path.display()
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "the user's rename, not ours")]
fn move_directory(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

/// Commits, rewrites and cleans up until something fails; says which commits were acknowledged.
fn work(disk: &SimDisk) -> Vec<Version> {
    let mut acknowledged = Vec::new();
    let mut go_on = || -> Result<()> {
        let provider = try_open(disk)?;
        for number in 0..6_u32 {
            acknowledged.push(commit(&provider, &number.to_be_bytes(), b"a value")?);
            match number {
                2 => drop(provider.snapshot()?),
                4 => drop((provider.collapse()?, provider.retire(2)?)),
                _ => {}
            }
        }
        Ok(())
    };
    match go_on() {
        Ok(()) => {}
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::DiskFull { .. } | ErrorKind::Indeterminate { .. }), "{error}");
        }
    }
    acknowledged
}

#[test]
fn x1_a_disk_that_is_full_at_any_write_loses_nothing_that_was_acknowledged() {
    let mut fired = 0;
    for nth in 1.. {
        let disk = SimDisk::new(nth);
        disk.fail_at(nth, &[], StorageFull, Persistence::ForEver);
        let acknowledged = work(&disk).last().map_or(0, |version| version.0);
        if disk.faults_fired() == 0 {
            break;
        }
        fired += 1;
        disk.clear_faults();
        for disk in [disk.fork(), disk.survive(Survivors::None)] {
            let provider = open(&disk);
            let newest = provider.latest().unwrap();
            assert!(newest.0 == acknowledged || newest.0 == acknowledged + 1, "{newest} after {acknowledged}");
            let found = content(&provider.begin(newest).unwrap());
            assert_eq!(found.len() as u64, newest.0, "full at write {nth}");
            commit(&provider, b"more", b"v").unwrap();
        }
    }
    assert!(fired > 60, "{fired} writes");
}

#[test]
fn x2_once_there_is_space_again_the_same_process_commits_on() {
    for nth in 1..=6 {
        let disk = SimDisk::new(nth);
        let provider = open(&disk);
        commit(&provider, b"first", b"v").unwrap();
        disk.fail_at(nth, &[], StorageFull, Persistence::ForEver);
        let failed =
            (0..3_u8).map(|number| commit(&provider, &[number], b"v").is_err()).filter(|failed| *failed).count();
        assert!(failed >= 1 && disk.faults_fired() > 0, "write {nth}");
        disk.clear_faults();
        let version = commit(&provider, b"last", b"v").unwrap();
        let found = content(&provider.begin(version).unwrap());
        assert!(found.contains_key(b"first".as_slice()) && found.contains_key(b"last".as_slice()));
        drop(provider);
        assert_eq!(content(&open(&disk.survive(Survivors::None)).begin(version).unwrap()), found);
    }
}

/// Counts warnings.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn x5_a_flipped_bit_in_the_newest_snapshot_is_passed_over_with_a_warning_or_named_and_never_believed() {
    let disk = SimDisk::new(5);
    let provider = open(&disk);
    for number in 0..8_u32 {
        commit(&provider, &number.to_be_bytes(), &[b'x'; 300]).unwrap();
        if number == 2 || number == 6 {
            provider.snapshot().unwrap();
        }
    }
    let expected = content(&provider.begin(Version(8)).unwrap());
    drop(provider);
    let newest = files(&disk, ".snapshot").pop().unwrap();
    let bits = disk.read_file(&newest).unwrap().len() as u64 * 8;
    // A test beside this one may meet the warning's place in the code for the first time in the very moment in which this one begins to
    // listen, and that swallows it. So it is met once before it counts.
    let cut = disk.fork();
    cut.truncate(&newest, 100).unwrap();
    drop(tracing::subscriber::with_default(Warnings::default(), || open(&cut)));
    let (mut passed_over, mut named, mut padding) = (0, 0, 0);
    for bit in (0..bits).step_by(61) {
        let disk = disk.fork();
        disk.flip_bit(&newest, bit).unwrap();
        let warnings = Warnings::default();
        let provider = tracing::subscriber::with_default(warnings.clone(), || open(&disk));
        let batch = provider.begin(Version(8)).unwrap();
        let read: Result<Content> =
            batch.scan(FAMILY).unwrap().map(|entry| entry.map(|e| (e.key.to_vec(), e.value.to_vec()))).collect();
        match read {
            Ok(found) if provider.passed_over().is_empty() => {
                assert_eq!(found, expected, "bit {bit}");
                padding += 1;
            }
            Ok(found) => {
                assert_eq!(found, expected, "bit {bit}");
                assert_eq!(provider.passed_over(), [newest.as_path()], "the metric");
                assert!(warnings.0.load(Ordering::Relaxed) > 0, "the warning");
                passed_over += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupt { file, .. } if *file == newest), "{error}");
                named += 1;
            }
        }
    }
    assert!(passed_over > 20 && named > 100, "{passed_over} passed over, {named} named, {padding} in the padding");
}

#[cfg(feature = "rocksdb")]
#[test]
fn x8_five_million_inserts_over_two_stores_are_all_there_after_a_reopening() {
    const COMMITS: u32 = 10;
    const ROWS: u32 = 250_000;
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    let options = alluvium::BackendOptions::default().memory_limit(64 << 20);
    let open = || Backend::open(&work, options.clone()).unwrap();
    let stores = |backend: &Backend| {
        [0, 1].map(|partition| {
            let id = StateStoreId::new("op", partition, "state").unwrap();
            let checkpoint = LocalCheckpoint::open(place.path().join("checkpoint")).unwrap();
            RocksDbProvider::open(backend, checkpoint, id, StoreOptions::default()).unwrap()
        })
    };
    // Odd, so that every number has its own key, far from that of the next one.
    let key = |row: u32| row.wrapping_mul(0x9e37_79b1).to_be_bytes();
    {
        let backend = open();
        let both = stores(&backend);
        for number in 0..COMMITS {
            for (which, store) in (0_u8..).zip(&both) {
                let mut batch = store.begin(store.latest().unwrap()).unwrap();
                for row in number * ROWS..(number + 1) * ROWS {
                    batch.put(FAMILY, &key(row), &[which]).unwrap();
                }
                batch.commit().unwrap();
            }
        }
    }
    for keeps_index in [true, false] {
        if !keeps_index {
            std::fs::remove_dir_all(&work).unwrap();
        }
        let backend = open();
        for (which, store) in (0_u8..).zip(stores(&backend)) {
            let batch = store.begin(Version(COMMITS.into())).unwrap();
            let mut rows = 0;
            for entry in batch.scan(FAMILY).unwrap() {
                assert_eq!(&*entry.unwrap().value, [which]);
                rows += 1;
            }
            assert_eq!(rows, COMMITS * ROWS);
            for row in (0..COMMITS * ROWS).step_by(97) {
                assert_eq!(batch.get(FAMILY, &key(row)).unwrap().unwrap(), [which]);
            }
        }
    }
}

#[test]
fn x10_a_deleted_range_stays_deleted_after_a_crash_at_any_step_of_what_follows() {
    // What is done after the range was deleted: nothing, another commit, a fold, a collapse, a snapshot, a retirement.
    let follow_ups: [fn(&RocksDbProvider) -> Result<()>; 5] = [
        |provider| commit(provider, b"z", b"v").map(drop),
        |provider| provider.settle(),
        |provider| provider.collapse().map(drop),
        |provider| provider.snapshot().map(drop),
        |provider| provider.snapshot().and_then(|_| provider.retire(1)).map(drop),
    ];
    let mut crashes = 0;
    for follow_up in follow_ups {
        for nth in 1.. {
            let disk = SimDisk::new(nth);
            let provider = open(&disk);
            for number in 0..20_u8 {
                commit(&provider, &[b'k', number], b"v").unwrap();
            }
            provider.snapshot().unwrap();
            let mut batch = provider.begin(Version(20)).unwrap();
            batch.delete_range(FAMILY, Some(b"k\x05"), Some(b"k\x0f")).unwrap();
            batch.put(FAMILY, b"k\x07", b"again").unwrap();
            batch.commit().unwrap();
            disk.crash_at(nth);
            let done = follow_up(&provider).is_ok();
            drop(provider);
            for survivors in [Survivors::None, Survivors::All] {
                let provider = open(&disk.survive(survivors));
                let mut found = content(&provider.begin(provider.latest().unwrap()).unwrap());
                found.remove(b"z".as_slice());
                let keys: Vec<u8> = found.keys().map(|key| key[1]).collect();
                assert_eq!(keys, [0, 1, 2, 3, 4, 7, 15, 16, 17, 18, 19], "crash {nth}");
            }
            if done {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes > 20, "{crashes}");
}

/// Reads on for a while after the first error; says what came before it.
fn until_broken(scan: Scan, expected: &[(Vec<u8>, Vec<u8>)]) -> Option<usize> {
    let mut scan = scan;
    for (place, entry) in expected.iter().enumerate() {
        match scan.next().expect("an entry or an error, and not the end") {
            Ok(found) => assert_eq!((found.key.to_vec(), found.value.to_vec()), *entry, "nothing is skipped"),
            Err(error) => {
                assert!(error.is_corrupt(), "{error}");
                for _ in 0..5 {
                    let again = scan.next().expect("the error stays").unwrap_err();
                    assert_eq!(again.kind(), error.kind());
                }
                return Some(place);
            }
        }
    }
    assert!(scan.next().is_none());
    None
}

#[test]
fn x11_an_iterator_that_meets_a_broken_page_stops_there_for_good() {
    let disk = SimDisk::new(11);
    let provider = open(&disk);
    let mut batch = provider.begin(Version(0)).unwrap();
    for number in 0..400_u32 {
        batch.put(FAMILY, &number.to_be_bytes(), &[b'x'; 90]).unwrap();
    }
    batch.commit().unwrap();
    commit(&provider, b"on top", b"v").unwrap();
    provider.snapshot().unwrap();
    let expected: Vec<_> = content(&provider.begin(Version(2)).unwrap()).into_iter().collect();
    drop(provider);
    let (mut stopped_early, mut stopped_late) = (0, 0);
    for path in [files(&disk, ".snapshot").remove(0), files(&disk, ".delta").remove(0)] {
        let bits = disk.read_file(&path).unwrap().len() as u64 * 8;
        for (round, bit) in (0..bits).step_by(3_989).enumerate() {
            let disk = disk.fork();
            disk.flip_bit(&path, bit).unwrap();
            let access = if round % 2 == 0 { Access::Mapped } else { Access::Positioned };
            let checkpoint = LocalCheckpoint::existing_on(Arc::new(disk.clone()), "/checkpoint").unwrap();
            let history = History::open_with(checkpoint, id(), access).unwrap();
            // Damage that shows at the opening is passed over, or refuses the whole view.
            if let Ok(view) = history.read_at(Version(2)) {
                match until_broken(view.scan(FAMILY).unwrap(), &expected) {
                    Some(0) => stopped_early += 1,
                    Some(_) => stopped_late += 1,
                    None => {}
                }
            }
            let Ok(mut changes) = history.changes(Version(1)..=Version(1)) else { continue };
            if let Some(Err(error)) = changes.by_ref().find(Result::is_err) {
                assert!(error.is_corrupt(), "{error}");
                let again: Vec<_> = changes.by_ref().take(3).map(|event| event.unwrap_err().kind().clone()).collect();
                assert!(again.len() == 3 && again.iter().all(|kind| kind == error.kind()));
                let mut differences = history.difference(Version(0), Version(1)).unwrap();
                let error = differences.by_ref().find_map(Result::err).expect("the same delta");
                let again: Vec<_> = differences.take(3).map(|event| event.unwrap_err().kind().clone()).collect();
                assert!(again.len() == 3 && again.iter().all(|kind| kind == error.kind()));
                stopped_late += 1;
            }
        }
    }
    assert!(
        stopped_early + stopped_late > 50 && stopped_late > 20,
        "{stopped_early} at once, {stopped_late} on the way"
    );
}
