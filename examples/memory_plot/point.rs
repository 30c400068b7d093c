//! One point of the plot: a provider with a number of keys, in processes of its own.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use alluvium::{
    Clock, FamilyId, LocalCheckpoint, MemoryProvider, ReadStore, StateStoreId, StateStoreProvider, StoreOptions,
    SystemClock, Version, WriteStore,
};
use hdrhistogram::Histogram;

use crate::args::Args;
use crate::measure::Failure;
use crate::measure::cgroup::Cgroup;
use crate::measure::child::{self, Answer};
use crate::measure::meter::Meter;
use crate::measure::phases::nanos;
use crate::measure::plan::Plan;
use crate::measure::stores::Stores;
use crate::measure::workload::{Workload, key, updates, value};
use crate::table::Row;

/// The argument that makes a process a child.
pub(crate) const TASK: &str = "--task";
const LOAD: &str = "load";
const RESTART: &str = "restart";
/// Commits that are timed, of 10,000 random updates each.
const COMMITS: u64 = 20;

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// The last two versions as whole maps in the heap.
    Memory,
    /// The product, under a limit.
    RocksDb,
}

impl Provider {
    pub(crate) const ALL: [Self; 2] = [Self::Memory, Self::RocksDb];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "MemoryProvider",
            Self::RocksDb => "RocksDbProvider",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }
}

/// In the parent: both tasks, one process after the other.
pub(crate) fn measure(plan: &Plan, provider: Provider, group: Option<&Cgroup>) -> Result<Row, Failure> {
    fs::create_dir_all(&plan.dir)?;
    let mut cache_bytes = 0;
    let mut task = |task: &str| {
        let mut arguments: Vec<OsString> = vec![TASK.into(), task.into(), "--provider".into(), provider.name().into()];
        arguments.extend(plan.arguments());
        let mut look = || {
            cache_bytes = group.map_or(0, |group| group.seen().cache_bytes).max(cache_bytes);
            Ok(())
        };
        child::run(&arguments, group, &mut look)
    };
    let (load, restart) = (task(LOAD)?, task(RESTART)?);
    let most = |name: &str| load.get(name).max(restart.get(name));
    Ok(Row {
        provider,
        keys: plan.keys,
        anonymous_bytes: most("anonymous_bytes"),
        mapped_bytes: most("mapped_bytes"),
        cached_bytes: cache_bytes,
        commit_nanos: load.get("commit_nanos"),
        restart_nanos: restart.get("nanos"),
    })
}

/// In a child.
pub(crate) fn serve(task: &str, args: &Args) -> Result<(), Failure> {
    child::begin()?;
    let plan = &args.plan;
    let meter = Meter::start()?;
    let answer = match (task, Provider::parse(&args.provider)) {
        (LOAD, Some(Provider::Memory)) => load(&memory(plan)?, plan),
        (LOAD, Some(Provider::RocksDb)) => load(rocksdb(&Stores::open(plan)?)?, plan),
        (RESTART, Some(provider)) => restart(provider, plan),
        _ => Err(format!("no task {task:?} for {:?}", args.provider).into()),
    };
    let (answer, peak) = (answer?, meter.peak());
    child::answer(&answer.with("anonymous_bytes", peak.anonymous_bytes).with("mapped_bytes", peak.mapped_bytes))
}

fn memory(plan: &Plan) -> Result<MemoryProvider, Failure> {
    let checkpoint = LocalCheckpoint::open(plan.checkpoint())?;
    Ok(MemoryProvider::open(checkpoint, StateStoreId::new("scale", 0, "state")?, StoreOptions::default())?)
}

fn rocksdb(stores: &Stores) -> Result<&impl StateStoreProvider, Failure> {
    Ok(stores.providers.first().ok_or("no store")?)
}

/// Loads, snapshots, and times commits. The same for both.
fn load(provider: &impl StateStoreProvider, plan: &Plan) -> Result<Answer, Failure> {
    let mut numbers = (0..plan.keys).peekable();
    let mut version = Version::EMPTY;
    while numbers.peek().is_some() {
        let mut transaction = provider.begin(version)?;
        for number in numbers.by_ref().take(usize::try_from(plan.commit_keys())?) {
            transaction.put(FamilyId::DEFAULT, &key(number), &value(&key(number), 0))?;
        }
        version = transaction.commit()?;
    }
    provider.snapshot()?;
    let workload = Workload { keys: plan.keys, seed: 1 };
    let clock = SystemClock::new();
    let mut commits = Histogram::<u64>::new(3)?;
    for batch in 0..COMMITS {
        let mut transaction = provider.begin(version)?;
        for key in workload.picks(batch) {
            let stored = transaction.get(FamilyId::DEFAULT, &key)?;
            let count = stored.and_then(|stored| updates(&key, &stored)).ok_or("a key has lost its value")?;
            transaction.put(FamilyId::DEFAULT, &key, &value(&key, count + 1))?;
        }
        let began = clock.elapsed();
        version = transaction.commit()?;
        commits.record(nanos(clock.elapsed().saturating_sub(began)))?;
    }
    Ok(Answer::default().with("commit_nanos", commits.value_at_quantile(0.5)))
}

/// From a new process to the first get, without a work directory.
fn restart(provider: Provider, plan: &Plan) -> Result<Answer, Failure> {
    let clock = SystemClock::new();
    match provider {
        Provider::Memory => first_get(&memory(plan)?, plan)?,
        Provider::RocksDb => {
            fs::remove_dir_all(plan.work())?;
            let began = clock.elapsed();
            first_get(rocksdb(&Stores::open(plan)?)?, plan)?;
            return Ok(took(clock.elapsed().saturating_sub(began)));
        }
    }
    Ok(took(clock.elapsed()))
}

fn took(duration: Duration) -> Answer {
    Answer::default().with("nanos", nanos(duration))
}

fn first_get(provider: &impl StateStoreProvider, plan: &Plan) -> Result<(), Failure> {
    let key = key(plan.keys / 2);
    let transaction = provider.begin(provider.latest()?)?;
    let stored = transaction.get(FamilyId::DEFAULT, &key)?;
    stored.and_then(|stored| updates(&key, &stored)).ok_or("a key has lost its value")?;
    transaction.abort();
    Ok(())
}
