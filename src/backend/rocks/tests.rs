//! What only the index on disk can do wrong: crashes, damage, disk that is not given back.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rocksdb::WaitForCompactOptions;
use tempfile::{TempDir, tempdir};

use crate::backend::contract::{Coverage, Engine, StoreNumber, VersionRecord};
use crate::backend::handle::Backend;
use crate::backend::options::BackendOptions;
use crate::backend::testing::{InRocks, Rig, Row, Rows, UID, id, mark, put, rows_of};
use crate::backend::workdir::remove_file;
use crate::bytes::Bytes;
use crate::entry::{FamilyId, KeyRange, full_key};
use crate::error::ErrorKind;
use crate::ranges::RangeSet;
use crate::version::Mark;

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What a process that is killed now leaves on disk: no table is closed, no memtable flushed.
fn killed(rig: &InRocks) -> InRocks {
    rig.engine.db.raw().wait_for_compact(&WaitForCompactOptions::default()).unwrap(); // a copy takes longer than a kill
    let copy = tempdir().unwrap();
    copy_tree(rig.dir.path(), copy.path());
    InRocks::open(copy)
}

/// Bytes that do not compress.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let ids = crate::version::IdSource::seeded(seed);
    std::iter::repeat_with(|| ids.run_id().0).flatten().take(length).collect()
}

fn noisy_rows(count: u32, value_bytes: usize) -> impl Iterator<Item = Row> {
    (0..count).map(move |n| put(&full_key(FamilyId(0), &n.to_be_bytes()), &noise(n.into(), value_bytes)))
}

fn files_bytes(path: &Path) -> u64 {
    let size = |entry: fs::DirEntry| {
        let found = entry.metadata().unwrap();
        if found.is_dir() { files_bytes(&entry.path()) } else { found.len() }
    };
    fs::read_dir(path).unwrap().map(Result::unwrap).map(size).sum()
}

#[test]
fn a_killed_process_leaves_one_moment_of_the_past() {
    let rig = InRocks::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    engine.flush().unwrap();
    let mut older = 0;
    for version in 1..=120u64 {
        let value = noise(version, 400);
        let rows = (0..100u32).map(|n| put(&full_key(FamilyId(0), &n.to_be_bytes()), &value));
        let metadata = Bytes::from(value.clone());
        let record = VersionRecord { at: mark(version), entries: 100, bytes: 0, metadata };
        engine.apply(generation, &RangeSet::default(), &mut Rows::new(rows), mark(version), Some(&record)).unwrap();
        if version % 20 != 0 {
            continue;
        }
        let after = killed(&rig);
        let applied = after.engine().generations(store).unwrap()[0].applied;
        older += u32::from(applied != mark(version));
        let found = rows_of(after.engine().cursor(generation, &KeyRange::ALL).unwrap());
        let mut versions = 0;
        let mut count = |_| {
            versions += 1;
            Ok(())
        };
        after.engine().versions(store, &mut count).unwrap();
        let reached = applied.at.version.0;
        assert_eq!(versions, reached);
        assert_eq!(found.len(), if reached == 0 { 0 } else { 100 });
        assert!(found.iter().all(|(_, value)| *value == Some(noise(reached, 400))), "a mix at {reached}");
    }
    assert!(older > 0, "no kill lost anything, so this proves nothing");
    let last = killed(&rig).engine().generations(store).unwrap()[0].applied;
    assert!(last.at.version.0 > 0, "nothing was ever flushed, so this proves nothing");
}

#[test]
fn a_large_delta_that_is_cut_off_is_torn_until_it_is_applied_again() {
    let rig = InRocks::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let mut failing = Rows::failing_at_the_end(noisy_rows(6000, 1000)); // a batch and a half
    assert!(engine.apply(generation, &RangeSet::default(), &mut failing, mark(1), None).is_err());
    let torn = |engine: &dyn Engine| engine.generations(store).unwrap()[0].torn;
    assert_eq!(torn(&*engine), Some(mark(1)));
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    assert_eq!(torn(&*engine), Some(mark(1)));
    assert_eq!(engine.generations(store).unwrap()[0].applied, Mark::ROOT);
    let other = engine.apply(generation, &RangeSet::default(), &mut Rows::new([]), mark(2), None).unwrap_err();
    assert_eq!(*other.kind(), ErrorKind::Poisoned);
    engine.apply(generation, &RangeSet::default(), &mut Rows::new(noisy_rows(6000, 1000)), mark(1), None).unwrap();
    assert_eq!((torn(&*engine), engine.generations(store).unwrap()[0].applied), (None, mark(1)));
    assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()).len(), 6000);
}

/// A small generation, and a large one that is then dropped.
fn with_a_dropped_generation(engine: &dyn Engine) -> StoreNumber {
    let store = engine.store(UID, &id("a")).unwrap();
    for (count, value_bytes) in [(1000, 100), (60_000, 1000)] {
        let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
        let mut rows = Rows::new(noisy_rows(count, value_bytes));
        engine.apply(generation, &RangeSet::default(), &mut rows, mark(1), None).unwrap();
        if count == 60_000 {
            engine.flush().unwrap();
            assert!(engine.disk_bytes().unwrap() > 60_000_000);
            engine.drop_generation(generation).unwrap();
        }
    }
    store
}

fn assert_only_the_small_one_is_left(engine: &dyn Engine, dir: &Path, store: StoreNumber) {
    let disk_bytes = files_bytes(&dir.join("rocks"));
    assert!(disk_bytes < 20 << 20, "{disk_bytes} bytes are left");
    let left = engine.generations(store).unwrap();
    assert_eq!(left.len(), 1);
    let expected: Vec<Row> = noisy_rows(1000, 100).collect();
    assert_eq!(rows_of(engine.cursor(left[0].id, &KeyRange::ALL).unwrap()), expected);
}

#[test]
fn a_dropped_generation_gives_its_disk_back() {
    let rig = InRocks::new();
    let store = with_a_dropped_generation(&*rig.engine);
    rig.engine.reclaim().unwrap();
    rig.engine.flush().unwrap();
    rig.engine.db.raw().wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_only_the_small_one_is_left(&*rig.engine, rig.dir.path(), store);
}

#[test]
fn a_dropped_generation_gives_its_disk_back_after_a_crash() {
    let rig = InRocks::new();
    let store = with_a_dropped_generation(&*rig.engine);
    rig.engine.flush().unwrap(); // the drop is on disk, but nothing of it was done
    let after = killed(&rig);
    let (engine, dir) = (after.engine, after.dir);
    drop(engine);
    let backend = Backend::open(dir.path(), BackendOptions::default().memory_limit(8 << 20)).unwrap();
    backend.worker().run_pending();
    backend.flush().unwrap();
    assert_only_the_small_one_is_left(&**backend.engine(), dir.path(), store);
}

/// Deleting files is durable at once, the record that a generation was dropped only with the next flush: were the files to
/// go first, a kill would bring the record back without the entries, and the generation would be read as if it were whole.
#[test]
fn a_generation_whose_drop_a_kill_has_undone_is_whole_or_gone() {
    let rig = InRocks::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let mut rows = Rows::new(noisy_rows(2000, 100));
    engine.apply(generation, &RangeSet::default(), &mut rows, mark(1), None).unwrap();
    engine.flush().unwrap();
    // Only files below the top level are deleted as a whole.
    let db = &rig.engine.db;
    db.raw().compact_range_cf(db.handles().state, None::<&[u8]>, None::<&[u8]>);
    engine.drop_generation(generation).unwrap();
    engine.reclaim().unwrap();
    let after = killed(&rig);
    for record in after.engine().generations(store).unwrap() {
        assert_eq!(rows_of(after.engine().cursor(record.id, &KeyRange::ALL).unwrap()).len(), 2000, "{record:?}");
    }
}

#[test]
fn a_torn_generation_with_deleted_ranges_can_be_dropped_and_the_index_stays() {
    let rig = InRocks::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let kept = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    engine.apply(kept, &RangeSet::default(), &mut Rows::new(noisy_rows(10, 10)), mark(1), None).unwrap();
    let torn = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let mut ranges = RangeSet::default();
    ranges.insert(KeyRange { start: vec![0, 0, 1], end: Some(vec![0, 0, 9]) });
    let mut failing = Rows::failing_at_the_end(noisy_rows(6000, 1000)); // a batch and a half
    assert!(engine.apply(torn, &ranges, &mut failing, mark(1), None).is_err());
    engine.drop_generation(torn).unwrap();
    drop(engine);
    let rig = rig.reopened();
    let left: Vec<_> = rig.engine().generations(store).unwrap().iter().map(|record| record.id).collect();
    assert_eq!(left, [kept]);
}

#[test]
fn entries_without_a_record_are_found_and_their_number_is_not_used_again() {
    let rig = InRocks::new();
    let store = rig.engine.store(UID, &id("a")).unwrap();
    let stray = crate::backend::contract::GenerationId { store, number: 77 };
    let key = super::families::state_key(stray, b"\0\0a");
    let mut write = rocksdb::WriteOptions::default();
    write.disable_wal(true);
    rig.engine.db.raw().put_cf_opt(rig.engine.db.handles().state, key, [1, 2], &write).unwrap();
    let rig = rig.reopened();
    assert!(rig.engine.registry().dropped.contains(&stray));
    let next = rig.engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap();
    assert_eq!(next.id.number, 78);
    rig.engine.reclaim().unwrap();
    assert_eq!(rig.engine.get(stray, b"\0\0a").unwrap(), None);
    assert!(rig.reopened().engine.registry().dropped.is_empty());
}

/// An index with something in it, closed.
fn closed_index() -> TempDir {
    let dir = tempdir().unwrap();
    let backend = Backend::open(dir.path(), BackendOptions::default()).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let generation = backend.engine().create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let mut rows = Rows::new(noisy_rows(1000, 100));
    backend.engine().apply(generation, &RangeSet::default(), &mut rows, mark(1), None).unwrap();
    dir
}

fn generations_in(dir: &Path) -> usize {
    let backend = Backend::open(dir, BackendOptions::default()).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let records = backend.engine().generations(store).unwrap();
    for record in &records {
        assert_eq!(rows_of(backend.engine().cursor(record.id, &KeyRange::ALL).unwrap()).len(), 1000);
    }
    records.len()
}

#[test]
fn a_whole_index_is_kept_and_a_damaged_one_begins_afresh() {
    assert_eq!(generations_in(closed_index().path()), 1);
    for kind in ["CURRENT", "MANIFEST", ".sst"] {
        for damage in ["removed", "cut", "overwritten"] {
            let dir = closed_index();
            let files = fs::read_dir(dir.path().join("rocks")).unwrap().map(|entry| entry.unwrap().path());
            let hit: Vec<_> = files.filter(|path| path.to_string_lossy().contains(kind)).collect();
            assert!(!hit.is_empty(), "{kind}");
            for path in hit {
                let bytes = fs::read(&path).unwrap();
                match damage {
                    "removed" => remove_file(&path).unwrap(),
                    "cut" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                    _ => fs::write(&path, vec![0x5a; bytes.len()]).unwrap(),
                }
            }
            assert_eq!(generations_in(dir.path()), 0, "{kind} {damage}");
            assert_eq!(generations_in(dir.path()), 0, "{kind} {damage}, once more");
        }
    }
}

#[test]
fn damage_that_is_met_while_reading_is_remembered_for_the_next_open() {
    let dir = closed_index();
    let largest = fs::read_dir(dir.path().join("rocks")).unwrap().map(|entry| entry.unwrap().path());
    let largest = largest.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    let largest = largest.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    assert!(bytes.len() > 100_000, "the entries");
    bytes[50_000] ^= 1;
    fs::write(&largest, bytes).unwrap();

    let backend = Backend::open(dir.path(), BackendOptions::default()).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let generation = backend.engine().generations(store).unwrap()[0].id;
    let mut cursor = backend.engine().cursor(generation, &KeyRange::ALL).unwrap();
    let error = loop {
        match cursor.advance() {
            Ok(more) => assert!(more, "the flipped bit was not noticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(*error.kind(), ErrorKind::Engine);
    assert!(cursor.advance().is_err(), "the error stays");
    drop((cursor, backend));
    assert_eq!(generations_in(dir.path()), 0);
}

#[test]
fn a_cursor_keeps_the_index_open_and_locked() {
    let dir = closed_index();
    let backend = Backend::open(dir.path(), BackendOptions::default()).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let generation = backend.engine().generations(store).unwrap()[0].id;
    let cursor = backend.engine().cursor(generation, &KeyRange::ALL).unwrap();
    drop(backend);
    let second = Backend::open(dir.path(), BackendOptions::default()).unwrap_err();
    assert!(matches!(second.kind(), ErrorKind::Locked { .. }));
    let rows = std::thread::spawn(move || rows_of(cursor).len()).join().unwrap();
    assert_eq!(rows, 1000);
    assert_eq!(generations_in(dir.path()), 1);
}

#[test]
fn memory_says_who_holds_it() {
    let rig = InRocks::new();
    let engine = Arc::clone(&rig.engine);
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    for version in 1..=60 {
        let mut rows = Rows::new(noisy_rows(500, 1000));
        engine.apply(generation, &RangeSet::default(), &mut rows, mark(version), None).unwrap();
        let memory = engine.memory();
        assert!(memory.memtables_bytes > 0, "{memory:?}");
        assert!(memory.memtables_bytes < 3 << 20, "{memory:?}"); // a quarter of 8 MiB, and a batch
        assert!(memory.block_cache_bytes < 6 << 20, "{memory:?}");
    }
    assert!(engine.disk_bytes().unwrap() > 500_000);
}
