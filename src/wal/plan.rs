//! Which parts of which segments are read, for the records from one on.

use std::sync::Arc;

use super::chunk::ChunkReader;
use super::format::SEGMENT_HEADER_BYTES;
use super::planted::Planted;
use super::record::Lsn;
use super::segment::{Segment, Shelf};
use super::survey::read_seal;
use crate::error::Result;

/// A segment to be read.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) segment: Arc<Segment>,
    /// The next segment's first LSN: from there on this one is void.
    pub(super) until: Lsn,
    /// What the next segment says was durable before it.
    pub(super) durable: Lsn,
    pub(super) is_newest: bool,
    /// The last record, as far as it was written when the reading began.
    pub(super) last: Lsn,
    /// Where reading starts, and with which record.
    pub(super) start: (Lsn, u64),
    pub(super) end: u64,
}

impl Plan {
    /// A reader of the planned part. Opens the file; `None` where it was cleaned since the reading began: its records were given up.
    pub(super) fn open(&self, on: &Shelf) -> Result<Option<ChunkReader>> {
        let opened = on.disk.open(&self.segment.path);
        let Some(file) = on.unless_given_up(&self.segment, opened)? else { return Ok(None) };
        let end = self.end.min(file.len());
        let (salt, path) = (self.segment.header.salt, Arc::clone(&self.segment.path));
        let reader = ChunkReader::new(file, path, salt, self.start.1, end);
        Ok(Some(if on.planted == Planted::SkipPayloadChecksum { reader.without_payload_checks() } else { reader }))
    }
}

/// What has to be read for the records from `from` on.
pub(super) fn plan(shelf: &Shelf, from: Lsn) -> Result<Vec<Plan>> {
    let segments = shelf.all();
    let mut plans = Vec::with_capacity(segments.len());
    for (place, segment) in segments.iter().enumerate() {
        let next = segments.get(place + 1);
        let until = next.map_or(Lsn(u64::MAX), |next| next.header.first);
        if until <= from || until <= segment.header.first {
            continue;
        }
        let last = segment.last();
        let plan = Plan {
            segment: Arc::clone(segment),
            until,
            durable: next.map_or(Lsn::NONE, |next| next.header.durable),
            is_newest: next.is_none(),
            last,
            start: (segment.header.first, SEGMENT_HEADER_BYTES as u64),
            end: segment.end(),
        };
        plans.push(plan);
    }
    // Only the first one begins in the middle.
    if let Some(plan) = plans.first_mut()
        && plan.segment.header.first < from
        && plan.segment.is_sealed()
    {
        let opened = shelf.open(&plan.segment);
        if let Some(file) = shelf.unless_given_up(&plan.segment, opened)?
            && let Ok(Some((seal, _))) = read_seal(file.as_ref(), &plan.segment.path, &plan.segment.header)
            && let Some(entry) = seal.index.iter().rev().find(|(lsn, _)| *lsn <= from)
            && entry.1 < plan.end
        {
            plan.start = *entry;
        }
    }
    Ok(plans)
}
