//! [`Layers`]: the sources that a transaction reads through, newest first.

use std::sync::Arc;

use super::below::Below;
use super::open_chain::OpenChain;
use crate::backend::{Generation, GenerationId};
use crate::bytes::Bytes;
use crate::catalog::next_merge;
use crate::entry::{Change, Families, KeyRange, Probe};
use crate::error::Result;
use crate::run::{Layer, Run};
use crate::version::{Mark, RunKind, Version, VersionId};

/// Unmapping a file takes 10 ms a GiB: from here on it is felt.
const LARGE_BYTES: u64 = 16 << 20;

/// One source of a state: a file read in place, or a key range of the index.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// The delta of a commit that waits, readable in place, for the index or the base to take it in.
    Waiting(Arc<Run>),
    /// Changes that were folded into the index.
    Generation(Arc<Generation>),
    /// A run of the base.
    Base(Arc<Run>),
}

impl Source {
    pub(super) fn generation(&self) -> Option<&Arc<Generation>> {
        match self {
            Self::Generation(generation) => Some(generation),
            Self::Waiting(_) | Self::Base(_) => None,
        }
    }

    pub(super) fn waiting(&self) -> Option<&Arc<Run>> {
        match self {
            Self::Waiting(run) => Some(run),
            Self::Generation(_) | Self::Base(_) => None,
        }
    }

    /// The state that it leads to.
    fn mark(&self) -> Mark {
        match self {
            Self::Generation(generation) => generation.applied(),
            Self::Waiting(run) | Self::Base(run) => run.header().mark(),
        }
    }

    /// The version that its changes are made on.
    fn from(&self) -> Version {
        match self {
            Self::Generation(generation) => generation.from().at.version,
            Self::Waiting(run) | Self::Base(run) => run.header().from,
        }
    }

    pub(super) fn base(&self) -> Option<&Arc<Run>> {
        match self {
            Self::Base(run) => Some(run),
            Self::Generation(_) | Self::Waiting(_) => None,
        }
    }
}

/// The deltas that are taken in next, and what they lie on.
#[derive(Debug)]
pub(super) struct Fold {
    /// Newest first.
    pub(super) runs: Vec<Arc<Run>>,
    /// The generation below them, if it is one that lies there.
    pub(super) generation: Option<Arc<Generation>>,
    /// The state that they lie on.
    pub(super) from: Mark,
}

impl Fold {
    pub(super) fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.file_bytes()).sum()
    }
}

/// A state as a stack of sources, newest first. The first source that knows a key decides.
///
/// ```text
/// tail: deltas that wait ─► generation ─► base: collapsed deltas ─► snapshot
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
        let sources = std::iter::once(Source::Waiting(run)).chain(self.sources.iter().cloned()).collect();
        Self { mark, families, sources }
    }

    /// Whether nothing has been taken into the generation on top.
    pub(super) fn is_sealed(&self) -> bool {
        let top = self.sources.first().and_then(Source::generation);
        top.is_some_and(|generation| generation.is_empty() && generation.from() == self.mark)
    }

    /// How many deltas wait to be taken in.
    pub(super) fn waiting(&self) -> usize {
        self.sources.iter().filter_map(Source::waiting).count()
    }

    /// What to take in next: the lowest deltas that wait, down to whatever they lie on.
    ///
    /// A fold that was cut off is repeated as it was: up to the delta it was on its way to, since the generation may hold a
    /// part of everything up to there.
    pub(super) fn next_fold(&self) -> Option<Fold> {
        let lowest = self.sources.iter().rposition(|source| source.waiting().is_some())?;
        let upwards = self.sources.get(..=lowest)?.iter().rev();
        let mut runs: Vec<Arc<Run>> = upwards.map_while(Source::waiting).cloned().collect(); // at most the tail
        let below = self.sources.get(lowest + 1);
        let generation = below.and_then(Source::generation).cloned();
        let from = match below {
            Some(Source::Generation(generation)) => generation.applied(),
            Some(Source::Base(run) | Source::Waiting(run)) => run.header().mark(),
            None => Mark::ROOT,
        };
        if let Some(torn) = generation.as_ref().and_then(|generation| generation.torn()) {
            let target = runs.iter().position(|run| run.header().mark() == torn)?;
            runs.truncate(target + 1);
        }
        runs.reverse();
        Some(Fold { runs, generation, from })
    }

    /// The stack with `runs` (and a generation that they made useless, if there is one) replaced by `by`. `None` where they
    /// are no longer there, all and next to each other.
    pub(super) fn replace(
        &self,
        runs: &[Arc<Run>],
        useless: Option<&Arc<Generation>>,
        by: Option<&Source>,
    ) -> Option<Self> {
        let is_one_of = |source: &Source| match source {
            Source::Waiting(run) | Source::Base(run) => runs.iter().any(|one| Arc::ptr_eq(one, run)),
            Source::Generation(generation) => useless.is_some_and(|useless| Arc::ptr_eq(useless, generation)),
        };
        let count = runs.len() + usize::from(useless.is_some());
        let first = self.sources.iter().position(is_one_of)?;
        let (above, rest) = self.sources.split_at(first);
        let (replaced, below) = rest.split_at_checked(count).filter(|(replaced, _)| replaced.iter().all(is_one_of))?;
        debug_assert_eq!(replaced.len(), count);
        let sources = above.iter().chain(by).chain(below).cloned().collect();
        Some(Self { sources, ..self.clone() })
    }

    /// Which state the sources below the tail make.
    pub(super) fn folded_mark(&self) -> Option<Mark> {
        self.sources.iter().find(|source| source.waiting().is_none()).map(Source::mark)
    }

    /// The stack on the base of `chain`, with the sources that reach above that, and those that it takes the place of; `None` where it would be
    /// no shorter, or does not reach up to what stays.
    pub(super) fn on_base(&self, chain: &OpenChain, sealed: Option<GenerationId>) -> Option<(Self, Vec<Source>)> {
        let end = chain.base_mark().at.version;
        let stays = |source: &Source| {
            let is_needed = source.generation().is_some_and(|one| Some(one.id()) == sealed || one.torn().is_some());
            is_needed || source.mark().at.version > end
        };
        let (kept, replaced): (Vec<Source>, Vec<Source>) = self.sources.iter().cloned().partition(stays);
        let reaches = kept.last().is_none_or(|lowest| lowest.from() <= end);
        if !reaches || kept.len() + chain.base.len() >= self.sources.len() {
            return None;
        }
        let sources = kept.into_iter().chain(chain.base.iter().rev().cloned().map(Source::Base)).collect();
        Some((Self { sources, ..self.clone() }, replaced))
    }

    /// The runs of the base that hold exactly the versions `(from, to]`, newest first, where there are several.
    pub(super) fn base_between(&self, from: Version, to: VersionId) -> Option<Vec<Arc<Run>>> {
        let starts = |run: &&Arc<Run>| run.header().to_id() == to;
        let place = self.sources.iter().position(|source| source.base().as_ref().is_some_and(starts))?;
        let mut parts: Vec<Arc<Run>> = Vec::new(); // as many as the base has
        for run in self.sources.get(place..)?.iter().map_while(Source::base) {
            if run.header().kind == RunKind::Snapshot || run.header().from < from {
                return None;
            }
            parts.push(Arc::clone(run));
            if run.header().from == from {
                return (parts.len() > 1).then_some(parts);
            }
        }
        None
    }

    /// Adjacent collapsed deltas of like size that should become one, newest first; `None` where there are none.
    ///
    /// [`next_merge`](crate::catalog::next_merge) says which.
    pub(super) fn next_merge(&self) -> Option<Vec<Arc<Run>>> {
        let collapsed = |source: &Source| source.base().filter(|run| run.header().kind == RunKind::Delta).cloned();
        let mut rest = self.sources.as_slice();
        while let Some(start) = rest.iter().position(|source| collapsed(source).is_some()) {
            rest = rest.get(start..)?;
            let runs: Vec<Arc<Run>> = rest.iter().map_while(collapsed).collect(); // as many as the base has
            if let Some(alike) = next_merge(runs.iter().map(|run| run.file_bytes())) {
                return runs.get(alike).map(<[_]>::to_vec);
            }
            rest = rest.get(runs.len()..)?;
        }
        None
    }
}

impl Below for Layers {
    fn last_reads(&self) -> Vec<Arc<Run>> {
        let base = self.sources.iter().filter_map(Source::base);
        base.filter(|run| Arc::strong_count(run) == 1 && run.file_bytes() >= LARGE_BYTES).cloned().collect() // a few
    }

    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>> {
        let mut rest = self.sources.as_slice();
        while let Some((source, below)) = rest.split_first() {
            let said = match source {
                Source::Base(_) => {
                    let (runs, below) = rest.split_at(rest.iter().take_while(|one| one.base().is_some()).count());
                    rest = below;
                    get_through(runs, Source::base, probe)?
                }
                Source::Waiting(run) => {
                    rest = below;
                    run.get(probe)?.or_else(|| run.covers(probe.full_key).then_some(Change::Tombstone))
                }
                Source::Generation(generation) => {
                    rest = below;
                    let change = generation.get(probe)?;
                    change.or_else(|| generation.covers(probe.full_key).then_some(Change::Tombstone))
                }
            };
            if let Some(change) = said {
                return Ok(change.into_value());
            }
        }
        Ok(None)
    }

    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>> {
        self.sources
            .iter()
            .map(|source| match source {
                Source::Waiting(run) | Source::Base(run) => Ok(run.layer(range.clone())),
                Source::Generation(generation) => {
                    Ok(Layer { ranges: generation.ranges(), cursor: generation.cursor(range)? })
                }
            })
            .collect()
    }
}

/// So many runs are asked for their filters at once.
const ASKED_TOGETHER: usize = 32;

/// What runs, newest first, say about a key; `None` where they say nothing, so that it is as what lies below them has it.
fn get_through<T>(
    newest_first: &[T],
    run_of: impl Fn(&T) -> Option<&Arc<Run>>,
    probe: &Probe<'_>,
) -> Result<Option<Change<Bytes>>> {
    for some in newest_first.chunks(ASKED_TOGETHER) {
        // All filters before any run, the oldest and largest first: what has to come from memory for one is on its way while the
        // others are asked.
        let ask = |all, one| all << 1 | u32::from(run_of(one).is_some_and(|run| run.may_hold(probe)));
        let may_hold: u32 = if let [_] = some { 1 } else { some.iter().rev().fold(0, ask) };
        for (place, run) in some.iter().enumerate().filter_map(|(place, one)| Some((place, run_of(one)?))) {
            if may_hold >> place & 1 == 1
                && let Some(change) = run.get(probe)?
            {
                return Ok(Some(change));
            }
            if run.covers(probe.full_key) {
                return Ok(Some(Change::Tombstone));
            }
        }
    }
    Ok(None)
}

/// A chain of runs alone: what views read, whatever the index holds. Newest first.
#[derive(Debug)]
pub(super) struct RunStack(pub(super) Vec<Arc<Run>>);

impl Below for RunStack {
    fn get(&self, probe: &Probe<'_>) -> Result<Option<Bytes>> {
        Ok(get_through(&self.0, |run| Some(run), probe)?.and_then(Change::into_value))
    }

    fn layers(&self, range: &KeyRange) -> Result<Vec<Layer>> {
        Ok(self.0.iter().map(|run| run.layer(range.clone())).collect())
    }
}
