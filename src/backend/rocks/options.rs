//! [`Tuning`]: how RocksDB is set up, and why.

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, CompactOptions, DBCompressionType, LogLevel, Options,
    WriteBufferManager,
};

use crate::backend::options::{BackendCompression, BackendOptions};

// The column families.
pub(super) const STATE: &str = "state";
pub(super) const VERSIONS: &str = "versions";
pub(super) const META: &str = "meta";

/// Table files are no larger and no smaller than this; also the bound of what a drop can leave behind in a file that it shares with
/// others. Whoever writes one holds its index and its filter in heap, some 10 bytes a key, and what is read of these is cached whole:
/// under a small limit the files are small.
const SMALLEST_FILE_BYTES: u64 = 8 << 20;
const LARGEST_FILE_BYTES: u64 = 64 << 20;
/// Rows of `versions` and `meta` are few; a small arena keeps two more column families from costing memory.
const SMALL_MEMTABLE_BYTES: usize = 8 << 20;
const SMALL_ARENA_BYTES: usize = 64 << 10;

/// The settings of one database, with the cache and the memtable accounting that all its column families share.
pub(super) struct Tuning {
    pub(super) cache: Cache,
    pub(super) memtables: WriteBufferManager,
    compression: DBCompressionType,
    pub(super) memtables_limit_bytes: usize,
    memtable_bytes: usize,
    /// A table file is about as large.
    pub(super) file_bytes: u64,
    max_open_files: u16,
}

impl Tuning {
    pub(super) fn new(options: &BackendOptions) -> Self {
        let cache = Cache::new_hyper_clock_cache(options.cache_bytes(), 0);
        // Never stalls: with several column families under one manager a stall can wait for itself.
        let memtables =
            WriteBufferManager::new_write_buffer_manager_with_cache(options.memtable_bytes(), false, cache.clone());
        let compression = match options.chosen_compression() {
            BackendCompression::None => DBCompressionType::None,
            BackendCompression::Lz4 => DBCompressionType::Lz4,
        };
        // Two can wait for their flush while a third is filled; with a batch on top, all stay near the manager's limit.
        let memtable_bytes = (options.memtable_bytes() / 4).clamp(256 << 10, 64 << 20);
        let (memtables_limit_bytes, max_open_files) = (options.memtable_bytes(), options.open_files());
        let file_bytes = (options.memory_limit_bytes() as u64 / 8).clamp(SMALLEST_FILE_BYTES, LARGEST_FILE_BYTES);
        Self { cache, memtables, compression, memtables_limit_bytes, memtable_bytes, file_bytes, max_open_files }
    }

    /// A write batch is handed over at this size; together with one entry it bounds what an apply holds in heap.
    pub(super) fn batch_bytes(&self) -> usize {
        (self.memtable_bytes / 2).min(4 << 20)
    }

    /// Settings of the database as a whole.
    pub(super) fn database(&self) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        // One prefix of history for all column families, without a log.
        options.set_atomic_flush(true);
        options.set_write_buffer_manager(&self.memtables);
        options.set_max_open_files(i32::from(self.max_open_files));
        options.set_max_background_jobs(2);
        // A compaction reads ahead in each of its files; with 2 MiB, as it is by itself, its memory grew with the levels.
        options.set_compaction_readahead_size(256 << 10);
        // The manifest and the info log must not grow with the age of the process.
        options.set_max_manifest_file_size(4 << 20);
        options.set_manifest_preallocation_size(64 << 10);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        options.set_max_log_file_size(1 << 20);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }

    /// The column families with their settings.
    pub(super) fn families(&self) -> Vec<ColumnFamilyDescriptor> {
        let small = || self.small_family();
        let all = [("default", small()), (STATE, self.state_family()), (VERSIONS, small()), (META, small())];
        all.into_iter().map(|(name, options)| ColumnFamilyDescriptor::new(name, options)).collect() // four
    }

    /// Settings of the family that holds the entries. Table files that are built for it use them too.
    pub(super) fn state_family(&self) -> Options {
        let mut options = Options::default();
        options.set_write_buffer_size(self.memtable_bytes);
        // A fourth would have to wait: back-pressure on the thread that applies, never on readers.
        options.set_max_write_buffer_number(3);
        options.set_target_file_size_base(self.file_bytes);
        options.set_max_bytes_for_level_base(4 * self.file_bytes);
        options.set_compression_type(self.compression);
        // A get that misses a memtable then costs one cache line instead of a walk down a skip list.
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(0.1);
        options.set_block_based_table_factory(&self.tables());
        options
    }

    fn small_family(&self) -> Options {
        let mut options = Options::default();
        options.set_write_buffer_size(SMALL_MEMTABLE_BYTES);
        options.set_arena_block_size(SMALL_ARENA_BYTES);
        options.set_compression_type(self.compression);
        options.set_block_based_table_factory(&self.tables());
        options
    }

    fn tables(&self) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&self.cache);
        tables.set_block_size(4 << 10);
        tables.set_format_version(6);
        tables.set_bloom_filter(10.0, false);
        tables.set_whole_key_filtering(true);
        // What is needed for every lookup is in the cache too, so that the limit holds, but is the last to be evicted.
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_cache_index_and_filter_blocks_with_high_priority(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        tables
    }
}

/// How the leftovers of dropped generations are compacted away: beside whatever else is compacting.
pub(super) fn reclaiming() -> CompactOptions {
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    options
}
