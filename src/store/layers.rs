//! [`Layers`]: the sources that a transaction reads through, newest first.

use std::sync::Arc;

use super::below::Below;
use crate::backend::Generation;
use crate::bytes::Bytes;
use crate::entry::{Families, KeyRange, Probe};
use crate::error::Result;
use crate::run::{Layer, Run};
use crate::version::{Mark, RunId};

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

    /// The lowest delta that lies directly on a generation, with that generation: what to fold next.
    pub(super) fn next_fold(&self) -> Option<(Arc<Run>, Arc<Generation>)> {
        self.sources.windows(2).rev().find_map(|pair| match pair {
            [Source::Run(run), Source::Generation(generation)] => Some((Arc::clone(run), Arc::clone(generation))),
            _ => None,
        })
    }

    /// The stack without the run called `id`, which was folded into the source below it.
    pub(super) fn without_run(&self, id: RunId) -> Self {
        let keep = |source: &&Source| !matches!(source, Source::Run(run) if run.header().id == id);
        Self { sources: self.sources.iter().filter(keep).cloned().collect(), ..self.clone() }
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
