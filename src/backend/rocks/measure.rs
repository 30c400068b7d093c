//! Measurements, run by hand:
//! `cargo test --release --lib backend::rocks::measure -- --ignored --nocapture --test-threads 1`.

use std::ops::ControlFlow;
use std::time::Duration;

use rocksdb::{BlockBasedOptions, Cache, DB, Options};
use tempfile::tempdir;

use crate::backend::contract::Coverage;
use crate::backend::generation::Generation;
use crate::backend::handle::Backend;
use crate::backend::options::BackendOptions;
use crate::backend::testing::{Row, Rows, UID, id, mark, put};
use crate::entry::{FamilyId, Probe, full_key};
use crate::ranges::RangeSet;
use crate::version::{IdSource, Mark};

const LIMIT_BYTES: usize = 128 << 20;

/// What this thread has used of a processor: unlike time, it does not depend on what else the machine is doing.
fn now() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn since(start: Duration) -> Duration {
    now().saturating_sub(start)
}

fn key(n: u64) -> Vec<u8> {
    // Spread over the key space like hashes.
    let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    full_key(FamilyId(0), &[spread.to_be_bytes(), n.to_be_bytes()].concat())
}

fn value(n: u64) -> Vec<u8> {
    let ids = IdSource::seeded(n);
    std::iter::repeat_with(|| ids.run_id().0).flatten().take(100).collect()
}

fn sorted_rows(numbers: impl Iterator<Item = u64>) -> Vec<Row> {
    let mut rows: Vec<Row> = numbers.map(|n| put(&key(n), &value(n))).collect();
    rows.sort();
    rows.dedup_by(|a, b| a.0 == b.0);
    rows
}

fn random(seed: u64, count: usize, below: u64) -> Vec<u64> {
    let ids = IdSource::seeded(seed);
    let draw = || u64::from_le_bytes(ids.run_id().0[..8].try_into().unwrap()) % below;
    std::iter::repeat_with(draw).take(count).collect()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: median {median:?}, best {:?}, worst {worst:?}", times[0]);
}

fn per_get(what: &str, numbers: &[u64], mut get: impl FnMut(&[u8]) -> bool) {
    let keys: Vec<_> = numbers.iter().map(|n| key(*n)).collect();
    let start = now();
    let found = keys.iter().filter(|key| get(key)).count();
    let each = since(start) / u32::try_from(keys.len()).unwrap();
    println!("{what}: {each:?} of processor a get, {found} of {} found", keys.len());
}

#[test]
#[ignore = "a measurement"]
fn applying_to_and_reading_a_generation() {
    let dir = tempdir().unwrap();
    let backend = Backend::open(dir.path(), BackendOptions::default().memory_limit(LIMIT_BYTES)).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let generation =
        Generation::create(&backend, store, Mark::ROOT, Coverage::Changes, Generation::FILTER_BYTES).unwrap();
    for (version, part) in (0..500_000u64).collect::<Vec<_>>().chunks(10_000).enumerate() {
        let mut rows = Rows::new(sorted_rows(part.iter().copied()));
        generation.apply(&RangeSet::default(), &mut rows, mark(version as u64 + 1), None).unwrap();
    }
    let mut times = Vec::new();
    for round in 0..60 {
        let mut rows = Rows::new(sorted_rows(random(round, 10_000, 500_000).into_iter()));
        let start = now();
        generation.apply(&RangeSet::default(), &mut rows, mark(100 + round), None).unwrap();
        times.push(since(start));
    }
    report("apply 10k of 16+100 B to 500k keys", times);
    let known = random(7, 200_000, 500_000);
    let unknown: Vec<u64> = known.iter().map(|n| n + (1 << 40)).collect();
    let get = |key: &[u8]| generation.get(&Probe::new(key)).unwrap().is_some();
    per_get("warming", &known, get);
    per_get("generation of 500k keys, known", &known, get);
    per_get("generation of 500k keys, unknown", &unknown, get);
    println!("{:?}", backend.memory());
}

/// RocksDB as one would set it up by hand for the same memory.
fn by_hand(path: &std::path::Path) -> DB {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_hyper_clock_cache(LIMIT_BYTES / 8 * 5, 0));
    tables.set_block_size(4 << 10);
    tables.set_bloom_filter(10.0, false);
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_write_buffer_size(16 << 20);
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_compression_type(rocksdb::DBCompressionType::Lz4);
    DB::open(&options, path).unwrap()
}

fn resident_beside_rocksdb_by_hand(count: u64) {
    let rows = sorted_rows(0..count);
    let gets = random(3, 300_000, count);
    let dir = tempdir().unwrap();
    let hand = by_hand(&dir.path().join("hand"));
    let mut write = rocksdb::WriteOptions::default();
    write.disable_wal(true);
    for (key, value) in &rows {
        hand.put_opt(key, value.as_ref().unwrap(), &write).unwrap();
    }
    hand.flush().unwrap();
    hand.compact_range(None::<&[u8]>, None::<&[u8]>);

    let backend = Backend::open(dir.path().join("ours"), BackendOptions::default().memory_limit(LIMIT_BYTES)).unwrap();
    let store = backend.engine().store(UID, &id("a")).unwrap();
    let start = now();
    let go_on = |_| ControlFlow::Continue(());
    let record = backend.engine().ingest(store, &mut Rows::new(rows), mark(1), &go_on).unwrap();
    println!("{count} keys ingested in {:?}, {} bytes", since(start), backend.disk_bytes().unwrap());
    let resident = Generation::open(&backend, &record).unwrap();
    let ours = |key: &[u8]| resident.get(&Probe::new(key)).unwrap().is_some();
    let theirs = |key: &[u8]| hand.get_pinned(key).unwrap().is_some();
    for _ in 0..3 {
        per_get("by hand ", &gets, theirs);
        per_get("resident", &gets, ours);
    }
    println!("{:?}", backend.memory());
}

#[test]
#[ignore = "a measurement"]
fn resident_of_one_million_keys() {
    resident_beside_rocksdb_by_hand(1_000_000);
}

#[test]
#[ignore = "a measurement"]
fn resident_of_five_million_keys() {
    resident_beside_rocksdb_by_hand(5_000_000);
}
