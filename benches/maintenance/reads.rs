//! Point gets through views: one snapshot, a snapshot with eight collapsed deltas above it, and RocksDB's own.

use std::path::Path;

use alluvium::{
    Clock, FamilyId, ReadStore, RocksDbProvider, StateStoreProvider, StoreOptions, SystemClock, Upkeep, Version,
};
use rocksdb::{BlockBasedOptions, Cache, DB, Options, WriteBatch, WriteOptions};

use crate::measure::report::{Must, Report, median};
use crate::measure::workload::{BATCH_KEYS, Key, key, value};
use crate::setup::{Place, batch, get, load, picks};
use crate::{Args, Failure, float};

const CACHE_BYTES: usize = 128 << 20;
const COLLAPSED: u64 = 8;
const ROUNDS: u64 = 5;

pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let dir = tempfile::tempdir_in(&args.dir)?;
    let clock = SystemClock::new();
    let provider =
        Place::new(dir.path()).open(StoreOptions::default().upkeep(Upkeep::Manual).collapse_from(u64::MAX))?;
    eprintln!("\n{} keys, {} gets", args.read_keys, args.gets);
    load(&provider, args.read_keys)?;
    let snapshot = provider.latest()?;
    for number in 0..2 * COLLAPSED {
        batch(&provider, &picks(args.read_keys, number), &clock)?;
        if number % 2 == 1 {
            provider.collapse()?;
        }
    }
    let rival = by_hand(&dir.path().join("by hand"), args.read_keys)?;
    let (mut alone, mut layered, mut absent, mut rivals) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let keys = random_keys(args, round);
        let rates = [
            gets(&provider, snapshot, &keys, &clock)?,
            gets(&provider, provider.latest()?, &keys, &clock)?,
            absent_gets(&provider, args.gets, &clock)?,
            rival_gets(&rival, &keys, &clock)?,
        ];
        // The first round warms the page cache.
        if let [one, eight, none, own] = rates
            && round > 0
        {
            alone.push(one);
            layered.push(eight);
            absent.push(none);
            rivals.push(own);
        }
    }
    let must = |must| args.required.then_some(must);
    let ratio = |over: &[f64], under: &[f64]| median(over.iter().zip(under).map(|(over, under)| over / under));
    report.figure("gets from one snapshot", median(alone.iter().copied()) / 1e6, "M/s", None)?;
    report.figure("gets from RocksDB", median(rivals.iter().copied()) / 1e6, "M/s", None)?;
    let eight = format!("gets through {COLLAPSED} collapsed deltas / one snapshot");
    report.figure(&eight, ratio(&layered, &alone), "×", must(Must::AtLeast(0.6)))?;
    let absent_case = format!("gets of absent keys through {COLLAPSED} collapsed deltas");
    report.figure(&absent_case, median(absent) / 1e6, "M/s", must(Must::AtLeast(2.0)))?;
    report.figure("gets from one snapshot / RocksDB", ratio(&alone, &rivals), "×", must(Must::AtLeast(4.0)))
}

/// Keys that exist, at random.
fn random_keys(args: &Args, round: u64) -> Vec<Key> {
    let batches = args.gets / BATCH_KEYS as u64 + 1;
    let all = (0..batches).flat_map(|number| picks(args.read_keys, (round << 32) + (1 << 20) + number));
    all.take(usize::try_from(args.gets).unwrap_or(usize::MAX)).collect()
}

fn rate(count: usize, clock: &SystemClock, mut act: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let began = clock.elapsed();
    act()?;
    Ok(float(count as u64) / clock.elapsed().saturating_sub(began).as_secs_f64())
}

fn gets(provider: &RocksDbProvider, at: Version, keys: &[Key], clock: &SystemClock) -> Result<f64, Failure> {
    let view = provider.read_at(at)?;
    get(&view, keys.first().ok_or("no keys")?)?;
    rate(keys.len(), clock, || {
        for key in keys {
            view.get(FamilyId::DEFAULT, key)?.ok_or("a key is missing")?;
        }
        Ok(())
    })
}

fn absent_gets(provider: &RocksDbProvider, count: u64, clock: &SystemClock) -> Result<f64, Failure> {
    let view = provider.read_at(provider.latest()?)?;
    let keys: Vec<Key> = (0..count).map(|number| key((1 << 60) + number)).collect();
    rate(keys.len(), clock, || {
        let found = keys.iter().try_fold(0, |found, key| {
            view.get(FamilyId::DEFAULT, key).map(|value| found + u32::from(value.is_some()))
        })?;
        if found > 0 { Err("a key is there that never was".into()) } else { Ok(()) }
    })
}

/// The same keys and values in RocksDB, with a block cache that holds a part of them, as its users have it.
fn by_hand(dir: &Path, keys: u64) -> Result<DB, Failure> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    let db = DB::open(&options, dir)?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut batch = WriteBatch::default();
    for number in 0..keys {
        let key = key(number);
        batch.put(key, value(&key, 0));
        if batch.len() == BATCH_KEYS {
            db.write_opt(std::mem::take(&mut batch), &unlogged)?;
        }
    }
    db.write_opt(batch, &unlogged)?;
    db.flush()?;
    db.compact_range::<&[u8], &[u8]>(None, None);
    Ok(db)
}

fn rival_gets(db: &DB, keys: &[Key], clock: &SystemClock) -> Result<f64, Failure> {
    rate(keys.len(), clock, || {
        for key in keys {
            db.get(key)?.ok_or("a key is missing")?;
        }
        Ok(())
    })
}
