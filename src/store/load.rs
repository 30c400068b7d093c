//! From the runs of a version to the layers that a transaction reads: which of them the index already holds.

use std::sync::Arc;

use super::directory::OpenChain;
use super::layers::{Layers, Source};
use super::options::Residency;
use crate::backend::{Backend, Generation, GenerationRecord, StoreNumber};
use crate::error::Result;
use crate::run::{Layer, Merge, Run};
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
    progress: &dyn Fn(u64) -> bool,
) -> Result<Layers> {
    let is_complete = residency == Residency::Resident;
    let mut best: Option<(usize, GenerationRecord)> = None;
    for record in backend.generations(store)? {
        let fits = fit(&record, chain).filter(|_| record.complete == is_complete);
        let is_better = fits.is_some_and(|folded| best.as_ref().is_none_or(|(most, _)| folded > *most));
        let unfit = match fits {
            Some(folded) if is_better => best.replace((folded, record)).map(|(_, worse)| worse),
            _ => Some(record),
        };
        if let Some(unfit) = unfit {
            backend.drop_generation(unfit.id)?;
        }
    }
    let (folded, generation) = match best {
        Some((folded, record)) => (folded, backend.reopen_generation(record)?),
        None if is_complete => (0, restore(backend, store, chain, progress)?),
        None => (0, backend.create_generation(store, chain.base_mark(), false)?),
    };
    let tail = chain.singles.get(folded..).unwrap_or_default().iter().rev().cloned().map(Source::Run);
    let base = chain.base.iter().rev().filter(|_| !is_complete).cloned().map(Source::Run);
    let sources = tail.chain([Source::Generation(Arc::new(generation))]).chain(base).collect();
    Ok(Layers { mark: chain.mark, families: Arc::clone(&chain.families), sources })
}

/// How many of the chain's single deltas a generation holds; `None` where it belongs to another history, to a version above
/// the one wanted, or lacks changes that the base does not have.
fn fit(record: &GenerationRecord, chain: &OpenChain) -> Option<usize> {
    let starts_in_base = record.complete || record.from.at.version <= chain.base_mark().at.version;
    let holds = |mark: Mark| record.applied == mark;
    let folded = match chain.singles.iter().rposition(|run| holds(run.header().mark())) {
        Some(place) => place + 1,
        None => holds(chain.base_mark()).then_some(0)?,
    };
    starts_in_base.then_some(folded)
}

/// Builds a generation that holds the whole base, for `Resident`.
fn restore(
    backend: &Backend,
    store: StoreNumber,
    chain: &OpenChain,
    progress: &dyn Fn(u64) -> bool,
) -> Result<Generation> {
    let generation = backend.create_generation(store, Mark::ROOT, true)?;
    if !chain.base.is_empty() {
        let mut content = merged(chain.base.iter().rev()).live();
        generation.ingest(&mut content, chain.base_mark(), progress)?;
    }
    Ok(generation)
}

/// The content of a stack of runs, newest first, tombstones included.
pub(super) fn merged<'r>(newest_first: impl Iterator<Item = &'r Arc<Run>>) -> Merge {
    let layers: Vec<Layer> = newest_first.map(|run| run.layer(crate::entry::KeyRange::ALL)).collect();
    Merge::new(layers)
}
