//! From the runs of a version to the layers that a transaction reads: which of them the index already holds.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::directory::OpenChain;
use super::layers::{Layers, Source};
use super::options::Residency;
use crate::backend::{Backend, Coverage, Generation, GenerationRecord, StoreNumber};
use crate::entry::KeyRange;
use crate::error::Result;
use crate::run::{Merge, Run};
use crate::version::Mark;

/// Stacks the runs of a version over the best generation that the index holds, and drops the other generations.
///
/// Nothing is replayed here: deltas that the generation lacks lie in the tail, are read in place, and are folded into it
/// later. So the cost follows the number of files, not what is in them. (`Resident` has no base to read from: it rebuilds
/// a lost generation before it returns.)
///
/// # Errors
/// What the index or, in `Resident`, reading the runs met.
pub(super) fn load(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    residency: Residency,
    observer: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<Layers> {
    let coverage = residency.coverage();
    let mut best: Option<(usize, GenerationRecord)> = None;
    for record in backend.engine().generations(store)? {
        let fits = fit(&record, chain).filter(|_| record.coverage == coverage);
        let is_better = fits.is_some_and(|folded| best.as_ref().is_none_or(|(most, _)| folded > *most));
        let unfit = match fits {
            Some(folded) if is_better => best.replace((folded, record)).map(|(_, worse)| worse),
            _ => Some(record),
        };
        if let Some(unfit) = unfit {
            backend.engine().drop_generation(unfit.id)?;
            backend.reclaim_later();
        }
    }
    let (folded, generation) = match best {
        Some((folded, record)) => (folded, Generation::open(backend, record)?),
        None if coverage.is_complete() => (0, restore(backend, store, chain, observer)?),
        None => (0, create(backend, store, chain.base_mark(), coverage)?),
    };
    let tail = chain.singles.get(folded..).unwrap_or_default().iter().rev().cloned().map(Source::Run);
    let base = chain.base.iter().rev().filter(|_| !coverage.is_complete()).cloned().map(Source::Run);
    let sources = tail.chain([Source::Generation(generation)]).chain(base).collect();
    Ok(Layers { mark: chain.mark, families: Arc::clone(&chain.families), sources })
}

/// Makes an empty generation on top of `from`.
pub(super) fn create(backend: &Backend, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<Arc<Generation>> {
    Generation::create(backend, store, from, coverage, Generation::FILTER_BYTES)
}

/// How many of the chain's single deltas a generation holds; `None` where it belongs to another history, to a version above
/// the one wanted, lacks changes that the base does not have, or was cut off inside a delta that is not the next one.
fn fit(record: &GenerationRecord, chain: &OpenChain) -> Option<usize> {
    let base = chain.base_mark();
    let folded = match chain.singles.iter().rposition(|run| run.header().mark() == record.applied) {
        Some(place) => place + 1,
        None => (record.applied == base).then_some(0)?,
    };
    let starts_in_base = record.coverage.is_complete() || record.from.at.version <= base.at.version;
    let next = chain.singles.get(folded).map(|run| run.header().mark());
    let is_whole = record.torn.is_none() || record.torn == next;
    (starts_in_base && is_whole).then_some(folded)
}

/// Builds a generation that holds the whole base, for `Resident`.
fn restore(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    observer: &dyn Fn(u64) -> ControlFlow<()>,
) -> Result<Arc<Generation>> {
    if chain.base.is_empty() {
        return create(backend, store, Mark::ROOT, Coverage::Complete);
    }
    let mut content = merged(chain.base.iter().rev()).live();
    let record = backend.engine().ingest(store, &mut content, chain.base_mark(), observer)?;
    Generation::open(backend, record)
}

/// The content of a stack of runs, newest first, tombstones included.
pub(super) fn merged<'r>(newest_first: impl Iterator<Item = &'r Arc<Run>>) -> Merge {
    Merge::new(newest_first.map(|run| run.layer(KeyRange::ALL)).collect())
}
