//! How a run names itself to what lies above: its mark, and the layer that it is in a merge.

use std::sync::Arc;

use super::header::RunHeader;
use super::merge::Layer;
use super::reader::Run;
use super::writer::{Packing, WriterOptions};
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::Result;
use crate::ranges::RangeSet;
use crate::version::{Mark, VersionId};

impl RunHeader {
    /// The version that the run leads to.
    pub(crate) fn to_id(&self) -> VersionId {
        VersionId::new(self.to, self.epoch)
    }

    /// The state that the run leads to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { at: self.to_id(), tip: self.tip }
    }
}

impl Run {
    /// The run's entries in `range`, and the ranges that it deletes in older layers.
    pub(crate) fn layer(self: &Arc<Self>, range: KeyRange) -> Layer {
        Layer { cursor: Box::new(self.cursor(range)), ranges: Arc::clone(self.ranges()) }
    }
}

impl Layer {
    /// A layer that deletes no ranges.
    pub(crate) fn without_ranges(cursor: Box<dyn Cursor>) -> Self {
        Self { cursor, ranges: Arc::default() }
    }

    /// A layer that only deletes ranges.
    pub(crate) fn of_ranges(ranges: RangeSet) -> Self {
        Self { cursor: Box::new(Nothing), ranges: Arc::new(ranges) }
    }
}

impl WriterOptions {
    /// For the delta of one commit: small, read through once by the index, so without padding.
    pub(crate) fn packed() -> Self {
        Self { packing: Packing::Packed, page_bytes: None }
    }

    /// For a run of the base, which is read by key.
    pub(crate) fn aligned() -> Self {
        Self { packing: Packing::Aligned, page_bytes: None }
    }
}

/// A cursor over nothing.
#[derive(Debug)]
struct Nothing;

impl Cursor for Nothing {
    fn advance(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        &[]
    }

    fn change(&self) -> Change<&[u8]> {
        Change::Tombstone
    }
}
