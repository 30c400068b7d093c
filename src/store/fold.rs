//! Folding: taking the deltas that wait into the index, or into the base where they are many.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::core::{Core, record_of};
use super::layers::{Fold, Source};
use super::load::{create, merged_with_ranges};
use super::options::Residency;
use super::rewrite::{collapse, write_collapsed};
use crate::backend::{Coverage, Generation};
use crate::error::Result;
use crate::run::Run;

/// Deltas that lie on the base go into a new generation, which costs a filter in heap and a look-up a read. Where many and few
/// changes take turns, there would be one more each time: from this number on they join the base, whose runs are merged.
const MOST_GENERATIONS: usize = 3;

/// An open maps every single delta above the base, at some 30 µs each; a process may have 65,530 mappings.
const MOST_SINGLES: u64 = 1024;

impl Core {
    /// Sees to folding once enough has come together: one pass over many deltas in key order costs far less than one each.
    pub(super) fn fold_soon(self: &Arc<Self>) {
        let longest = self.options.longest_tail;
        if self.waiting() > longest {
            // The background cannot keep up: whoever commits waits for it, or helps, so that reads stay bounded.
            self.report(self.fold(longest));
        } else {
            self.fold_behind();
        }
    }

    /// Queues folding once enough has come together. Opening goes no further: it costs the number of files, not what is in them.
    pub(super) fn fold_behind(self: &Arc<Self>) {
        let enough = self.options.longest_tail / 4;
        if self.waiting() > enough && !self.is_folding.swap(true, Ordering::AcqRel) {
            // The job holds no claim on the store's life: a provider that is dropped ends its folding.
            let (core, has_ended) = (Arc::downgrade(self), Arc::clone(&self.has_ended));
            self.backend.worker().submit(Box::new(move || {
                let has_ended = has_ended.lock().unwrap_or_else(PoisonError::into_inner);
                if !*has_ended && let Some(core) = core.upgrade() {
                    core.is_folding.store(false, Ordering::Release);
                    core.report(core.fold(enough));
                    if core.caretaker.get().is_none() {
                        core.report(core.bound_base());
                    }
                    #[cfg(feature = "metrics")]
                    core.backend.publish_metrics();
                }
            }));
        }
    }

    /// Keeps what an open replays and what a read touches within bounds.
    pub(crate) fn bound_base(&self) -> Result<()> {
        self.bound_singles()?;
        self.merge_base()
    }

    /// Collapses the single deltas above the base when there are very many, which tiny commits would otherwise make.
    fn bound_singles(&self) -> Result<()> {
        let singles = {
            let state = self.state();
            state.layers.mark.at.version.0.saturating_sub(state.collapsed_to.0)
        };
        if singles > MOST_SINGLES {
            self.move_base(|directory, chain| write_collapsed(directory, chain, &|_| self.go_on()))?;
        }
        Ok(())
    }

    fn report(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            // Nothing is lost: the deltas stay in the tail and are read from there.
            tracing::warn!(store = %self.directory.id(), %error, "deltas could not be taken in");
        }
    }

    /// Takes deltas in until at most `longest` wait.
    pub(super) fn fold(&self, longest: usize) -> Result<()> {
        while self.fold_once(longest)? {}
        Ok(())
    }

    fn fold_once(&self, longest: usize) -> Result<bool> {
        let _moving = self.moving();
        let layers = Arc::clone(&self.state().layers);
        let Some(fold) = layers.next_fold().filter(|_| layers.waiting() > longest) else { return Ok(false) };
        let joins_base =
            self.options.residency == Residency::Mapped && fold.bytes() >= self.options.collapse_from_bytes;
        let is_crowded = fold.generation.is_none() && layers.generations().len() >= MOST_GENERATIONS;
        if is_crowded || joins_base { self.join_base(&fold) } else { self.join_index(&fold) }?;
        Ok(true)
    }

    /// Applies the deltas to the generation below them, or to a new one where none is.
    fn join_index(&self, fold: &Fold) -> Result<()> {
        let Some((newest, older)) = fold.runs.split_first() else { return Ok(()) };
        let (generation, is_new) = match &fold.generation {
            Some(generation) => (Arc::clone(generation), false),
            None => (create(&self.backend, self.store, fold.from, Coverage::Changes)?, true),
        };
        let is_single = |run: &Run| run.header().from.next() == run.header().to;
        for run in older.iter().filter(|run| is_single(run)) {
            self.backend.engine().put_version(self.store, &record_of(run))?;
        }
        let record = is_single(newest).then(|| record_of(newest));
        let (mut changes, ranges) = merged_with_ranges(&fold.runs);
        generation.apply(&ranges, &mut changes, newest.header().mark(), record.as_ref())?;
        self.swap(&fold.runs, None, is_new.then_some(&Source::Generation(generation)));
        Ok(())
    }

    /// Writes the deltas as one run of the base, which is then read in place: for many changes that costs a fraction of what
    /// the index would take to sort, flush and compact them.
    fn join_base(&self, fold: &Fold) -> Result<()> {
        let run = match fold.runs.as_slice() {
            [] => return Ok(()),
            [only] => Arc::clone(only), // as it is
            several => {
                let Some(name) = collapse(&self.directory, several, &|_| ControlFlow::Continue(()))? else {
                    return Ok(());
                };
                self.directory.open_run(&name)?
            }
        };
        for run in &fold.runs {
            self.backend.engine().put_version(self.store, &record_of(run))?;
        }
        let sealed = self.state().sealed;
        let empty = fold.generation.as_ref().filter(|one| one.is_empty() && Some(one.id()) != sealed);
        let to = run.header().to;
        if self.swap(&fold.runs, empty, Some(&Source::Base(run))) {
            // A delta that joined as it is still is one more file for an open to map.
            let mut state = self.state();
            state.collapsed_to = if fold.runs.len() > 1 { to } else { state.collapsed_to };
            drop(state);
            empty.inspect(|generation| generation.retire());
        }
        Ok(())
    }

    /// Merges runs of the base while there are many of like size. Commits and folds go on meanwhile.
    pub(crate) fn merge_base(&self) -> Result<()> {
        loop {
            let layers = Arc::clone(&self.state().layers);
            let Some(runs) = layers.next_merge() else { return Ok(()) };
            drop(layers);
            // What maintenance has collapsed on the disk need not be what is read here.
            if let ([newest, ..], Some(oldest)) = (runs.as_slice(), runs.last())
                && self.directory.catalog()?.overlaps_in_part(oldest.header().from, newest.header().to)
            {
                return Ok(());
            }
            let Some(name) = collapse(&self.directory, &runs, &|_| self.go_on())? else { return Ok(()) };
            let merged = self.directory.open_run(&name)?;
            let _moving = self.moving();
            if !self.swap(&runs, None, Some(&Source::Base(merged))) {
                return Ok(()); // the base was moved or rolled back meanwhile
            }
        }
    }

    /// Reads through the base that the files make by now, where that has fewer runs. Folds and maintenance collapse side by side, each by
    /// what it sees, so a run that is there need not hold just what some sources here do; and it can then take the place of none of them.
    ///
    /// A source that reaches across the end of that base stays, on top of it: it knows the newest change of each key that it holds, so what the
    /// base knows of the same versions agrees with it.
    pub(crate) fn follow_the_files(&self) -> Result<()> {
        let folded = self.state().layers.folded_mark();
        let Some(folded) = folded.filter(|_| self.options.residency == Residency::Mapped) else { return Ok(()) };
        let catalog = self.directory.catalog()?;
        if !catalog.lineage().owns(folded.at) {
            return Ok(());
        }
        let chain = self.directory.open_chain(&catalog, folded.at)?;
        if chain.mark != folded {
            return Ok(());
        }
        let _moving = self.moving();
        // Before the state's lock, so that what is let go of here is dropped after it: that may call the index.
        let current;
        let mut state = self.state();
        current = Arc::clone(&state.layers);
        let sealed = state.sealed;
        let Some((layers, replaced)) = current.on_base(&chain, sealed) else { return Ok(()) };
        state.layers = Arc::new(layers);
        state.collapsed_to = state.collapsed_to.max(chain.base_mark().at.version);
        drop(state);
        replaced.iter().filter_map(Source::generation).for_each(|generation| generation.retire());
        Ok(())
    }

    /// Puts `by` in the place of `runs`. The caller holds `moving`: commits may put more on top meanwhile, but nobody else
    /// takes anything out.
    pub(super) fn swap(&self, runs: &[Arc<Run>], useless: Option<&Arc<Generation>>, by: Option<&Source>) -> bool {
        let mut state = self.state();
        let replaced = state.layers.replace(runs, useless, by);
        let done = replaced.is_some();
        if let Some(layers) = replaced {
            state.layers = Arc::new(layers);
        }
        done
    }
}
