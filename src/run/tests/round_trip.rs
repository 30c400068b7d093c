//! What is written is read back, whatever the sizes, codecs and layouts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use proptest::prelude::*;

use super::support::*;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, Families, FamilyId, KeyRange, MAX_KEY_BYTES, Name, Probe, full_key};
use crate::error::ErrorKind;
use crate::ranges::RangeSet;
use crate::run::{Access, Packing, PageCodec, RunWriter, WriterOptions};
use crate::version::RunKind;

const CODECS: [PageCodec; 3] = [PageCodec::None, PageCodec::Lz4, PageCodec::Zstd];
const ACCESSES: [Access; 2] = [Access::Mapped, Access::Positioned];

/// Writes `entries` in every codec, packing and access and reads them back every way there is.
fn check_everywhere(kind: RunKind, page_bytes: Option<usize>, entries: &Entries) {
    for codec in CODECS {
        for packing in [Packing::Aligned, Packing::Packed] {
            let options = WriterOptions { packing, page_bytes };
            let bytes = write_with(&header(kind, codec), options, entries, &RangeSet::default(), b"meta");
            for access in ACCESSES {
                check_one(bytes.clone(), access, entries);
            }
        }
    }
}

fn check_one(bytes: Vec<u8>, access: Access, entries: &Entries) {
    let run = open(bytes, access).unwrap();
    assert_eq!(run.metadata(), b"meta");
    for (key, value) in entries {
        assert_eq!(run.get(&Probe::new(key)).unwrap(), Some(as_change(value.as_ref())));
        assert!(run.may_hold(&Probe::new(key)));
        let mut absent = key.clone();
        absent.push(0);
        if entries.binary_search_by(|(key, _)| key.cmp(&absent)).is_err() {
            assert_eq!(run.get(&Probe::new(&absent)).unwrap(), None);
        }
    }
    assert_eq!(scan(&run, KeyRange::ALL).unwrap(), *entries);
    run.verify(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(run.properties().entries, entries.len() as u64);
}

#[test]
fn an_empty_run_holds_nothing() {
    check_everywhere(RunKind::Delta, None, &Entries::new());
    let run = open(write(RunKind::Snapshot, &Entries::new()), Access::Mapped).unwrap();
    assert_eq!(run.get(&Probe::new(&key(b"x"))).unwrap(), None);
}

#[test]
fn a_run_of_one_key_holds_it() {
    check_everywhere(RunKind::Delta, None, &vec![(key(b""), Some(vec![]))]);
    check_everywhere(RunKind::Delta, None, &vec![(key(b"gone"), None)]);
    check_everywhere(RunKind::Snapshot, None, &vec![(key(vec![0xff; MAX_KEY_BYTES]), Some(vec![1]))]);
}

#[test]
fn values_around_every_limit_come_back() {
    let sizes = [0, 1, 4069, 4070, 4071, 4072, 4096, 16_350, 16_384, 65_535, 65_536, 65_537, 16 << 20];
    let entries =
        sizes.iter().enumerate().map(|(n, size)| (key([u8::try_from(n).unwrap()]), Some(vec![7; *size]))).collect();
    check_everywhere(RunKind::Snapshot, None, &entries);
}

#[test]
fn families_are_kept_apart_and_counted() {
    let mut header = header(RunKind::Delta, PageCodec::None);
    let mut families = Families::default();
    for n in 1..1024 {
        families.find_or_add(Name::new(format!("f{n}")).unwrap()).unwrap();
    }
    header.families = families;
    let mut entries = Entries::new();
    for n in (0u16..1024).step_by(3) {
        entries.push((full_key(FamilyId(n), b"a"), Some(n.to_le_bytes().to_vec())));
        entries.push((full_key(FamilyId(n), b"b"), None));
    }
    let run = open(write_with(&header, packed(), &entries, &RangeSet::default(), b""), Access::Mapped).unwrap();
    assert_eq!(run.header(), &header);
    assert_eq!(run.properties().families.len(), 342);
    assert!(run.properties().families.iter().all(|(_, entries)| *entries == 2));
    let one = scan(&run, KeyRange::within(FamilyId(6), None, None)).unwrap();
    assert_eq!(one, entries[4..6]);
    assert_eq!(scan(&run, KeyRange::prefix(FamilyId(9), b"b")).unwrap(), entries[7..8]);
}

#[test]
fn many_stripes_are_searched_like_one() {
    // Pages of 64 bytes make stripes of 1024 pages after a few thousand entries.
    let entries = numbered(9_000, 8);
    let options = WriterOptions { packing: Packing::Packed, page_bytes: Some(64) };
    let header = header(RunKind::Snapshot, PageCodec::None);
    let bytes = write_with(&header, options, &entries, &RangeSet::default(), b"meta");
    for access in ACCESSES {
        check_one(bytes.clone(), access, &entries);
    }
    let run = open(bytes, Access::Mapped).unwrap();
    for (low, high) in [(0, 0), (0, 9_000), (1, 2), (4_095, 4_097), (3_000, 3_001), (8_999, 9_500)] {
        let range = KeyRange { start: key(format!("{low:08}")), end: Some(key(format!("{high:08}"))) };
        let expected: Entries = entries.iter().filter(|(key, _)| range.contains(key)).cloned().collect();
        assert_eq!(scan(&run, range).unwrap(), expected, "{low}..{high}");
    }
}

#[test]
fn a_value_is_a_view_of_the_mapping() {
    let run = open(write(RunKind::Snapshot, &numbered(100, 50)), Access::Mapped).unwrap();
    let full = key("00000042");
    let first = run.get(&Probe::new(&full)).unwrap().unwrap().into_value().unwrap();
    let second = run.get(&Probe::new(&full)).unwrap().unwrap().into_value().unwrap();
    assert_eq!(first.as_ptr(), second.as_ptr());
    let mut cursor = run.cursor(KeyRange { start: full, end: None });
    assert!(cursor.advance().unwrap());
    assert_eq!(cursor.change_bytes().into_value().unwrap().as_ptr(), first.as_ptr());
    drop((run, cursor));
    assert_eq!(first.len(), 50); // outlives the run
}

#[test]
fn opening_reads_no_entry_and_holds_nothing_per_key() {
    let small = open(write(RunKind::Snapshot, &numbered(10, 100)), Access::Mapped).unwrap();
    let large = open(write(RunKind::Snapshot, &numbered(60_000, 100)), Access::Mapped).unwrap();
    assert!(large.file_bytes() > 6_000_000);
    assert_eq!(large.blocks_read(), 4);
    assert!(large.bytes_read() < 1_000, "{}", large.bytes_read());
    assert!(large.heap_bytes() < small.heap_bytes() + 300, "{} {}", large.heap_bytes(), small.heap_bytes());
    assert!(large.get(&Probe::new(&key("00000042"))).unwrap().is_some());
    assert_eq!(large.blocks_read(), 7, "a filter, a page index and a page");
}

#[test]
fn a_filter_is_asked_once_it_has_been_checked_and_lets_every_key_pass() {
    const KEYS: u64 = 140_000; // in three stripes
    let bytes = write(RunKind::Snapshot, &numbered(KEYS, 10));
    let mapped = open(bytes.clone(), Access::Mapped).unwrap();
    let positioned = open(bytes, Access::Positioned).unwrap();
    let (present, absent): (Vec<_>, Vec<_>) =
        (0..KEYS).map(|n| (key(format!("{n:08}")), key(format!("{n:08}x")))).unzip();
    assert!(absent.iter().all(|key| mapped.may_hold(&Probe::new(key))), "nobody has looked into it yet");
    assert!(present.iter().step_by(1000).all(|key| mapped.get(&Probe::new(key)).unwrap().is_some()));
    assert!(present.iter().all(|key| mapped.may_hold(&Probe::new(key))));
    let wrong = absent.iter().filter(|key| mapped.may_hold(&Probe::new(key))).count();
    assert!(wrong < 2_600, "{wrong} absent keys pass");
    assert!(absent.iter().all(|key| positioned.may_hold(&Probe::new(key))), "a look would read it");
}

#[test]
fn a_small_packed_delta_is_small() {
    let bytes =
        write_with(&header(RunKind::Delta, PageCodec::None), packed(), &numbered(10, 100), &RangeSet::default(), b"");
    assert!(bytes.len() < 1_900, "{} bytes for 1,180 of entries", bytes.len());
}

#[test]
fn the_file_sees_large_writes() {
    let mut file = MemoryFile::default();
    let header = header(RunKind::Snapshot, PageCodec::None);
    let mut writer = RunWriter::new(&mut file, Path::new("x"), &header, WriterOptions::default()).unwrap();
    for (key, value) in numbered(10_000, 100) {
        writer.put(&key, &value.unwrap()).unwrap();
    }
    writer.finish(b"").unwrap();
    let (_, all_but_last) = file.appends.split_last().unwrap();
    assert!(all_but_last.iter().all(|append| *append >= 64 << 10), "{:?}", file.appends);
}

#[test]
fn range_tombstones_and_metadata_come_back() {
    let mut ranges = RangeSet::default();
    ranges.insert(KeyRange::prefix(FamilyId(0), b"a"));
    ranges.insert(KeyRange::within(FamilyId(1), Some(b"x"), None));
    ranges.insert(KeyRange { start: vec![0, 2], end: None });
    for access in ACCESSES {
        let header = header(RunKind::Delta, PageCodec::None);
        let run = open(write_with(&header, packed(), &numbered(3, 3), &ranges, b"offsets"), access).unwrap();
        assert_eq!(**run.ranges(), ranges);
        assert_eq!(run.metadata(), b"offsets");
        assert!(run.covers(&key(b"abc")) && !run.covers(&key(b"b")));
    }
    let mut all = RangeSet::default();
    all.insert(KeyRange::ALL);
    let bytes = write_with(&header(RunKind::Delta, PageCodec::None), packed(), &Entries::new(), &all, b"");
    assert_eq!(**open(bytes, Access::Mapped).unwrap().ranges(), all);
}

#[test]
fn wrong_calls_are_refused_before_anything_is_written() {
    fn refused(kind: RunKind, call: impl FnOnce(&mut RunWriter<'_>) -> crate::error::Result<()>) -> ErrorKind {
        let mut file = MemoryFile::default();
        let header = header(kind, PageCodec::None);
        let mut writer = RunWriter::new(&mut file, Path::new("x"), &header, packed()).unwrap();
        writer.put(&key(b"m"), b"v").unwrap();
        call(&mut writer).unwrap_err().kind().clone()
    }
    let mut some = RangeSet::default();
    some.insert(KeyRange::ALL);
    assert_eq!(refused(RunKind::Delta, |w| w.put(&key(b"m"), b"v")), ErrorKind::InvalidInput);
    assert_eq!(refused(RunKind::Delta, |w| w.put(&key(b"l"), b"v")), ErrorKind::InvalidInput);
    assert_eq!(refused(RunKind::Delta, |w| w.put(&[1], b"v")), ErrorKind::InvalidInput);
    assert_eq!(refused(RunKind::Delta, |w| w.put(&full_key(FamilyId(2), b"m"), b"v")), ErrorKind::InvalidInput);
    assert_eq!(refused(RunKind::Snapshot, |w| w.tombstone(&key(b"z"))), ErrorKind::InvalidInput);
    assert_eq!(refused(RunKind::Snapshot, |w| w.range_tombstones(&some)), ErrorKind::InvalidInput);
    let long = vec![b'z'; MAX_KEY_BYTES + 1];
    assert!(matches!(refused(RunKind::Delta, |w| w.put(&key(&long), b"v")), ErrorKind::LimitExceeded { .. }));
    let after_failure = refused(RunKind::Delta, |w| {
        w.put(&key(b"a"), b"v").unwrap_err();
        w.put(&key(b"z"), b"v")
    });
    assert_eq!(after_failure, ErrorKind::Poisoned);
    let contradictions: [fn(&mut crate::run::RunHeader); 4] = [
        |h| h.from = h.to,
        |h| h.parent = crate::version::RunId::NONE,
        |h| h.kind = RunKind::Snapshot,
        |h| h.tip = crate::version::RunId([9; 16]),
    ];
    for contradict in contradictions {
        let mut wrong = header(RunKind::Delta, PageCodec::None);
        contradict(&mut wrong);
        assert!(RunWriter::new(&mut MemoryFile::default(), Path::new("x"), &wrong, packed()).is_err());
    }
}

#[test]
fn verify_stops_when_told_to() {
    let run = open(write(RunKind::Snapshot, &numbered(1_000, 100)), Access::Mapped).unwrap();
    let mut calls = 0;
    let stopped = run.verify(&mut |_| {
        calls += 1;
        if calls < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(stopped.unwrap_err().kind(), &ErrorKind::Cancelled);
    assert_eq!(calls, 3);
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![Just(0u8), Just(255), Just(b'a'), any::<u8>()], 0..12),
        2 => (0usize..40, any::<u8>()).prop_map(|(n, last)| [vec![b'p'; n], vec![last]].concat()),
        1 => (0usize..=MAX_KEY_BYTES).prop_map(|n| vec![b'k'; n]),
    ]
}

fn values() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        2 => Just(None),
        6 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Some),
        1 => (0usize..100_000, any::<u8>()).prop_map(|(n, byte)| Some(vec![byte; n])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_entries_come_back(
        map in prop::collection::btree_map((0u16..2, keys()), values(), 0..120),
        page_bytes in prop_oneof![Just(None), (16usize..2_000).prop_map(Some)],
        bounds in (keys(), keys()),
    ) {
        let map: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            map.into_iter().map(|((family, key), value)| (full_key(FamilyId(family), &key), value)).collect();
        let entries: Entries = map.into_iter().collect();
        check_everywhere(RunKind::Delta, page_bytes, &entries);

        let header = header(RunKind::Delta, PageCodec::None);
        let options = WriterOptions { packing: Packing::Packed, page_bytes };
        let run = open(write_with(&header, options, &entries, &RangeSet::default(), b""), Access::Mapped).unwrap();
        let range = KeyRange::within(FamilyId(0), Some(&bounds.0), Some(&bounds.1));
        let expected: Entries = entries.iter().filter(|(key, _)| range.contains(key)).cloned().collect();
        prop_assert_eq!(scan(&run, range).unwrap(), expected);
    }
}

#[test]
fn bytes_of_a_compressed_page_outlive_the_next_step() {
    let header = header(RunKind::Snapshot, PageCodec::Lz4);
    let entries = numbered(2_000, 40);
    let run = open(write_with(&header, packed(), &entries, &RangeSet::default(), b""), Access::Mapped).unwrap();
    assert!(run.file_bytes() < 2_000 * 50);
    let mut cursor = run.cursor(KeyRange::ALL);
    let mut kept: Vec<(Bytes, Change<Bytes>)> = Vec::new();
    while cursor.advance().unwrap() {
        kept.push((cursor.key_bytes(), cursor.change_bytes()));
    }
    assert!(kept.iter().zip(&entries).all(|((k, v), (key, value))| **k == **key && *v == as_change(value.as_ref())));
}

#[test]
fn readers_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<crate::run::Run>();
    sent::<crate::run::cursor::RunCursor>();
    sent::<crate::run::merge::Live<crate::run::Merge>>();
}
