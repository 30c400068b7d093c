//! From the runs of a version to the layers that a transaction reads: which of them the index already holds.

use std::sync::Arc;

use super::layers::{Layers, Source};
use super::open_chain::OpenChain;
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
/// `mine` are the generations that the caller itself reads through so far. `above` opens the deltas that lead from some state to
/// the wanted one, where there are any.
///
/// # Errors
/// What the index or, in `Resident`, reading the runs met.
pub(super) fn load(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    options: &StoreOptions,
    mine: &[GenerationId],
    above: &dyn Fn(&Mark) -> Option<Vec<Arc<Run>>>,
) -> Result<Layers> {
    let residency = options.residency;
    let coverage = residency.coverage();
    if coverage.is_complete()
        && let Some(layers) = catch_up(backend, store, chain, mine, above)?
    {
        return Ok(layers);
    }
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

/// For `Resident`: a whole state that is there, however old it is, and the deltas from it to the version that is wanted. After a kill
/// the index may be as it was long ago, and the chain starts from a newer snapshot; a few deltas cost less than the whole state.
/// `None` where a generation holds a version of the chain itself, or no deltas lead from one that is older.
fn catch_up(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    mine: &[GenerationId],
    above: &dyn Fn(&Mark) -> Option<Vec<Arc<Run>>>,
) -> Result<Option<Layers>> {
    let records = backend.engine().generations(store)?; // a few
    let is_whole = |record: &&GenerationRecord| record.coverage.is_complete() && record.torn.is_none();
    if records.iter().filter(is_whole).any(|record| fit(record, chain).is_some()) {
        return Ok(None);
    }
    let bytes = |runs: &[Arc<Run>]| runs.iter().map(|run| run.file_bytes()).sum::<u64>();
    let led = records.iter().filter(is_whole).filter_map(|record| Some((record, above(&record.applied)?)));
    let Some((record, runs)) = led.min_by_key(|(_, runs)| bytes(runs)) else { return Ok(None) };
    if bytes(&runs) >= bytes(&chain.base) {
        return Ok(None);
    }
    let Some(in_use) = backend.take(record.id, mine) else { return Ok(None) };
    for other in records.iter().filter(|other| other.id != record.id) {
        if backend.take(other.id, mine).is_some() {
            backend.engine().drop_generation(other.id)?;
            backend.reclaim_later();
        }
    }
    let generation = Generation::open(backend, record, in_use)?;
    let tail = runs.into_iter().rev().map(Source::Waiting);
    let sources = tail.chain([Source::Generation(generation)]).collect();
    Ok(Some(Layers { mark: chain.mark, families: Arc::clone(&chain.families), sources }))
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
    // One table file is written while the one before it becomes durable.
    let _buffers = backend.lease_buffers(Purpose { kind: "restore", owner, can_give: false }, 2)?;
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
