//! Bugs put in on purpose, so that the crash harness can show that it would find them.

use std::path::PathBuf;
use std::sync::Arc;
use std::vec::IntoIter;

use super::commit::ChangeSet;
use super::layers::{Layers, Source};
use super::options::Planted;
use crate::entry::{Change, Cursor};
use crate::error::Result;
use crate::fs::ReadFile;
use crate::run::{Access, Run};

/// Lets the index follow before the delta is published: the data now, the mark later.
pub(super) fn apply_before_publish(planted: Planted, layers: &Layers, changes: &ChangeSet<'_>) -> Result<()> {
    let generation = layers.sources.iter().find_map(Source::generation);
    let (Planted::ApplyBeforePublish, Some(generation)) = (planted, generation) else { return Ok(()) };
    let mut rows = Vec::new();
    changes.overlay.for_each(|key, change| {
        rows.push((key.to_vec(), change.map(<[u8]>::to_vec)));
        Ok(())
    })?;
    let mut cursor = Rows { rows: rows.into_iter(), current: None };
    generation.apply(&changes.overlay.ranges(), &mut cursor, generation.applied(), None)
}

/// Whether a retirement looks at what it relies on.
pub(super) fn looks_before_retiring(planted: Planted) -> bool {
    planted != Planted::RetireUnseen
}

/// Opens a run, with or without a look at the checksums of its pages.
pub(super) fn open_run(planted: Planted, file: Arc<dyn ReadFile>, path: PathBuf, access: Access) -> Result<Arc<Run>> {
    match planted {
        Planted::SkipPageChecksum => Run::open_without_page_checksums(file, path, access),
        _ => Run::open(file, path, access),
    }
}

type Row = (Vec<u8>, Change<Vec<u8>>);

struct Rows {
    rows: IntoIter<Row>,
    current: Option<Row>,
}

impl Cursor for Rows {
    fn advance(&mut self) -> Result<bool> {
        self.current = self.rows.next();
        Ok(self.current.is_some())
    }

    fn key(&self) -> &[u8] {
        self.current.as_ref().map(|(key, _)| key.as_slice()).unwrap_or_default()
    }

    fn change(&self) -> Change<&[u8]> {
        match &self.current {
            Some((_, Change::Put(value))) => Change::Put(value),
            _ => Change::Tombstone,
        }
    }
}
