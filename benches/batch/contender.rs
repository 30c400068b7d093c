//! Who is measured, and how one turn of it is.

use std::time::Duration;

use alluvium::{Clock, SystemClock};
use hdrhistogram::Histogram;

use crate::measure::Failure;
use crate::measure::workload::{Key, Workload};

/// What is done with a key and its value.
pub(crate) type Each<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failure> + 'a;

/// A store that is measured.
pub(crate) trait Contender {
    /// Puts the keys `0..keys` with their first values, and leaves them in the best shape that they can have.
    fn load(&mut self, workload: &Workload) -> Result<(), Failure>;

    /// Reads each of `picks`, puts its next value, and makes all of it durable in one commit. Says how long the commit took.
    fn batch(&mut self, picks: &[Key], clock: &SystemClock) -> Result<Duration, Failure>;

    /// Gives every entry in key order; also what warms the page cache.
    fn scan(&mut self, each: &mut Each<'_>) -> Result<(), Failure>;

    /// Does the work that the batches left for later, so that its bytes are counted.
    fn settle(&mut self) -> Result<(), Failure>;

    /// Opens again without the work directory: the time to the first read. `None` for those that can't.
    fn reopen(&mut self, key: &Key, clock: &SystemClock) -> Result<Option<Duration>, Failure>;

    /// Goes back by one version: the time to the first read. `None` for those that can't.
    fn roll_back(&mut self, key: &Key, clock: &SystemClock) -> Result<Option<Duration>, Failure>;
}

/// What one turn took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    pub(crate) wall: Duration,
    pub(crate) commit_p50: Duration,
    pub(crate) commit_p99: Duration,
}

/// Runs `count` batches from number `first` on. The picks are drawn before the clock starts.
pub(crate) fn turn(
    contender: &mut dyn Contender,
    workload: &Workload,
    first: u64,
    count: u64,
    clock: &SystemClock,
) -> Result<Turn, Failure> {
    let mut commits = Histogram::<u64>::new(3)?;
    let mut wall = Duration::ZERO;
    for batch in first..first + count {
        let picks = workload.picks(batch);
        let began = clock.elapsed();
        let commit = contender.batch(&picks, clock)?;
        wall += clock.elapsed().saturating_sub(began);
        commits.record(nanos(commit))?;
    }
    Ok(Turn {
        wall,
        commit_p50: Duration::from_nanos(commits.value_at_quantile(0.5)),
        commit_p99: Duration::from_nanos(commits.value_at_quantile(0.99)),
    })
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
