//! The phases of a scale test. Each runs in a process of its own, on what the ones before it have left on disk.

use std::fs;
use std::time::Duration;

use alluvium::{Clock, FamilyId, ReadStore, StateStoreProvider, SystemClock, Version, WriteStore};

use super::child::Answer;
use super::meter::Meter;
use super::plan::{Content, Plan};
use super::progress::Progress;
use super::stores::Stores;
use super::workload::mix;
use super::{Failure, kernel};

/// While loading, files that newer ones have replaced are deleted after so many commits of each store.
const RETIRE_EVERY: u64 = 16;
/// Gets of the phase that reads at old versions, and how long it goes on at most: where the state is far larger than the memory
/// for its pages, each get waits for the disk.
const OLD_READS: u64 = 100_000;
const OLD_READS_TIME: Duration = Duration::from_secs(30);
/// Versions of which a checksum is verified at the end; more would take longer than all the rest.
const VERIFIED_VERSIONS: u64 = 4;
/// How many entries pass between two looks at the progress.
const STEP: u64 = 50_000;

/// One of the phases, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Load,
    Overwrite,
    Snapshot,
    /// Everything, in the newest version, through a transaction.
    Scan,
    /// Going on at another version, and back at the newest.
    OtherVersion,
    /// Everything, in the version before the overwrites.
    OldVersion,
    /// Single keys, at many versions.
    OldReads,
    /// Opening without the work directory, then everything.
    Restart,
    /// A checksum per version.
    Verify,
}

impl Phase {
    pub(crate) const ALL: [Self; 9] = [
        Self::Load,
        Self::Overwrite,
        Self::Snapshot,
        Self::Scan,
        Self::OtherVersion,
        Self::OldVersion,
        Self::OldReads,
        Self::Restart,
        Self::Verify,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Overwrite => "overwrite",
            Self::Snapshot => "snapshot",
            Self::Scan => "scan",
            Self::OtherVersion => "load another version",
            Self::OldVersion => "read an old version",
            Self::OldReads => "gets at old versions",
            Self::Restart => "restart",
            Self::Verify => "verify",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }
}

/// Runs a phase, and says: `nanos`, `keys`, the peaks, and what the phase has to say.
pub(crate) fn run(phase: Phase, plan: &Plan) -> Result<Answer, Failure> {
    let meter = Meter::start()?;
    let clock = SystemClock::new();
    let job = Job { plan, meter: &meter, clock: &clock };
    let answer = match phase {
        Phase::Load => job.load(),
        Phase::Overwrite => job.overwrite(),
        Phase::Snapshot => job.snapshot(),
        Phase::Scan => job.scan(),
        Phase::OtherVersion => job.other_version(),
        Phase::OldVersion => job.read_versions(&[plan.loaded()]),
        Phase::OldReads => job.old_reads(),
        Phase::Restart => job.restart(),
        Phase::Verify => job.read_versions(&plan.some_versions(VERIFIED_VERSIONS)),
    };
    let (answer, peak) = (answer?, meter.peak());
    Ok(answer
        .with("anonymous_bytes", peak.anonymous_bytes)
        .with("mapped_bytes", peak.mapped_bytes)
        .with("accounted_bytes", peak.accounted_bytes)
        .with("unaccounted_bytes", peak.unaccounted_bytes)
        .with("written_bytes", kernel::written_bytes()))
}

struct Job<'a> {
    plan: &'a Plan,
    meter: &'a Meter,
    clock: &'a SystemClock,
}

impl Job<'_> {
    fn open(&self) -> Result<Stores, Failure> {
        let stores = Stores::open(self.plan)?;
        self.meter.ask(Some(stores.accounts()));
        Ok(stores)
    }

    /// Nobody may hold the backend when it is to be opened again, or when its closing is to be timed.
    fn close(&self, stores: Stores) {
        self.meter.ask(None);
        drop(stores);
    }

    /// The answer of a phase that began at `began` and worked on `keys`.
    fn done(&self, began: Duration, keys: u64) -> Answer {
        Answer::default().with("nanos", nanos(self.clock.elapsed().saturating_sub(began))).with("keys", keys)
    }

    fn all_keys(&self) -> u64 {
        self.plan.store_keys() * self.plan.stores
    }

    fn load(&self) -> Result<Answer, Failure> {
        let began = self.clock.elapsed();
        let stores = self.open()?;
        let plan = self.plan;
        let mut progress = Progress::start("load", self.all_keys());
        for version in 0..plan.loaded().0 {
            for (store, provider) in stores.each() {
                let mut transaction = provider.begin(Version(version))?;
                self.read_some(&transaction, store, version * plan.commit_keys())?;
                let numbers =
                    (version * plan.commit_keys()..plan.store_keys()).take(usize::try_from(plan.commit_keys())?);
                let mut count = 0;
                for number in numbers {
                    let (key, value) = (plan.key(store, number), plan.value(store, number, plan.loaded()));
                    transaction.put(FamilyId::DEFAULT, &key, &value)?;
                    count += 1;
                }
                transaction.commit()?;
                if version % RETIRE_EVERY == RETIRE_EVERY - 1 {
                    provider.retire(1)?;
                }
                progress.advance(count);
            }
        }
        self.settle(&stores)?;
        self.close(stores);
        Ok(self.done(began, self.all_keys()))
    }

    /// Reads as many keys as the plan wants, of the first `loaded` of a store.
    fn read_some(&self, transaction: &impl ReadStore, store: u64, loaded: u64) -> Result<(), Failure> {
        let draws =
            (0..self.plan.reads).filter_map(|draw| mix(transaction.version().0 << 32 | draw).checked_rem(loaded));
        for number in draws {
            let found = transaction.get(FamilyId::DEFAULT, &self.plan.key(store, number))?;
            expect("whether a key is there", &found.is_some(), &true)?;
        }
        Ok(())
    }

    /// What the commits left for later belongs to them.
    fn settle(&self, stores: &Stores) -> Result<(), Failure> {
        for (_, provider) in stores.each() {
            provider.settle()?;
            provider.retire(self.retained()?)?;
        }
        Ok(())
    }

    /// The versions that stay: the one before the overwrites, and theirs.
    fn retained(&self) -> Result<usize, Failure> {
        Ok(usize::try_from(self.plan.overwrites() + 1)?)
    }

    fn overwrite(&self) -> Result<Answer, Failure> {
        let began = self.clock.elapsed();
        let stores = self.open()?;
        let plan = self.plan;
        let mut progress = Progress::start("overwrite", plan.overwrites() * plan.stores);
        let mut keys = 0;
        for version in plan.loaded().0..plan.newest().0 {
            for (store, provider) in stores.each() {
                let mut transaction = provider.begin(Version(version))?;
                self.read_some(&transaction, store, plan.store_keys())?;
                for number in plan.overwritten(store, Version(version + 1)) {
                    let value = plan.value(store, number, plan.newest());
                    transaction.put(FamilyId::DEFAULT, &plan.key(store, number), &value)?;
                    keys += 1;
                }
                transaction.commit()?;
                progress.advance(1);
            }
        }
        self.settle(&stores)?;
        self.close(stores);
        Ok(self.done(began, keys))
    }

    fn snapshot(&self) -> Result<Answer, Failure> {
        let began = self.clock.elapsed();
        let stores = self.open()?;
        let mut progress = Progress::start("snapshot", self.plan.stores);
        for (_, provider) in stores.each() {
            let version = provider.snapshot()?;
            expect("the version of the snapshot", &version, &self.plan.newest())?;
            provider.retire(self.retained()?)?;
            progress.advance(1);
        }
        self.close(stores);
        Ok(self.done(began, self.all_keys()))
    }

    fn scan(&self) -> Result<Answer, Failure> {
        let stores = self.open()?;
        let answer = self.scan_newest(&stores)?;
        self.close(stores);
        Ok(answer)
    }

    /// Reads the newest version through transactions, which see what the index holds.
    fn scan_newest(&self, stores: &Stores) -> Result<Answer, Failure> {
        let newest = self.plan.newest();
        let mut progress = Progress::start("scan", self.all_keys());
        let began = self.clock.elapsed();
        let mut found = Vec::new(); // one for each store
        for (_, provider) in stores.each() {
            let transaction = provider.begin(newest)?;
            found.push(content(&transaction, &mut progress)?);
            transaction.abort();
        }
        let answer = self.done(began, self.all_keys());
        Ok(answer.with("checksum", self.verified(&found, newest)?))
    }

    /// The checksum of all stores together, if each is what it should be.
    fn verified(&self, found: &[Content], at: Version) -> Result<u64, Failure> {
        let mut all = Content::default();
        for (store, found) in (0..).zip(found) {
            expect(&format!("the content of store {store} at version {}", at.0), found, &self.plan.content(store, at))?;
            all = all.and(*found);
        }
        Ok(all.checksum)
    }

    /// Reads whole versions through views.
    fn read_versions(&self, versions: &[Version]) -> Result<Answer, Failure> {
        let stores = self.open()?;
        let mut progress = Progress::start("read versions", self.all_keys() * versions.len() as u64);
        let (mut took, mut answer) = (Duration::ZERO, Answer::default());
        for version in versions {
            let began = self.clock.elapsed();
            let mut found = Vec::new(); // one for each store
            for (_, provider) in stores.each() {
                found.push(content(&provider.read_at(*version)?, &mut progress)?);
            }
            took += self.clock.elapsed().saturating_sub(began);
            answer = answer.with(&format!("version-{}", version.0), self.verified(&found, *version)?);
        }
        self.close(stores);
        Ok(answer.with("nanos", nanos(took)).with("keys", self.all_keys() * versions.len() as u64))
    }

    /// Begins on the version before the overwrites, and then on the newest again.
    fn other_version(&self) -> Result<Answer, Failure> {
        let stores = self.open()?;
        let began = self.clock.elapsed();
        let mut progress = Progress::start("load another version", 2 * self.plan.stores);
        for version in [self.plan.loaded(), self.plan.newest()] {
            for (store, provider) in stores.each() {
                let transaction = provider.begin(version)?;
                for number in (0..1000).map(|number| mix(number) % self.plan.store_keys()) {
                    self.get(&transaction, store, number, version)?;
                }
                transaction.abort();
                progress.advance(1);
            }
        }
        let answer = self.done(began, 2 * self.all_keys());
        self.close(stores);
        Ok(answer)
    }

    /// Reads one key, and checks it.
    fn get(&self, reader: &impl ReadStore, store: u64, number: u64, at: Version) -> Result<(), Failure> {
        let found = reader.get(FamilyId::DEFAULT, &self.plan.key(store, number))?;
        let expected = self.plan.value(store, number, at);
        if found.as_deref() == Some(expected.as_slice()) {
            return Ok(());
        }
        Err(format!("store {store}, key {number} at version {}: found {found:?}, expected {expected:?}", at.0).into())
    }

    fn old_reads(&self) -> Result<Answer, Failure> {
        let stores = self.open()?;
        let plan = self.plan;
        let versions: Vec<Version> = (plan.loaded().0..=plan.newest().0).map(Version).collect(); // as many as are retained
        let mut progress = Progress::start("gets at old versions", OLD_READS);
        let began = self.clock.elapsed();
        let until = began + OLD_READS_TIME;
        let mut gets = 0;
        for (store, provider) in stores.each() {
            let views = versions.iter().map(|at| provider.read_at(*at)).collect::<Result<Vec<_>, _>>()?; // as many again
            for (get, view) in (0..OLD_READS / plan.stores).zip(views.iter().cycle()) {
                if self.clock.elapsed() > until {
                    break;
                }
                self.get(view, store, mix(get) % plan.store_keys(), view.version())?;
                gets += 1;
            }
            progress.advance(OLD_READS / plan.stores);
        }
        let answer = self.done(began, gets);
        self.close(stores);
        Ok(answer)
    }

    fn restart(&self) -> Result<Answer, Failure> {
        fs::remove_dir_all(self.plan.work())?;
        let began = self.clock.elapsed();
        let stores = self.open()?;
        for (store, provider) in stores.each() {
            let transaction = provider.begin(self.plan.newest())?;
            self.get(&transaction, store, self.plan.store_keys() / 2, self.plan.newest())?;
            transaction.abort();
        }
        let opened = self.clock.elapsed().saturating_sub(began);
        let answer = self.scan_newest(&stores)?.with("open_nanos", nanos(opened));
        self.close(stores);
        Ok(answer)
    }
}

/// Everything that a reader sees. It must be in order of the keys, each once.
fn content(reader: &impl ReadStore, progress: &mut Progress) -> Result<Content, Failure> {
    let mut content = Content::default();
    let mut last: Option<alluvium::Bytes> = None;
    let mut told = 0;
    for entry in reader.scan(FamilyId::DEFAULT)? {
        let entry = entry?;
        if last.as_ref().is_some_and(|last| **last >= *entry.key) {
            return Err(format!("the key {:?} is out of order", entry.key).into());
        }
        content = content.with(&entry.key, &entry.value);
        last = Some(entry.key);
        if content.keys - told == STEP {
            progress.advance(STEP);
            told = content.keys;
        }
    }
    progress.advance(content.keys - told);
    Ok(content)
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}").into()) }
}

/// As a number that a child can answer with.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
