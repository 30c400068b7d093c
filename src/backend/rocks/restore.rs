//! Filling a complete generation from a whole state: table files are built beside the database and then taken in.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use rocksdb::{IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};

use super::engine::RocksEngine;
use super::families::{Db, encode_state_key, encode_value};
use super::registry::{Known, put_generation};
use crate::backend::contract::{Coverage, Engine, GenerationId, GenerationRecord, StoreNumber};
use crate::backend::memory::go_on;
use crate::backend::workdir::remove_file;
use crate::entry::{Change, Cursor};
use crate::error::{Error, ErrorKind, Result};
use crate::version::Mark;

/// How many bytes of entries pass between two calls of the observer.
const OBSERVED_BYTES: u64 = 4 << 20;

impl RocksEngine {
    pub(super) fn ingest_state(
        &self,
        store: StoreNumber,
        state: &mut dyn Cursor,
        applied: Mark,
        observer: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<GenerationRecord> {
        let id = self.registry().next_generation(store);
        let mut files = Files { db: &self.db, id, paths: Vec::new() };
        files.build(state, observer)?;
        if !files.paths.is_empty() {
            let mut ingest = IngestExternalFileOptions::default();
            ingest.set_move_files(true); // linked, so that the state is on disk only once
            let state = self.db.handles().state;
            let taken = self.db.raw().ingest_external_file_cf_opts(state, &ingest, files.paths.clone());
            taken.map_err(|error| self.db.failed("take in table files", error))?;
        }
        // A crash before this leaves entries without a record, which the next open finds and drops.
        let record = GenerationRecord { id, from: Mark::ROOT, applied, coverage: Coverage::Complete, torn: None };
        let mut batch = WriteBatch::default();
        put_generation(&self.db, &mut batch, &record);
        self.enter(batch, &record)?;
        // Or a crash would throw a whole restore away. Not under the registry's lock: it writes files.
        self.db.flush().inspect_err(|_| self.leave(id))?;
        Ok(record)
    }

    fn enter(&self, mut batch: WriteBatch, record: &GenerationRecord) -> Result<()> {
        let mut registry = self.registry();
        registry.put_numbers(&self.db, &mut batch);
        if let Err(error) = self.db.write(batch) {
            registry.dropped.insert(record.id);
            return Err(error);
        }
        registry.generations.insert(record.id, Known { record: record.clone(), ranges: Arc::default() });
        Ok(())
    }

    /// Takes a generation back that could not be kept. Where even that fails, it is found at the next open.
    fn leave(&self, id: GenerationId) {
        if let Err(error) = self.drop_generation(id) {
            tracing::warn!(%error, ?id, "could not drop a generation that could not be restored");
        }
    }
}

/// The table files of one ingest. Dropping it removes those that are still here.
struct Files<'a> {
    db: &'a Db,
    id: GenerationId,
    paths: Vec<PathBuf>,
}

impl Files<'_> {
    /// While one file becomes durable the next one is built.
    fn build(&mut self, state: &mut dyn Cursor, observer: &dyn Fn(u64) -> ControlFlow<()>) -> Result<()> {
        let options = self.db.tuning.state_family();
        let db = self.db;
        let mut entry = Row { id: self.id, key: Vec::new(), value: Vec::new() };
        let (mut total_bytes, mut told_bytes) = (0, 0);
        let mut more = state.advance()?;
        thread::scope(|scope| {
            let mut finishing: Option<ScopedJoinHandle<'_, Result<()>>> = None;
            while more {
                let mut file = self.begin(&options)?;
                while more && file.file_size() < self.db.tuning.file_bytes {
                    total_bytes += entry.add(db, &mut file, state)?;
                    if total_bytes - told_bytes >= OBSERVED_BYTES {
                        told_bytes = total_bytes;
                        go_on(observer, total_bytes)?;
                    }
                    more = state.advance()?;
                }
                // Two are in memory at most.
                finishing.take().map_or(Ok(()), ended)?;
                let finish = move || file.finish().map_err(|error| db.failed("finish a table file", error));
                let thread = thread::Builder::new().name("alluvium-restore".into()).spawn_scoped(scope, finish);
                finishing = Some(thread.map_err(|error| Error::io(db.raw().path(), "start a thread", error))?);
            }
            finishing.take().map_or(Ok(()), ended)
        })?;
        go_on(observer, total_bytes)
    }

    fn begin<'o>(&mut self, options: &'o Options) -> Result<SstFileWriter<'o>> {
        let name = format!("{}-{}.sst", self.id.number, self.paths.len());
        let path = self.db.dir.restore_dir().join(name);
        let file = SstFileWriter::create(options);
        file.open(&path).map_err(|error| self.db.failed("make a table file", error))?;
        self.paths.push(path);
        Ok(file)
    }
}

/// Where an entry is put together for a table file; used again for each.
struct Row {
    id: GenerationId,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Row {
    fn add(&mut self, db: &Db, file: &mut SstFileWriter<'_>, state: &mut dyn Cursor) -> Result<u64> {
        let change = state.change();
        if change == Change::Tombstone {
            return Err(Error::invalid("a whole state holds no tombstones"));
        }
        encode_state_key(self.id, state.key(), &mut self.key);
        encode_value(change, &mut self.value);
        file.put(&self.key, &self.value).map_err(|error| db.failed("write a table file", error))?;
        Ok((state.key().len() + change.into_value().map_or(0, <[u8]>::len)) as u64)
    }
}

fn ended(finishing: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    finishing.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Engine, "finishing a table file panicked")))
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            if let Err(error) = remove_file(path) {
                tracing::warn!(%error, "a table file stays behind until the next open");
            }
        }
    }
}
