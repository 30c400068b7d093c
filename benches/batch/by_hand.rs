//! The rival: RocksDB used by hand, the way somebody who knows it well would set it up for this very workload.
//!
//! - one `WriteBatch` a commit, sorted by key (the median commit was 34 ms instead of 79), write-ahead log on, synced
//! - 4 KiB blocks, hash index in data blocks, bloom filters with 10 bits a key, none on the last level (every key exists),
//!   bloom filter over the memtable, whole keys
//! - one `HyperClock` cache that holds index and filter blocks too, and that the write buffers are charged to: the memory
//!   limit is the size of that cache
//! - no compression: on a busy machine with 1 million keys 174,000 and 133,000 operations/s in two runs, with LZ4 109,000 and
//!   124,000 (`BY_HAND_LZ4=1` turns it on)
//! - point reads without a copy (`get_pinned`), without a second checksum (the page cache is trusted, as by the mapped runs)
//!
//! It keeps the newest state only: no older version can be read, and nothing can be replayed elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use alluvium::{Clock, SystemClock};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, FlushOptions, IteratorMode, Options,
    ReadOptions, WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};

use crate::contender::{Contender, Each};
use crate::measure::Failure;
use crate::measure::workload::{BATCH_KEYS, Key, Workload, key, updates, value};

/// RocksDB with a synced log.
pub(crate) struct ByHand {
    db: DB,
    reading: ReadOptions,
    durable: WriteOptions,
}

impl ByHand {
    pub(crate) fn open(dir: PathBuf, limit_bytes: usize, compressed: bool) -> Result<Self, Failure> {
        let db = DB::open(&options(limit_bytes, compressed), dir)?;
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        let mut reading = ReadOptions::default();
        reading.set_verify_checksums(false);
        Ok(Self { db, reading, durable })
    }

    fn wait(&self) -> Result<(), Failure> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }
}

fn options(limit_bytes: usize, compressed: bool) -> Options {
    let cache = Cache::new_hyper_clock_cache(limit_bytes, 0);
    let mut table = BlockBasedOptions::default();
    table.set_block_size(4 << 10);
    table.set_block_cache(&cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_format_version(6);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_optimize_filters_for_hits(true);
    options.set_compression_type(if compressed { DBCompressionType::Lz4 } else { DBCompressionType::None });
    options.set_write_buffer_size(limit_bytes / 4);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        limit_bytes / 2,
        false,
        cache,
    ));
    options.set_memtable_prefix_bloom_ratio(0.1);
    options.set_memtable_whole_key_filtering(true);
    options.set_max_background_jobs(4);
    options.set_bytes_per_sync(1 << 20);
    options
}

impl Contender for ByHand {
    fn load(&mut self, workload: &Workload) -> Result<(), Failure> {
        let mut unlogged = WriteOptions::default();
        unlogged.disable_wal(true);
        let mut batch = WriteBatch::default();
        for number in 0..workload.keys {
            let key = key(number);
            batch.put(key, value(&key, 0));
            if batch.len() == BATCH_KEYS {
                self.db.write_opt(std::mem::take(&mut batch), &unlogged)?;
            }
        }
        self.db.write_opt(batch, &unlogged)?;
        self.db.flush_opt(&FlushOptions::default())?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        self.wait()
    }

    fn batch(&mut self, picks: &[Key], clock: &SystemClock) -> Result<Duration, Failure> {
        let mut changes = Vec::with_capacity(picks.len());
        for key in picks {
            let stored = self.db.get_pinned_opt(key, &self.reading)?;
            let count = stored.and_then(|stored| updates(key, &stored)).ok_or("a key has lost its value")?;
            changes.push((*key, value(key, count + 1)));
        }
        let began = clock.elapsed();
        // Neighbours go into the memtable one after the other, so that it finds their places in the processor's cache.
        changes.sort_unstable_by_key(|(key, _)| *key);
        let mut batch = WriteBatch::default();
        for (key, value) in &changes {
            batch.put(key, value);
        }
        self.db.write_opt(batch, &self.durable)?;
        Ok(clock.elapsed().saturating_sub(began))
    }

    fn scan(&mut self, each: &mut Each<'_>) -> Result<(), Failure> {
        for entry in self.db.iterator(IteratorMode::Start) {
            let (key, value) = entry?;
            each(&key, &value)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.wait()
    }

    fn reopen(&mut self, _: &Key, _: &SystemClock) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }

    fn roll_back(&mut self, _: &Key, _: &SystemClock) -> Result<Option<Duration>, Failure> {
        Ok(None)
    }
}
