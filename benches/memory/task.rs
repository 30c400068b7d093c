//! What a child does besides the phases.

use std::ffi::OsString;

use alluvium::{Clock, FamilyId, ReadStore, StateStoreProvider, SystemClock, Version, WriteStore};
use hdrhistogram::Histogram;

use crate::measure::Failure;
use crate::measure::child::{self, Answer};
use crate::measure::meter::Meter;
use crate::measure::phases::nanos;
use crate::measure::plan::Plan;
use crate::measure::stores::Stores;
use crate::measure::workload::{Workload, value};

/// The argument that makes a process a child.
pub(crate) const TASK: &str = "--task";
/// Commits of 10,000 changed keys on what the phases have left, everything cached.
pub(crate) const COMMITS: &str = "commits";
/// One transaction of all keys on an empty store.
pub(crate) const TRANSACTION: &str = "transaction";
/// Commits before those that are timed, and those.
const WARM_UP: u64 = 10;
const TIMED: u64 = 30;

/// In the parent.
pub(crate) fn run(task: &str, plan: &Plan) -> Result<Answer, Failure> {
    let mut arguments: Vec<OsString> = vec![TASK.into(), task.into()];
    arguments.extend(plan.arguments());
    child::run(&arguments, None, &mut || Ok(())).map_err(|failure| format!("{task}: {failure}").into())
}

/// In a child.
pub(crate) fn serve(task: &str, plan: &Plan) -> Result<(), Failure> {
    child::begin()?;
    let meter = Meter::start()?;
    let answer = match task {
        COMMITS => commits(plan)?,
        TRANSACTION => transaction(plan)?,
        _ => return Err(format!("no task {task:?}").into()),
    };
    child::answer(&answer.with("anonymous_bytes", meter.peak().anonymous_bytes))
}

fn commits(plan: &Plan) -> Result<Answer, Failure> {
    let clock = SystemClock::new();
    let stores = Stores::open(plan)?;
    let provider = stores.providers.first().ok_or("no store")?;
    let mut version = provider.latest()?;
    let first = version;
    for entry in provider.begin(version)?.scan(FamilyId::DEFAULT)? {
        entry?; // what is read is cached
    }
    // Another seed each time, or every round would change the same keys.
    let workload = Workload { keys: plan.keys, seed: version.0 };
    let mut commits = Histogram::<u64>::new(3)?;
    for batch in 0..WARM_UP + TIMED {
        let mut transaction = provider.begin(version)?;
        for key in workload.picks(batch) {
            if !transaction.contains(FamilyId::DEFAULT, &key)? {
                return Err("a key is gone".into());
            }
            transaction.put(FamilyId::DEFAULT, &key, &value(&key, version.0))?;
        }
        let began = clock.elapsed();
        version = transaction.commit()?;
        if batch >= WARM_UP {
            commits.record(nanos(clock.elapsed().saturating_sub(began)))?;
        }
    }
    let made = provider.versions()?;
    let made = made.iter().filter(|info| info.version > first);
    let (count, bytes) =
        made.fold((0, 0), |(count, bytes), info| (count + 1, bytes + info.file_bytes.unwrap_or_default()));
    Ok(Answer::default()
        .with("commit_nanos", commits.value_at_quantile(0.5))
        .with("delta_bytes", bytes / u64::max(count, 1)))
}

fn transaction(plan: &Plan) -> Result<Answer, Failure> {
    let clock = SystemClock::new();
    let stores = Stores::open(plan)?;
    let provider = stores.providers.first().ok_or("no store")?;
    let began = clock.elapsed();
    let mut transaction = provider.begin(Version::EMPTY)?;
    for number in 0..plan.keys {
        let key = plan.key(0, number);
        transaction.put(FamilyId::DEFAULT, &key, &value(&key, 0))?;
    }
    transaction.commit()?;
    Ok(Answer::default().with("nanos", nanos(clock.elapsed().saturating_sub(began))))
}
