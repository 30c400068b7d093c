//! [`Background`]: looks after the store of a provider from the backend's maintenance thread.
//!
//! Every few commits it asks for a turn. In its turn it plans, does the most urgent task, and asks for another turn, as urgent as
//! what is left: so the stores of a backend share the thread by urgency. What fails is left alone for a while, longer each time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use super::act::act;
use super::options::MaintenanceOptions;
use super::pace::Pacer;
use super::plan::{Planned, Task, Urgency, plan};
use super::standalone::Done;
use crate::backend::JobUrgency;
use crate::catalog::RunName;
use crate::clock::Clock;
use crate::error::{ErrorKind, Result};
use crate::store::{Caretaker, Core, UpkeepState};

/// A look costs a listing, so there is one every so many commits, and fewer where a listing is long.
const LOOK_COMMITS: u64 = 16;
/// Merges of the base do not wait for a long snapshot to end.
const MERGE_BYTES: u64 = 64 << 20;
const MANY_SOURCES: usize = 32;
/// With so many commits since the last look, or somebody else's urgent work waiting, no pace is kept.
const MANY_COMMITS: u64 = 4096;
/// What reads and writes no more than this may be done while somebody waits.
const SHORT_BYTES: u64 = 64 << 20;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Looks after one store.
#[derive(Debug)]
pub(super) struct Background {
    me: Weak<Self>,
    options: MaintenanceOptions,
    clock: Arc<dyn Clock>,
    /// A bit for each urgency that a turn is asked for with: one job each.
    queued: AtomicU8,
    /// A turn was due while somebody else did the store's upkeep.
    was_busy: AtomicBool,
    /// How far a long write had come when the base was last merged beside it.
    merged_at: AtomicU64,
    /// Held for moments only; nothing is called under it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    told: UpkeepState,
    /// Commits since the last look.
    since: u64,
    /// A listing of so many files was read at the last look.
    files: u64,
    /// By kind of task: how often in a row it has failed, and when it may be tried again.
    pauses: BTreeMap<&'static str, (u32, Duration)>,
    /// How often a task has met damage.
    damage_met: u64,
    /// What was made last.
    made: Option<Task>,
    /// When the last scrub was, or the opening.
    scrubbed_at: Duration,
    /// The damage that was met when the last scrub began.
    known: Damage,
    /// And that was met when the one began that has not ended.
    looked_after: Damage,
}

/// In whose time work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Background,
    Opening,
}

/// What loads and reads have met.
#[derive(Debug, Default)]
struct Damage {
    passed_over: Vec<PathBuf>,
    met: u64,
}

impl Damage {
    fn of(core: &Core, by_tasks: u64) -> Self {
        let met = core.readers.damage().saturating_add(core.directory.damage_found()).saturating_add(by_tasks);
        Self { met, passed_over: core.passed_over() }
    }

    /// Whether there is more of it than `known`.
    fn exceeds(&self, known: &Self) -> bool {
        self.met > known.met || self.passed_over.iter().any(|file| !known.passed_over.contains(file))
    }
}

impl Caretaker<Core> for Background {
    fn committed(&self, core: &Arc<Core>) {
        let is_time = {
            let mut state = self.state();
            state.since += 1;
            state.told.replayed_deltas += 1;
            state.since >= LOOK_COMMITS.max(state.files / 64)
        };
        if is_time {
            self.look_soon(core);
        }
    }

    fn is_free(&self, core: &Arc<Core>) {
        if self.was_busy.swap(false, Ordering::SeqCst) {
            self.look_soon(core);
        }
    }

    fn tell(&self) -> UpkeepState {
        self.state().told.clone()
    }
}

impl Background {
    pub(super) fn new(options: MaintenanceOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let now = clock.elapsed();
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            options,
            clock,
            queued: AtomicU8::new(0),
            was_busy: AtomicBool::new(false),
            merged_at: AtomicU64::new(0),
            state: Mutex::new(State { scrubbed_at: now, ..State::default() }),
        })
    }

    /// Takes up its work for an open store.
    pub(super) fn attend(self: &Arc<Self>, core: &Arc<Core>) {
        let caretaker: Arc<dyn Caretaker<Core>> = Arc::<Self>::clone(self);
        core.caretaker.get_or_init(|| caretaker);
        // A job that meets damage commits no more until it is mended: nothing else would ask for a look.
        let (weak, me) = (Arc::downgrade(core), Weak::clone(&self.me));
        core.readers.on_damage(move || {
            if let (Some(core), Some(me)) = (weak.upgrade(), me.upgrade()) {
                me.ask(&core, Urgency::Urgent);
            }
        });
    }

    /// Asks for a turn, unless one is coming anyway.
    pub(super) fn look_soon(&self, core: &Arc<Core>) {
        let is_urgent = core.sources() > MANY_SOURCES;
        self.ask(core, if is_urgent { Urgency::Urgent } else { Urgency::Due });
    }

    fn ask(&self, core: &Arc<Core>, urgency: Urgency) {
        let Some(me) = self.me.upgrade() else { return };
        let urgency = job_urgency(urgency);
        let bit = 1_u8 << urgency;
        // One that is more urgent does not wait for its turn behind the others: it asks for another one.
        let asked = |queued: u8| (queued < bit).then_some(queued | bit);
        if self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, asked).is_err() {
            return;
        }
        // The job holds no claim on the store's life: a provider that is dropped ends its maintenance.
        let (weak, has_ended) = (Arc::downgrade(core), Arc::clone(&core.upkeep_ended));
        core.backend.upkeep().submit_at(
            urgency,
            Box::new(move || {
                me.queued.fetch_and(!bit, Ordering::AcqRel);
                // Whoever does the upkeep of this store meanwhile does not hold up that of the others.
                let has_ended = try_lock(&has_ended).or_else(|| {
                    me.was_busy.store(true, Ordering::SeqCst);
                    try_lock(&has_ended)
                });
                // Held during the turn: a provider that is dropped waits for it.
                if let Some(has_ended) = has_ended
                    && !*has_ended
                    && let Some(core) = weak.upgrade()
                    && let Some(left) = me.turn(&core, Turn::Background)
                {
                    me.ask(&core, left);
                }
            }),
        );
    }

    /// Does now, in the caller's thread, what is due.
    pub(super) fn catch_up(&self, core: &Core) {
        let _turn = core.upkeep_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while self.turn(core, Turn::Opening).is_some() {}
    }

    /// Does the most urgent thing of which something comes; says how urgent the next one is, if there is one.
    fn turn(&self, core: &Core, turn: Turn) -> Option<Urgency> {
        self.attempt("the base", || core.merge_base()); // the plan sees to what an open replays
        if core.sources() > MANY_SOURCES {
            self.attempt("the base", || core.follow_the_files());
        }
        let mut idle = Vec::new(); // a task of each kind at most
        while let Some(Planned { task, .. }) = self.look(core, &idle, turn) {
            let observe = |bytes: u64| self.while_writing(core, bytes);
            // What is only read does not wait, nor does somebody who opens.
            let pace = self.options.pace.filter(|_| task != Task::Retire && turn == Turn::Background);
            let is_hurried = || self.is_hurried(core);
            let pacer = Pacer::new(pace, &*self.clock, &observe).unless(&is_hurried);
            let done = self.attempt(kind(&task), || act(core, &self.options, &task, &|bytes| pacer.observe(bytes)));
            let Some(done) = done else {
                // The others do not wait for what fails. It is tried again when a commit asks, after its pause.
                idle.push(task);
                continue;
            };
            self.state().told.tasks_done += 1;
            if let Done::Repaired(repaired) = &done {
                self.rest_after_scrub();
                for left in &repaired.irreparable {
                    tracing::error!(file = %left.file.display(), damage = %left.damage, "a file cannot be made anew");
                }
            }
            let is_again = std::mem::replace(&mut self.state().made, done.is_made().then_some(task)) == Some(task);
            if !(done.is_nothing() || is_again) {
                return self.look(core, &[], turn).map(|left| left.urgency);
            }
            idle.push(task); // the plan would be the same again
        }
        None
    }

    /// The most urgent task that is worth a turn, without those that turned out to be `idle`.
    fn look(&self, core: &Core, idle: &[Task], turn: Turn) -> Option<Planned> {
        let lengths = |run: &RunName| core.directory.length(run);
        // Before the listing: what is folded meanwhile lies above it.
        let options = MaintenanceOptions { collapse_up_to: core.folded_to(), ..self.options.clone() };
        let looked = || core.directory.at_a_listing(|catalog| plan(catalog, &lengths, &options));
        let plan = self.attempt("planning", looked)?;
        let now = self.clock.elapsed();
        let mut state = self.state();
        state.since = 0;
        state.files = plan.files as u64;
        state.told.replayed_deltas = plan.open.replayed_deltas as u64;
        state.told.replayed_bytes = plan.open.replayed_bytes;
        state.told.base_runs = plan.open.base_runs as u64;
        state.told.base_bytes = plan.open.base_bytes;
        state.told.is_behind = plan.tasks.iter().any(|planned| planned.urgency == Urgency::Urgent);
        let damage = Damage::of(core, state.damage_met);
        let is_damaged = damage.exceeds(&state.known);
        let is_time = self.options.scrub_every.is_some_and(|every| now.saturating_sub(state.scrubbed_at) >= every);
        let repair = |urgency| Planned { task: Task::Repair, urgency, bytes: 0, files: 0 };
        let mended = (is_damaged && turn == Turn::Background).then(|| repair(Urgency::Urgent));
        let scrubbed = (is_time && turn == Turn::Background).then(|| repair(Urgency::Spare));
        let worth = plan.tasks.into_iter().filter(|planned| planned.urgency >= Urgency::Due);
        let rests = |task: &Task| state.pauses.get(kind(task)).is_some_and(|(_, until)| *until > now);
        // An opening does not wait for what takes the time of a large state.
        let is_short = |planned: &Planned| turn == Turn::Background || planned.bytes <= SHORT_BYTES;
        let is_wanted = |planned: &Planned| !rests(&planned.task) && !idle.contains(&planned.task) && is_short(planned);
        let next = mended.into_iter().chain(worth).chain(scrubbed).find(is_wanted);
        if next.is_some_and(|next| next.task == Task::Repair) {
            state.looked_after = damage;
        }
        next
    }

    /// Every byte has been read, and what could be mended is. A job that tries again and again what cannot be shall not have it read again
    /// each time.
    fn rest_after_scrub(&self) {
        let now = self.clock.elapsed();
        let mut state = self.state();
        state.scrubbed_at = now;
        state.known = std::mem::take(&mut state.looked_after);
        state.pauses.insert(kind(&Task::Repair), (0, now.saturating_add(LONGEST_PAUSE)));
    }

    /// Whether to go on; merges what has come together meanwhile, so that reads do not suffer from a long snapshot.
    fn while_writing(&self, core: &Core, bytes: u64) -> ControlFlow<()> {
        core.go_on()?;
        let part = bytes / MERGE_BYTES;
        if self.merged_at.swap(part, Ordering::Relaxed) != part && core.sources() > MANY_SOURCES {
            self.attempt("the base", || core.merge_base());
        }
        ControlFlow::Continue(())
    }

    /// Whether what is done slowly holds up what cannot wait: the thread is one for all stores.
    fn is_hurried(&self, core: &Core) -> bool {
        core.backend.upkeep().has_waiting(job_urgency(Urgency::Urgent)) || self.state().since >= MANY_COMMITS
    }

    /// Does something, and remembers how it went. After a failure the same kind of thing rests for a while.
    fn attempt<T>(&self, kind: &'static str, act: impl FnOnce() -> Result<T>) -> Option<T> {
        let now = self.clock.elapsed();
        if self.state().pauses.get(kind).is_some_and(|(_, until)| *until > now) {
            return None;
        }
        let outcome = act();
        let mut state = self.state();
        match outcome {
            Ok(done) => {
                state.pauses.remove(kind);
                Some(done)
            }
            // The provider is ending.
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => None,
            Err(error) => {
                let (failures, _) = state.pauses.get(kind).copied().unwrap_or_default();
                let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
                state.pauses.insert(kind, (failures.saturating_add(1), now.saturating_add(pause)));
                state.told.tasks_failed += 1;
                state.damage_met += u64::from(error.is_corrupt() || error.is_unreadable());
                state.told.last_error = Some(format!("{kind}: {error}"));
                drop(state);
                tracing::warn!(kind, %error, ?pause, "maintenance failed; it is tried again after a pause");
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment or one call, so it is whole whatever happened to a thread that held it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn kind(task: &Task) -> &'static str {
    match task {
        Task::Collapse { .. } => "a collapse",
        Task::Snapshot { .. } => "a snapshot",
        Task::Retire => "a retirement",
        Task::Repair => "a repair",
    }
}

fn job_urgency(urgency: Urgency) -> JobUrgency {
    match urgency {
        Urgency::Spare => 0,
        Urgency::Due => 1,
        Urgency::Urgent => 2,
    }
}
