//! One suite of behaviours for every engine.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::contract::{Coverage, StoreNumber, VersionRecord};
use super::generation::Generation;
use super::testing::{InMemory, Rig, Row, Rows, UID, gone, id, mark, put, rows_of};
use crate::bytes::Bytes;
use crate::entry::{Change, FamilyId, KeyRange, Probe, full_key};
use crate::error::ErrorKind;
use crate::ranges::RangeSet;
use crate::version::{Epoch, Mark, StoreUid, Version, VersionId};

fn range(start: &[u8], end: Option<&[u8]>) -> KeyRange {
    KeyRange { start: start.to_vec(), end: end.map(<[u8]>::to_vec) }
}

fn ranges(of: impl IntoIterator<Item = KeyRange>) -> RangeSet {
    let mut set = RangeSet::default();
    of.into_iter().for_each(|range| set.insert(range));
    set
}

#[expect(clippy::unnecessary_wraps, reason = "it is what a get answers")]
fn value(text: &[u8]) -> Option<Change<Bytes>> {
    Some(Change::Put(Bytes::copy_from(text)))
}

fn record(version: u64, metadata: &[u8]) -> VersionRecord {
    let metadata = Bytes::copy_from(metadata);
    VersionRecord { at: mark(version), entries: version, bytes: version * 10, metadata }
}

fn what_is_applied_can_be_read<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let one = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let two = engine.create_generation(store, mark(1), Coverage::Changes).unwrap().id;
    let long = [&[0, 0], [b'x'; 5000].as_slice()].concat();
    let rows = [put(b"\0\0", b"no user key"), put(b"\0\0a", b""), gone(b"\0\0b"), put(&long, &vec![9; 70_000])];
    engine.apply(one, &RangeSet::default(), &mut Rows::new(rows.clone()), mark(1), None).unwrap();
    engine.apply(two, &RangeSet::default(), &mut Rows::new([put(b"\0\0a", b"2")]), mark(2), None).unwrap();

    assert_eq!(engine.get(one, b"\0\0").unwrap(), value(b"no user key"));
    assert_eq!(engine.get(one, b"\0\0a").unwrap(), value(b""));
    assert_eq!(engine.get(one, b"\0\0b").unwrap(), Some(Change::Tombstone));
    assert_eq!(engine.get(one, b"\0\0c").unwrap(), None);
    assert_eq!(engine.get(one, &long).unwrap(), value(&vec![9; 70_000]));
    assert_eq!(engine.get(two, b"\0\0a").unwrap(), value(b"2"));
    assert_eq!(engine.get(two, b"\0\0b").unwrap(), None);
    assert_eq!(rows_of(engine.cursor(one, &KeyRange::ALL).unwrap()), rows);
    let marks: Vec<_> = engine.generations(store).unwrap().iter().map(|g| (g.id, g.from, g.applied)).collect();
    assert_eq!(marks, [(one, Mark::ROOT, mark(1)), (two, mark(1), mark(2))]);
}

fn ranges_delete_what_is_older_and_mask_what_is_below<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let rows = [put(b"\0\0a", b"1"), put(b"\0\0b", b"1"), put(b"\0\0c", b"1"), put(b"\xff\xff", b"1")];
    engine.apply(generation, &RangeSet::default(), &mut Rows::new(rows), mark(1), None).unwrap();
    let first = ranges([range(b"\0\0b", Some(b"\0\0d"))]);
    engine.apply(generation, &first, &mut Rows::new([put(b"\0\0c", b"2")]), mark(2), None).unwrap();

    let left = [put(b"\0\0a", b"1"), put(b"\0\0c", b"2"), put(b"\xff\xff", b"1")];
    assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()), left);
    assert_eq!(engine.get(generation, b"\0\0b").unwrap(), None);
    assert_eq!(engine.ranges(generation).unwrap(), first);

    let open_ended = ranges([range(b"\0\0c", None)]);
    engine.apply(generation, &open_ended, &mut Rows::new([]), mark(3), None).unwrap();
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()), [put(b"\0\0a", b"1")]);
    assert_eq!(engine.ranges(generation).unwrap(), ranges([range(b"\0\0b", None)]));
}

fn a_complete_generation_keeps_no_tombstones<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Complete).unwrap().id;
    let rows = [put(b"\0\0a", b"1"), put(b"\0\0b", b"1"), put(b"\0\0c", b"1")];
    engine.apply(generation, &RangeSet::default(), &mut Rows::new(rows), mark(1), None).unwrap();
    let deleted = ranges([range(b"\0\0c", None)]);
    engine.apply(generation, &deleted, &mut Rows::new([gone(b"\0\0a"), put(b"\0\0d", b"2")]), mark(2), None).unwrap();
    assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()), [put(b"\0\0b", b"1"), put(b"\0\0d", b"2")]);
    assert_eq!(engine.get(generation, b"\0\0a").unwrap(), None);
    assert!(engine.ranges(generation).unwrap().is_empty());
}

fn a_cursor_sees_what_was_there_when_it_was_made<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let before = [put(b"\0\0a", b"1"), put(b"\0\0b", b"1"), put(b"\0\0c", b"1")];
    engine.apply(generation, &RangeSet::default(), &mut Rows::new(before.clone()), mark(1), None).unwrap();
    let mut cursor = engine.cursor(generation, &KeyRange::ALL).unwrap();
    assert!(cursor.advance().unwrap());
    let after = [put(b"\0\0a", b"2"), put(b"\0\0bb", b"2"), gone(b"\0\0c")];
    let deleted = ranges([range(b"\0\0b", Some(b"\0\0bb"))]);
    engine.apply(generation, &deleted, &mut Rows::new(after), mark(2), None).unwrap();
    engine.flush().unwrap();
    assert_eq!(cursor.change(), Change::Put(b"1".as_slice()));
    assert_eq!(rows_of(cursor), before[1..]);
}

fn a_range_of_ff_bytes_ends_where_it_should<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let next = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let key = |family, key: &[u8]| full_key(FamilyId(family), key);
    let rows = [(0, b"\xff\xfe".as_slice()), (0, b"\xff\xff"), (0, b"\xff\xff\xff"), (1, b""), (u16::MAX, b"\xff")];
    let rows = rows.map(|(family, user)| put(&key(family, user), b"x"));
    engine.apply(generation, &RangeSet::default(), &mut Rows::new(rows.clone()), mark(1), None).unwrap();
    engine.apply(next, &RangeSet::default(), &mut Rows::new([put(b"\0\0", b"next")]), mark(1), None).unwrap();

    let scan = |range| rows_of(engine.cursor(generation, &range).unwrap());
    assert_eq!(scan(KeyRange::prefix(FamilyId(0), b"\xff\xff")), rows[1..3]);
    assert_eq!(scan(KeyRange::within(FamilyId(0), None, None)), rows[..3]);
    assert_eq!(scan(KeyRange::within(FamilyId(u16::MAX), None, None)), rows[4..]);
    assert_eq!(scan(KeyRange::within(FamilyId(0), Some(b"\xff\xff"), Some(b"\xff\xff\xff"))), rows[1..2]);
    assert_eq!(scan(range(b"\0\x01", Some(b"\0\0"))), []);

    let all_ff = ranges([KeyRange::prefix(FamilyId(u16::MAX), b"")]);
    engine.apply(generation, &all_ff, &mut Rows::new([]), mark(2), None).unwrap();
    assert_eq!(scan(KeyRange::ALL), rows[..4]);
    assert_eq!(rows_of(engine.cursor(next, &KeyRange::ALL).unwrap()), [put(b"\0\0", b"next")]);
}

fn everything_is_there_after_a_reopen<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let other = engine.store(UID, &id("b")).unwrap();
    let generation = engine.create_generation(store, mark(4), Coverage::Changes).unwrap().id;
    engine.apply(generation, &RangeSet::default(), &mut Rows::new([put(b"\0\0a", b"1")]), mark(5), None).unwrap();
    let records = engine.generations(store).unwrap();
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    assert_eq!(engine.store(UID, &id("a")).unwrap(), store);
    assert_eq!(engine.store(UID, &id("b")).unwrap(), other);
    assert_eq!(engine.generations(store).unwrap(), records);
    assert_eq!(records[0].applied, mark(5));
    assert_eq!(engine.get(generation, b"\0\0a").unwrap(), value(b"1"));
    let newer = engine.create_generation(store, mark(5), Coverage::Changes).unwrap();
    assert!(newer.id > generation);
}

fn another_uid_is_another_store<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let old = engine.store(UID, &id("a")).unwrap();
    let kept = engine.store(UID, &id("b")).unwrap();
    for store in [old, kept] {
        let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
        engine.apply(generation, &RangeSet::default(), &mut Rows::new([put(b"\0\0a", b"1")]), mark(1), None).unwrap();
        engine.put_version(store, &record(1, b"")).unwrap();
    }
    let new = engine.store(StoreUid([8; 16]), &id("a")).unwrap();
    assert!(new != old && new != kept);
    assert!(engine.generations(old).unwrap().is_empty() && versions(&*engine, old).is_empty());
    assert!(engine.generations(new).unwrap().is_empty() && versions(&*engine, new).is_empty());
    assert_eq!(engine.generations(kept).unwrap().len(), 1);
    assert_eq!(versions(&*engine, kept).len(), 1);
}

fn a_dropped_generation_is_gone_for_ever<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let first = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let second = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    for generation in [first, second] {
        let deleted = ranges([range(b"\0\0x", None)]);
        engine.apply(generation, &deleted, &mut Rows::new([put(b"\0\0a", b"1")]), mark(1), None).unwrap();
    }
    engine.drop_generation(first).unwrap();
    engine.reclaim().unwrap();
    assert!(engine.drop_generation(first).is_err());
    assert!(engine.apply(first, &RangeSet::default(), &mut Rows::new([]), mark(2), None).is_err());
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    engine.reclaim().unwrap();
    assert_eq!(engine.generations(store).unwrap().iter().map(|g| g.id).collect::<Vec<_>>(), [second]);
    assert_eq!(engine.get(second, b"\0\0a").unwrap(), value(b"1"));
    assert_eq!(engine.ranges(second).unwrap().len(), 1);
    assert!(engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id > second);
}

fn versions(engine: &dyn super::contract::Engine, store: StoreNumber) -> Vec<VersionRecord> {
    let mut found = Vec::new();
    let mut keep = |record| {
        found.push(record);
        Ok(())
    };
    engine.versions(store, &mut keep).unwrap();
    found
}

fn version_records_come_back_in_order_and_can_be_forgotten<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let other = engine.store(UID, &id("b")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    engine.put_version(other, &record(1, b"other")).unwrap();
    for version in [300, 2, 1] {
        engine.put_version(store, &record(version, b"offsets")).unwrap();
    }
    let abandoned = VersionId::new(Version(2), Epoch(9));
    let of_abandoned = Mark { at: abandoned, ..mark(2) };
    engine.put_version(store, &VersionRecord { at: of_abandoned, ..record(2, b"abandoned") }).unwrap();
    let with_apply = record(301, &vec![5; 100_000]);
    engine.apply(generation, &RangeSet::default(), &mut Rows::new([]), mark(301), Some(&with_apply)).unwrap();
    let numbers = |engine: &dyn super::contract::Engine, store| -> Vec<u64> {
        versions(engine, store).iter().map(|record| record.at.at.version.0).collect()
    };
    assert_eq!(numbers(&*engine, store), [1, 2, 2, 300, 301]);
    engine.forget_versions(store, Version(2), &|at| at == abandoned).unwrap();
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    assert_eq!(numbers(&*engine, store), [2, 300, 301]);
    assert_eq!(versions(&*engine, store).last(), Some(&with_apply));
    assert_eq!(versions(&*engine, other), [record(1, b"other")]);
}

fn a_whole_state_comes_in_at_once<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let rows: Vec<Row> = (0..20_000u32).map(|n| put(&full_key(FamilyId(0), &n.to_be_bytes()), &[7; 500])).collect();
    let (calls, last_bytes) = (Cell::new(0), Cell::new(0));
    let observer = |bytes| {
        calls.set(calls.get() + 1);
        assert!(bytes >= last_bytes.replace(bytes));
        ControlFlow::Continue(())
    };
    let record = engine.ingest(store, &mut Rows::new(rows.clone()), mark(9), &observer).unwrap();
    assert!(calls.get() >= 3 && last_bytes.get() >= 20_000 * 500, "{calls:?} {last_bytes:?}");
    assert_eq!((record.applied, record.coverage, record.from), (mark(9), Coverage::Complete, Mark::ROOT));
    engine.apply(record.id, &RangeSet::default(), &mut Rows::new([gone(&rows[0].0)]), mark(10), None).unwrap();
    drop(engine);
    let rig = rig.reopened();
    let engine = rig.engine();
    assert_eq!(engine.generations(store).unwrap()[0].applied, mark(10));
    assert_eq!(rows_of(engine.cursor(record.id, &KeyRange::ALL).unwrap()), rows[1..]);
    let empty = engine.ingest(store, &mut Rows::new([]), mark(1), &|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(rows_of(engine.cursor(empty.id, &KeyRange::ALL).unwrap()), []);
}

fn a_whole_state_that_is_stopped_or_fails_leaves_nothing<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let rows = || (0..20_000u32).map(|n| put(&full_key(FamilyId(0), &n.to_be_bytes()), &[7; 500]));
    let stop = |bytes| if bytes > 5 << 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let stopped = engine.ingest(store, &mut Rows::new(rows()), mark(9), &stop).unwrap_err();
    assert_eq!(*stopped.kind(), ErrorKind::Cancelled);
    let go_on = |_| ControlFlow::Continue(());
    assert!(engine.ingest(store, &mut Rows::failing_at_the_end(rows()), mark(9), &go_on).unwrap_err().is_corrupt());
    assert!(engine.ingest(store, &mut Rows::new([gone(b"\0\0a")]), mark(9), &go_on).is_err());
    assert!(engine.generations(store).unwrap().is_empty());
    assert_eq!(engine.disk_bytes().unwrap(), 0);
}

fn a_failing_delta_of_one_batch_changes_nothing<R: Rig>() {
    let rig = R::new();
    let engine = rig.engine();
    let store = engine.store(UID, &id("a")).unwrap();
    let generation = engine.create_generation(store, Mark::ROOT, Coverage::Changes).unwrap().id;
    let before = engine.generations(store).unwrap();
    let mut rows = Rows::failing_at_the_end([put(b"\0\0a", b"1")]);
    let all = ranges([KeyRange::ALL]);
    assert!(engine.apply(generation, &all, &mut rows, mark(1), None).unwrap_err().is_corrupt());
    assert_eq!(engine.generations(store).unwrap(), before);
    assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()), []);
    assert!(engine.ranges(generation).unwrap().is_empty());
}

fn a_generation_finds_what_its_filter_has_seen<R: Rig>() {
    let rig = R::new();
    let backend = rig.backend();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let key = |n: u32| full_key(FamilyId(0), &n.to_be_bytes());
    let rows = |from: u32| (from..from + 500).map(move |n| put(&key(n), &n.to_be_bytes()));
    let made = Generation::create(&backend, store, Mark::ROOT, Coverage::Changes, 4096).unwrap();
    assert_eq!(made.filter_bytes(), 4096);
    made.apply(&RangeSet::default(), &mut Rows::new(rows(0)), mark(1), None).unwrap();
    let record = backend.engine().generations(store).unwrap().remove(0);
    drop(made);

    let in_use = backend.take(record.id, &[]).unwrap();
    let opened = Generation::open(&backend, &record, in_use).unwrap();
    assert_eq!((opened.applied(), opened.filter_bytes()), (mark(1), 0));
    let all_are_found = |upto: u32| {
        let keys: Vec<_> = (0..2 * upto).map(key).collect();
        let probes: Vec<_> = keys.iter().map(|key| Probe::new(key)).collect();
        let expected = |n: u32| (n < upto).then(|| Change::Put(Bytes::copy_from(&n.to_be_bytes())));
        let expected: Vec<_> = (0..2 * upto).map(expected).collect();
        probes.iter().zip(expected).for_each(|(probe, one)| assert_eq!(opened.get(probe).unwrap(), one));
    };
    all_are_found(500);
    opened.rebuild_filter(4096).unwrap();
    all_are_found(500);
    opened.apply(&ranges([range(b"\0\x01", None)]), &mut Rows::new(rows(500)), mark(2), None).unwrap();
    all_are_found(1000);
    assert_eq!((opened.applied(), opened.from(), opened.is_complete()), (mark(2), Mark::ROOT, false));
    assert!(opened.ranges().contains(b"\0\x01") && opened.filter_bytes() == 4096);
    let mut failing = Rows::failing_at_the_end(rows(1000));
    assert!(opened.apply(&RangeSet::default(), &mut failing, mark(3), None).is_err());
    assert_eq!((opened.applied(), opened.torn()), (mark(2), Some(mark(3))));
    opened.apply(&RangeSet::default(), &mut Rows::new(rows(1000)), mark(3), None).unwrap();
    assert_eq!((opened.applied(), opened.torn()), (mark(3), None));
    all_are_found(1500);
}

fn a_retired_generation_goes_with_its_last_holder<R: Rig>() {
    let rig = R::new();
    let backend = rig.backend();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let retired = Generation::create(&backend, store, Mark::ROOT, Coverage::Changes, 0).unwrap();
    let kept = Generation::create(&backend, store, Mark::ROOT, Coverage::Changes, 0).unwrap();
    let kept_id = kept.id();
    let reader = std::sync::Arc::clone(&retired);
    retired.retire();
    drop(retired);
    assert_eq!(backend.engine().generations(store).unwrap().len(), 2);
    assert_eq!(backend.worker().pending(), 0);
    drop(reader);
    drop(kept);
    assert_eq!(backend.worker().pending(), 1);
    backend.worker().run_pending();
    let left: Vec<_> = backend.engine().generations(store).unwrap().iter().map(|record| record.id).collect();
    assert_eq!(left, [kept_id]);
}

/// One step of a random history of one generation.
#[derive(Debug, Clone)]
enum Step {
    Apply { deleted: Vec<(Vec<u8>, Option<Vec<u8>>)>, changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> },
    Flush,
    Reopen,
}

fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(1), Just(0xff)];
    (prop_oneof![Just(0), Just(u16::MAX)], prop::collection::vec(byte, 0..4))
        .prop_map(|(family, key)| full_key(FamilyId(family), &key))
}

fn any_step() -> impl Strategy<Value = Step> {
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    let deleted = prop::collection::vec((any_key(), prop::option::weighted(0.8, any_key())), 0..3);
    prop_oneof![
        8 => (deleted, prop::collection::btree_map(any_key(), value, 0..12))
            .prop_map(|(deleted, changes)| Step::Apply { deleted, changes }),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

fn every_history_agrees_with_a_map<R: Rig>() {
    let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
    let histories = (any::<bool>(), prop::collection::vec(any_step(), 1..25));
    let checked = runner.run(&histories, |(complete, steps)| {
        check_history::<R>(complete, steps);
        Ok(())
    });
    if let Err(failure) = checked {
        panic!("{failure}"); // names the seed and the shrunk history
    }
}

fn check_history<R: Rig>(complete: bool, steps: Vec<Step>) {
    let mut rig = R::new();
    let store = rig.engine().store(UID, &id("a")).unwrap();
    let coverage = if complete { Coverage::Complete } else { Coverage::Changes };
    let generation = rig.engine().create_generation(store, Mark::ROOT, coverage).unwrap().id;
    let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    let mut masked = RangeSet::default();
    for (version, step) in (1..).zip(steps) {
        match step {
            Step::Apply { deleted, changes } => {
                let deleted = ranges(deleted.into_iter().map(|(start, end)| KeyRange { start, end }));
                let mut cursor = Rows::new(changes.clone());
                rig.engine().apply(generation, &deleted, &mut cursor, mark(version), None).unwrap();
                model.retain(|key, _| !deleted.contains(key));
                model.extend(changes);
                if complete {
                    model.retain(|_, value| value.is_some());
                } else {
                    masked.extend(&deleted);
                }
            }
            Step::Flush => rig.engine().flush().unwrap(),
            Step::Reopen => rig = rig.reopened(),
        }
        let engine = rig.engine();
        let expected: Vec<Row> = model.clone().into_iter().collect();
        assert_eq!(rows_of(engine.cursor(generation, &KeyRange::ALL).unwrap()), expected);
        assert_eq!(engine.ranges(generation).unwrap(), masked);
        for (key, value) in &model {
            let found = engine.get(generation, key).unwrap().expect("the model has it");
            assert_eq!(found.map(|value| value.to_vec()).into_value(), *value);
        }
    }
}

macro_rules! for_every_engine {
    ($($behaviour:ident),* $(,)?) => {
        mod in_memory {
            $(#[test] fn $behaviour() { super::$behaviour::<super::InMemory>(); })*
        }
        #[cfg(feature = "rocksdb")]
        mod in_rocks {
            $(#[test] fn $behaviour() { super::$behaviour::<crate::backend::testing::InRocks>(); })*
        }
    };
}

for_every_engine!(
    what_is_applied_can_be_read,
    ranges_delete_what_is_older_and_mask_what_is_below,
    a_complete_generation_keeps_no_tombstones,
    a_cursor_sees_what_was_there_when_it_was_made,
    a_range_of_ff_bytes_ends_where_it_should,
    everything_is_there_after_a_reopen,
    another_uid_is_another_store,
    a_dropped_generation_is_gone_for_ever,
    version_records_come_back_in_order_and_can_be_forgotten,
    a_whole_state_comes_in_at_once,
    a_whole_state_that_is_stopped_or_fails_leaves_nothing,
    a_failing_delta_of_one_batch_changes_nothing,
    a_generation_finds_what_its_filter_has_seen,
    a_retired_generation_goes_with_its_last_holder,
    every_history_agrees_with_a_map,
);
