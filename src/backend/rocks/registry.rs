//! [`Registry`]: which stores and generations there are; held in heap, written to the `meta` family row by row.
//!
//! ```text
//! n                                   last store number u32 · last generation number u32
//! s operator/partition/name           uid 16 · store number u32
//! g generation (8, BE)                from · applied · complete u8 · torn u8 [· mark]
//! r generation (8, BE) · start        1 · end | 0                  a deleted range
//! d generation (8, BE)                nothing                      dropped, disk not freed yet
//! ```
//! Integers in values are little-endian.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rocksdb::{IteratorMode, WriteBatch};

use super::families::{Db, OpenFailure, Opened, PREFIX_BYTES, Tables, prefix};
use super::record::{put_mark, read_mark};
use crate::backend::contract::{Coverage, GenerationId, GenerationRecord, StoreNumber, unknown_generation};
use crate::codec::{Put, Reader};
use crate::entry::{KeyRange, StateStoreId, successor};
use crate::error::{Error, Result};
use crate::ranges::RangeSet;
use crate::version::StoreUid;

const NUMBERS: u8 = b'n';
const STORE: u8 = b's';
const GENERATION: u8 = b'g';
const RANGE: u8 = b'r';
const DROPPED: u8 = b'd';

/// What the `meta` family says. Memory: a small record a store and a generation, and their deleted ranges.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) stores: BTreeMap<StateStoreId, (StoreUid, StoreNumber)>,
    pub(super) generations: BTreeMap<GenerationId, Known>,
    /// Dropped, but their disk has not been freed yet.
    pub(super) dropped: BTreeSet<GenerationId>,
    last_store: u32,
    last_generation: u32,
}

/// A generation as the registry has it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) record: GenerationRecord,
    pub(super) ranges: Arc<RangeSet>,
}

impl Registry {
    /// Reads the `meta` family, and finds generations whose entries are there without a record.
    pub(super) fn load(tables: &Tables) -> Opened<Self> {
        let path = tables.db().path();
        let mut registry = Self::default();
        for row in tables.db().iterator_cf(tables.handles().meta, IteratorMode::Start) {
            let (key, value) = row.map_err(|error| OpenFailure::from_rocks(path, error))?;
            registry.take_row(path, &key, &value).map_err(OpenFailure::Damaged)?;
        }
        registry.find_strays(tables)?;
        Ok(registry)
    }

    pub(super) fn generation(&self, id: GenerationId) -> Result<&Known> {
        self.generations.get(&id).ok_or_else(|| unknown_generation(id))
    }

    /// The next store number. The caller writes [`Registry::put_numbers`] in the batch that first uses it.
    pub(super) fn next_store(&mut self) -> StoreNumber {
        self.last_store = self.last_store.saturating_add(1);
        StoreNumber(self.last_store)
    }

    /// The next generation of `store`; as with [`Registry::next_store`].
    pub(super) fn next_generation(&mut self, store: StoreNumber) -> GenerationId {
        self.last_generation = self.last_generation.saturating_add(1);
        GenerationId { store, number: self.last_generation }
    }

    pub(super) fn put_numbers(&self, db: &Db, batch: &mut WriteBatch) {
        let mut value = Vec::with_capacity(8);
        value.put_u32(self.last_store);
        value.put_u32(self.last_generation);
        batch.put_cf(db.handles().meta, [NUMBERS], value);
    }

    fn take_row(&mut self, path: &Path, key: &[u8], value: &[u8]) -> Result<()> {
        let mut value = Reader::new(path, 0, value);
        match key.split_first() {
            Some((&NUMBERS, [])) => {
                self.last_store = value.u32("last store")?;
                self.last_generation = value.u32("last generation")?;
            }
            Some((&STORE, name)) => {
                let id = parse_store(path, name)?;
                let uid = StoreUid(value.array("store uid")?);
                self.stores.insert(id, (uid, StoreNumber(value.u32("store number")?)));
            }
            Some((&GENERATION, rest)) => {
                let record = decode_record(read_generation(path, rest)?.0, &mut value)?;
                self.generations.insert(record.id, Known { record, ranges: Arc::default() });
            }
            // `g` sorts before `r`, so the generation is there already.
            Some((&RANGE, rest)) => {
                let (id, start) = read_generation(path, rest)?;
                let end = match value.u8("range end")? {
                    0 => None,
                    _ => Some(value.take(value.remaining(), "range end")?.to_vec()),
                };
                let known = self.generations.get_mut(&id).ok_or_else(|| unknown_generation(id))?;
                Arc::make_mut(&mut known.ranges).insert(KeyRange { start: start.to_vec(), end });
            }
            Some((&DROPPED, rest)) => {
                self.dropped.insert(read_generation(path, rest)?.0);
            }
            _ => return Err(value.corrupt("a known row", key.escape_ascii().to_string())),
        }
        value.finish()
    }

    /// An ingest that was cut off leaves entries without a record, and its number unwritten: neither may ever meet a new
    /// generation. One seek a generation.
    fn find_strays(&mut self, tables: &Tables) -> Opened<()> {
        let path = tables.db().path();
        let mut walk = tables.db().raw_iterator_cf(tables.handles().state);
        walk.seek_to_first();
        while let Some(key) = walk.key() {
            let (id, _) = read_generation(path, key).map_err(OpenFailure::Damaged)?;
            self.last_generation = self.last_generation.max(id.number);
            self.last_store = self.last_store.max(id.store.0);
            if !self.generations.contains_key(&id) {
                self.dropped.insert(id);
            }
            match successor(&prefix(id)) {
                Some(next) => walk.seek(next),
                None => break,
            }
        }
        walk.status().map_err(|error| OpenFailure::from_rocks(path, error))
    }
}

pub(super) fn put_store(db: &Db, batch: &mut WriteBatch, id: &StateStoreId, uid: StoreUid, number: StoreNumber) {
    let mut value = uid.0.to_vec();
    value.put_u32(number.0);
    batch.put_cf(db.handles().meta, [&[STORE], id.to_string().as_bytes()].concat(), value);
}

pub(super) fn put_generation(db: &Db, batch: &mut WriteBatch, record: &GenerationRecord) {
    let mut value = Vec::with_capacity(100);
    put_mark(&mut value, &record.from);
    put_mark(&mut value, &record.applied);
    value.put_u8(u8::from(record.coverage.is_complete()));
    value.put_u8(u8::from(record.torn.is_some()));
    if let Some(mark) = &record.torn {
        put_mark(&mut value, mark);
    }
    batch.put_cf(db.handles().meta, generation_key(GENERATION, record.id), value);
}

fn decode_record(id: GenerationId, value: &mut Reader<'_>) -> Result<GenerationRecord> {
    let (from, applied) = (read_mark(value)?, read_mark(value)?);
    let coverage = if value.u8("coverage")? == 0 { Coverage::Changes } else { Coverage::Complete };
    let torn = if value.u8("torn")? == 0 { None } else { Some(read_mark(value)?) };
    Ok(GenerationRecord { id, from, applied, coverage, torn })
}

/// Writes what has changed between two sets of deleted ranges. Ranges of one set are disjoint, so their starts name them.
pub(super) fn put_ranges(db: &Db, batch: &mut WriteBatch, id: GenerationId, before: &RangeSet, after: &RangeSet) {
    let old: BTreeMap<&[u8], _> = before.iter().map(|range| (range.start.as_slice(), &range.end)).collect();
    let new: BTreeMap<&[u8], _> = after.iter().map(|range| (range.start.as_slice(), &range.end)).collect();
    for start in old.keys().filter(|start| !new.contains_key(*start)) {
        batch.delete_cf(db.handles().meta, range_key(id, start));
    }
    for (start, end) in new.iter().filter(|(start, end)| old.get(*start) != Some(end)) {
        let value = match end {
            Some(end) => [&[1], end.as_slice()].concat(),
            None => vec![0],
        };
        batch.put_cf(db.handles().meta, range_key(id, start), value);
    }
}

/// Takes a generation's rows away and notes that its disk has to be freed.
pub(super) fn forget_generation(db: &Db, batch: &mut WriteBatch, known: &Known) {
    let id = known.record.id;
    batch.delete_cf(db.handles().meta, generation_key(GENERATION, id));
    put_ranges(db, batch, id, &known.ranges, &RangeSet::default());
    batch.put_cf(db.handles().meta, generation_key(DROPPED, id), []);
}

/// Notes that a dropped generation's disk is free.
pub(super) fn forget_dropped(db: &Db, batch: &mut WriteBatch, id: GenerationId) {
    batch.delete_cf(db.handles().meta, generation_key(DROPPED, id));
}

fn generation_key(tag: u8, id: GenerationId) -> Vec<u8> {
    [&[tag], prefix(id).as_slice()].concat()
}

fn range_key(id: GenerationId, start: &[u8]) -> Vec<u8> {
    [generation_key(RANGE, id).as_slice(), start].concat()
}

fn read_generation<'k>(path: &Path, key: &'k [u8]) -> Result<(GenerationId, &'k [u8])> {
    let short = || Error::corrupt(path, 0, "a generation's number", key.escape_ascii().to_string());
    let (number, rest) = key.split_first_chunk::<PREFIX_BYTES>().ok_or_else(short)?;
    let both = u64::from_be_bytes(*number);
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX);
    Ok((GenerationId { store: StoreNumber(half(both >> 32)), number: half(both) }, rest))
}

fn parse_store(path: &Path, name: &[u8]) -> Result<StateStoreId> {
    let broken = || Error::corrupt(path, 0, "operator/partition/name", name.escape_ascii().to_string());
    let mut parts = std::str::from_utf8(name).map_err(|source| broken().with_source(source))?.split('/');
    match (parts.next(), parts.next().map(str::parse), parts.next(), parts.next()) {
        (Some(operator), Some(Ok(partition)), Some(name), None) => StateStoreId::new(operator, partition, name),
        _ => Err(broken()),
    }
}
