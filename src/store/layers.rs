//! [`Layers`]: the sources that a transaction reads through, newest first.

use std::sync::Arc;

use super::below::Below;
use crate::backend::{Generation, GenerationId};
use crate::bytes::Bytes;
use crate::entry::{Families, KeyRange, Probe};
use crate::error::Result;
use crate::run::{Layer, Run};
use crate::version::Mark;

/// One source of a state: a file read in place, or a key range of the index.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// A delta of the tail, or a run of the base.
    Run(Arc<Run>),
    /// Changes that were folded into the index.
    Generation(Arc<Generation>),
}

impl Source {
    pub(super) fn generation(&self) -> Option<&Arc<Generation>> {
        match self {
            Self::Run(_) => None,
            Self::Generation(generation) => Some(generation),
        }
    }

    pub(super) fn run(&self) -> Option<&Arc<Run>> {
        match self {
            Self::Run(run) => Some(run),
            Self::Generation(_) => None,
        }
    }
}

/// A state as a stack of sources, newest first. The first source that knows a key decides.
///
/// ```text
/// tail: deltas not folded yet ─► generation ─► base: collapsed deltas ─► snapshot
/// ```
///
/// A stack never changes; committing, folding and moving the base make a new one. A fold may write a delta into the generation
/// while readers hold a stack that has the delta in its tail: they meet it there first, so seeing it early in the
/// generation changes nothing.
#[derive(Debug, Clone)]
pub(super) struct Layers {
    /// Which state these sources make.
    pub(super) mark: Mark,
    pub(super) families: Arc<Families>,
    pub(super) sources: Vec<Source>,
}

impl Layers {
    /// No layers at all: what a provider holds that has ended.
    pub(super) fn nothing() -> Self {
        Self { mark: Mark::ROOT, families: Arc::default(), sources: Vec::new() }
    }

    /// The generations among the sources.
    pub(super) fn generations(&self) -> Vec<GenerationId> {
        self.sources.iter().filter_map(Source::generation).map(|generation| generation.id()).collect() // one or two
    }

    /// The stack with a newly committed delta on top.
    pub(super) fn with_commit(&self, run: Arc<Run>) -> Self {
        let header = run.header();
        let mark = Mark { at: header.to_id(), tip: header.tip };
        let families = Arc::new(header.families.clone());
        let sources = std::iter::once(Source::Run(run)).chain(self.sources.iter().cloned()).collect();
        Self { mark, families, sources }
    }

    /// How many deltas wait to be folded: those above the lowest generation.
    pub(super) fn waiting(&self) -> usize {
        let lowest = self.sources.iter().rposition(|source| source.generation().is_some()).unwrap_or(0);
        self.sources.iter().take(lowest).filter(|source| source.generation().is_none()).count()
    }

    /// What to fold next: the deltas that lie directly on the lowest generation that has any, newest first.
    ///
    /// A fold that was cut off is repeated as it was: up to the delta it was on its way to, since the generation may hold a
    /// part of everything up to there.
    pub(super) fn next_fold(&self) -> Option<(Vec<Arc<Run>>, Arc<Generation>)> {
        let pair = self.sources.windows(2).rposition(|pair| matches!(pair, [Source::Run(_), Source::Generation(_)]))?;
        let generation = self.sources.get(pair + 1)?.generation()?;
        let above = self.sources.get(..=pair)?.iter().rev();
        let mut runs: Vec<Arc<Run>> = above.map_while(Source::run).cloned().collect(); // at most the tail
        if let Some(torn) = generation.torn() {
            let target = runs.iter().position(|run| run.header().mark() == torn)?;
            runs.truncate(target + 1);
        }
        runs.reverse();
        Some((runs, Arc::clone(generation)))
    }

    /// The stack without `runs`, which were folded into the source below them.
    pub(super) fn without(&self, runs: &[Arc<Run>]) -> Self {
        let is_folded = |source: &&Source| source.run().is_some_and(|run| runs.iter().any(|one| Arc::ptr_eq(one, run)));
        Self { sources: self.sources.iter().filter(|source| !is_folded(source)).cloned().collect(), ..self.clone() }
    }
}

impl Below for Layers {
    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>> {
        for source in &self.sources {
            let (change, is_covered) = match source {
                Source::Run(run) => match run.get(probe)? {
                    None => (None, run.covers(probe.full_key)),
                    change => (change, false),
                },
                Source::Generation(generation) => match generation.get(probe)? {
                    None => (None, generation.covers(probe.full_key)),
                    change => (change, false),
                },
            };
            match change {
                Some(change) => return Ok(change.into_value()),
                None if is_covered => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>> {
        self.sources
            .iter()
            .map(|source| match source {
                Source::Run(run) => Ok(run.layer(range.clone())),
                Source::Generation(generation) => {
                    Ok(Layer { ranges: generation.ranges(), cursor: generation.cursor(range)? })
                }
            })
            .collect()
    }
}

/// A chain of runs alone: what views read, whatever the index holds. Newest first.
#[derive(Debug)]
pub(super) struct RunStack(pub(super) Vec<Arc<Run>>);

impl Below for RunStack {
    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>> {
        for run in &self.0 {
            if let Some(change) = run.get(probe)? {
                return Ok(change.into_value());
            }
            if run.covers(probe.full_key) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>> {
        Ok(self.0.iter().map(|run| run.layer(range.clone())).collect())
    }
}
