//! [`Db`]: the open database with its column families at hand, and how its keys and values look.

#![expect(clippy::mem_forget, reason = "inside `self_cell`, where it hands memory over")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::{Cache, ColumnFamily, DB, FlushOptions, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions};
use self_cell::self_cell;

use super::options::{META, STATE, Tuning, VERSIONS};
use super::record::version_key;
use crate::backend::contract::{GenerationId, StoreNumber, VersionRecord};
use crate::backend::workdir::WorkDir;
use crate::bytes::Bytes;
use crate::entry::{Change, KeyRange, successor};
use crate::error::{Error, ErrorKind, Result};

/// Bytes in front of a full key: store and generation.
pub(super) const PREFIX_BYTES: usize = 8;
/// Keys up to this length are looked up without touching the heap.
const STACK_KEY_BYTES: usize = 128;

const TOMBSTONE: u8 = 0;
const PUT: u8 = 1;

/// The column families of an open database.
pub(super) struct Handles<'a> {
    default: &'a ColumnFamily,
    pub(super) state: &'a ColumnFamily,
    pub(super) versions: &'a ColumnFamily,
    pub(super) meta: &'a ColumnFamily,
}

self_cell! {
    /// The database, and its column families, which are looked up once.
    pub(super) struct Tables {
        owner: DB,
        #[covariant]
        dependent: Handles,
    }
}

/// The open database. Dropping it flushes and closes it, and only then gives the work directory's lock back.
pub(super) struct Db {
    tables: Tables,
    read: ReadOptions,
    write: WriteOptions,
    pub(super) cache: Cache,
    pub(super) memtables: WriteBufferManager,
    pub(super) tuning: Tuning,
    pub(super) dir: WorkDir,
    /// How often memtables were flushed for lack of memory.
    pub(super) forced_flushes: AtomicU64,
}

/// What comes of opening a database.
pub(super) type Opened<T> = std::result::Result<T, OpenFailure>;

/// Why a database could not be opened.
#[derive(Debug)]
pub(super) enum OpenFailure {
    /// Its files are not what they were; without them it would open.
    Damaged(Error),
    /// Something that starting afresh would not mend.
    Refused(Error),
}

impl OpenFailure {
    pub(super) fn from_rocks(path: &Path, error: rocksdb::Error) -> Self {
        let refused = is_of_the_disk(error.as_ref());
        let error = translate(path, "open the index", error);
        if refused { Self::Refused(error) } else { Self::Damaged(error) }
    }

    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Damaged(error) | Self::Refused(error) => error,
        }
    }

    fn missing_family(path: &Path, name: &str) -> Self {
        Self::Damaged(Error::corrupt(path, 0, format!("a column family {name}"), "none"))
    }
}

impl Tables {
    /// Opens the database at `path`, which is made where it is missing.
    pub(super) fn open(path: &Path, tuning: &Tuning) -> Opened<Self> {
        let opened = DB::open_cf_descriptors(&tuning.database(), path, tuning.families());
        let db = opened.map_err(|error| OpenFailure::from_rocks(path, error))?;
        Self::try_new(db, |db| {
            let find = |name| db.cf_handle(name).ok_or_else(|| OpenFailure::missing_family(path, name));
            Ok(Handles { default: find("default")?, state: find(STATE)?, versions: find(VERSIONS)?, meta: find(META)? })
        })
    }

    pub(super) fn db(&self) -> &DB {
        self.borrow_owner()
    }

    pub(super) fn handles(&self) -> &Handles<'_> {
        self.borrow_dependent()
    }
}

impl Db {
    pub(super) fn new(tables: Tables, tuning: Tuning, dir: WorkDir) -> Self {
        let (cache, memtables) = (tuning.cache.clone(), tuning.memtables.clone());
        let (read, write, forced_flushes) = (ReadOptions::default(), unlogged(), AtomicU64::new(0));
        Self { tables, read, write, cache, memtables, tuning, dir, forced_flushes }
    }

    pub(super) fn raw(&self) -> &DB {
        self.tables.db()
    }

    pub(super) fn handles(&self) -> &Handles<'_> {
        self.tables.handles()
    }

    /// Adds a store's version to a batch.
    pub(super) fn put_version(&self, batch: &mut WriteBatch, store: StoreNumber, version: &VersionRecord) {
        batch.put_cf(self.handles().versions, version_key(store, version.at.at), version.encode());
    }

    /// Writes a batch: all of it or nothing is there after a crash.
    pub(super) fn write(&self, batch: WriteBatch) -> Result<()> {
        self.raw().write_opt(batch, &self.write).map_err(|error| self.failed("write to the index", error))?;
        // The batch is written whatever comes of this: a failure that lasts shows in the next write.
        if let Err(error) = self.relieve() {
            tracing::warn!(%error, "memtables could not be flushed early");
        }
        Ok(())
    }

    /// Starts to flush the memtables where all families together come near what they may have. Nobody waits for it; the
    /// write buffer manager would do the same a little later, uncounted.
    fn relieve(&self) -> Result<()> {
        let near = self.tuning.memtables_limit_bytes / 8 * 7;
        if self.memtables.get_usage() < near || self.active_memtables_bytes()? < near / 2 {
            return Ok(()); // or most of it is being flushed already
        }
        self.forced_flushes.fetch_add(1, Ordering::Relaxed);
        let mut options = FlushOptions::default();
        options.set_wait(false);
        self.flush_with(&options)
    }

    fn active_memtables_bytes(&self) -> Result<usize> {
        let Handles { state, versions, meta, .. } = self.handles();
        let mut sum = 0;
        for family in [*state, *versions, *meta] {
            let bytes = self.raw().property_int_value_cf(family, "rocksdb.cur-size-active-mem-table");
            sum += bytes.map_err(|error| self.failed("ask the index", error))?.unwrap_or(0);
        }
        Ok(usize::try_from(sum).unwrap_or(usize::MAX))
    }

    pub(super) fn get(&self, generation: GenerationId, full_key: &[u8]) -> Result<Option<Change<Bytes>>> {
        let mut stack = [0; PREFIX_BYTES + STACK_KEY_BYTES];
        let heap;
        let key = if let Some(place) = stack.get_mut(..PREFIX_BYTES + full_key.len()) {
            let (front, back) = place.split_at_mut(PREFIX_BYTES);
            front.copy_from_slice(&prefix(generation));
            back.copy_from_slice(full_key);
            &*place
        } else {
            heap = state_key(generation, full_key);
            &heap
        };
        let found = self.raw().get_pinned_cf_opt(self.handles().state, key, &self.read);
        let found = found.map_err(|error| self.failed("read from the index", error))?;
        found.map(|value| Ok(self.decode_value(&value)?.map(Bytes::copy_from))).transpose()
    }

    /// Takes a value of the state family apart.
    pub(super) fn decode_value<'v>(&self, stored: &'v [u8]) -> Result<Change<&'v [u8]>> {
        match stored.split_first() {
            Some((&PUT, value)) => Ok(Change::Put(value)),
            Some((&TOMBSTONE, [])) => Ok(Change::Tombstone),
            other => {
                self.dir.condemn();
                let found = other.map_or("nothing".to_owned(), |(tag, _)| format!("tag {tag}"));
                Err(Error::corrupt(self.raw().path(), 0, "a put or a tombstone", found))
            }
        }
    }

    /// Writes the memtables of all column families to files, at one point of their common history.
    pub(super) fn flush(&self) -> Result<()> {
        self.flush_with(&FlushOptions::default())
    }

    fn flush_with(&self, options: &FlushOptions) -> Result<()> {
        let Handles { default, state, versions, meta } = self.handles();
        let flushed = self.raw().flush_cfs_opt(&[*default, *state, *versions, *meta], options);
        flushed.map_err(|error| self.failed("flush the index", error))
    }

    /// Turns an error of RocksDB into one of ours. Damage is noted in the work directory, so that the next open starts afresh.
    pub(super) fn failed(&self, doing: &str, error: rocksdb::Error) -> Error {
        if is_damage(&error) {
            self.dir.condemn();
        }
        translate(self.raw().path(), doing, error)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // So that a reopen has nothing to replay. Losing it is allowed, so a failure only costs time.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "could not flush the index while closing it");
        }
    }
}

/// Whether the error says that files are not what they were, as opposed to a disk that is full or refuses.
fn is_damage(error: &rocksdb::Error) -> bool {
    let text = error.as_ref();
    match error.kind() {
        rocksdb::ErrorKind::Corruption => !is_of_the_disk(text),
        rocksdb::ErrorKind::IOError => text.contains("No such file"),
        _ => false,
    }
}

/// Whether the system refused, in a way that wiping the index would not mend.
fn is_of_the_disk(text: &str) -> bool {
    const SIGNS: [&str; 7] = [
        "No space left",
        "Disk quota",
        "Permission denied",
        "Read-only file system",
        "Too many open files",
        "lock file",
        "lock hold",
    ];
    SIGNS.iter().any(|sign| text.contains(sign))
}

pub(super) fn translate(path: &Path, doing: &str, error: rocksdb::Error) -> Error {
    let path = path.to_path_buf();
    let text = error.as_ref();
    let kind = if text.contains("No space left") || text.contains("Disk quota") {
        ErrorKind::DiskFull { path }
    } else if text.contains("Permission denied") || text.contains("Read-only file system") {
        ErrorKind::PermissionDenied { path }
    } else {
        ErrorKind::Engine
    };
    Error::new(kind, format!("could not {doing}")).with_source(error)
}

fn unlogged() -> WriteOptions {
    let mut write = WriteOptions::default();
    write.disable_wal(true); // the deltas are the log
    write
}

/// The bytes in front of all keys of a generation. Big-endian, so that generations lie one after the other.
pub(super) fn prefix(generation: GenerationId) -> [u8; PREFIX_BYTES] {
    let number = u64::from(generation.store.0) << 32 | u64::from(generation.number);
    number.to_be_bytes()
}

pub(super) fn state_key(generation: GenerationId, full_key: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(PREFIX_BYTES + full_key.len());
    encode_state_key(generation, full_key, &mut key);
    key
}

pub(super) fn encode_state_key(generation: GenerationId, full_key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&prefix(generation));
    out.extend_from_slice(full_key);
}

/// Where the state keys of a range of full keys begin and end.
pub(super) fn state_range(generation: GenerationId, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let start = state_key(generation, &range.start);
    let end = match &range.end {
        Some(end) => state_key(generation, end),
        None => successor(&prefix(generation)).unwrap_or_else(|| vec![0xff; PREFIX_BYTES + 1]),
    };
    (start, end)
}

/// Makes a value of the state family in `out`.
pub(super) fn encode_value(change: Change<&[u8]>, out: &mut Vec<u8>) {
    out.clear();
    match change {
        Change::Put(value) => {
            out.push(PUT);
            out.extend_from_slice(value);
        }
        Change::Tombstone => out.push(TOMBSTONE),
    }
}
