//! From the runs of a version to the layers that a transaction reads: which of them the index already holds.

use std::sync::Arc;

use super::directory::OpenChain;
use super::layers::{Layers, Source};
use super::options::{Progress, StoreOptions};
use crate::backend::{Backend, Coverage, Generation, GenerationId, GenerationRecord, InUse, StoreNumber};
use crate::budget::Purpose;
use crate::entry::KeyRange;
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::run::{Merge, Run};
use crate::version::Mark;

/// Stacks the runs of a version over the best generation that the index holds, and drops the other generations.
///
/// Nothing is replayed here: deltas that the generation lacks lie in the tail, are read in place, and are folded into it
/// later. So the cost follows the number of files, not what is in them. (`Resident` has no base to read from: it rebuilds
/// a lost generation before it returns.)
///
/// `mine` are the generations that the caller itself reads through so far.
///
/// # Errors
/// What the index or, in `Resident`, reading the runs met.
pub(super) fn load(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    options: &StoreOptions,
    mine: &[GenerationId],
) -> Result<Layers> {
    let residency = options.residency;
    let coverage = residency.coverage();
    let mut best: Option<(usize, GenerationRecord, InUse)> = None;
    for record in backend.engine().generations(store)? {
        // Another provider of this store in this process, fenced by our claim, reads and may still fold into its own.
        let Some(in_use) = backend.take(record.id, mine) else { continue };
        let fits = fit(&record, chain).filter(|_| record.coverage == coverage);
        let is_better = fits.is_some_and(|folded| best.as_ref().is_none_or(|(most, ..)| folded > *most));
        let unfit = match fits {
            Some(folded) if is_better => best.replace((folded, record, in_use)).map(|(_, worse, _)| worse),
            _ => Some(record),
        };
        if let Some(unfit) = unfit {
            backend.engine().drop_generation(unfit.id)?;
            backend.reclaim_later();
        }
    }
    let (folded, generation) = match best {
        Some((folded, record, in_use)) => (folded, Generation::open(backend, &record, in_use)?),
        None if coverage.is_complete() => (0, restore(backend, store, chain, options)?),
        None => (0, create(backend, store, chain.base_mark(), coverage)?),
    };
    let tail = chain.singles.get(folded..).unwrap_or_default().iter().rev().cloned().map(Source::Waiting);
    let base = chain.base.iter().rev().filter(|_| !coverage.is_complete()).cloned().map(Source::Base);
    let sources = tail.chain([Source::Generation(generation)]).chain(base).collect();
    Ok(Layers { mark: chain.mark, families: Arc::clone(&chain.families), sources })
}

/// Makes an empty generation on top of `from`.
pub(super) fn create(backend: &Backend, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<Arc<Generation>> {
    Generation::create(backend, store, from, coverage, Generation::FILTER_BYTES)
}

/// How many of the chain's single deltas a generation holds; `None` where it belongs to another history, to a version above
/// the one wanted, lacks changes that the base does not have, or was cut off on the way to a delta that is not wanted.
fn fit(record: &GenerationRecord, chain: &OpenChain) -> Option<usize> {
    let base = chain.base_mark();
    let folded = match chain.singles.iter().rposition(|run| run.header().mark() == record.applied) {
        Some(place) => place + 1,
        None => (record.applied == base).then_some(0)?,
    };
    let starts_in_base = record.coverage.is_complete() || record.from.at.version <= base.at.version;
    // A fold that was cut off can be repeated if everything it was about is wanted.
    let mut wanted = chain.singles.iter().skip(folded).map(|run| run.header().mark());
    let is_whole = record.torn.is_none_or(|torn| wanted.any(|mark| mark == torn));
    (starts_in_base && is_whole).then_some(folded)
}

/// Builds a generation that holds the whole base, for `Resident`.
fn restore(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    options: &StoreOptions,
) -> Result<Arc<Generation>> {
    if chain.base.is_empty() {
        // Only single deltas: they are folded as they would be from the tail.
        return create(backend, store, Mark::ROOT, Coverage::Complete);
    }
    let total_bytes = chain.base.iter().map(|run| run.properties().key_bytes + run.properties().value_bytes).sum();
    let observe = |done_bytes| options.restore_observer.call(Progress { done_bytes, total_bytes });
    let owner = chain.base.last().map(|run| Arc::from(run.header().store.to_string()));
    let _buffers = backend.lease_buffers(Purpose { kind: "restore", owner, can_give: false })?;
    let mut content = merged(chain.base.iter().rev()).live();
    let record = backend.engine().ingest(store, &mut content, chain.base_mark(), &observe)?;
    let in_use = backend.take(record.id, &[]).ok_or_else(|| Error::new(ErrorKind::Engine, "a new index is in use"))?;
    Generation::open(backend, &record, in_use)
}

/// The content of a stack of runs, newest first, tombstones included.
pub(super) fn merged<'r>(newest_first: impl Iterator<Item = &'r Arc<Run>>) -> Merge {
    Merge::new(newest_first.map(|run| run.layer(KeyRange::ALL)).collect())
}

/// As [`merged`], with all ranges that the runs delete from what lies below them.
pub(super) fn merged_with_ranges(newest_first: &[Arc<Run>]) -> (Merge, RangeSet) {
    let mut ranges = RangeSet::default();
    for run in newest_first {
        ranges.extend(run.ranges());
    }
    (merged(newest_first.iter()), ranges)
}
