//! The child: this test binary started again, as a program that follows a plan and tells what it does.
//!
//! Every line on its standard error that starts with `@` is for the parent; anything else there is a panic, or noise.

use std::env;
use std::io::{Write, stderr, stdin};
use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium::prelude::*;
use alluvium::{
    Access, Backend, BackendOptions, Error, ErrorKind, IdSource, LocalCheckpoint, Result, RocksDbProvider,
    StoreOptions, SystemClock, Version,
};

use super::model::{Batch, Dice, FAMILIES, Op, store_id};

const CHECKPOINT: &str = "ALLUVIUM_WRITER_CHECKPOINT";
const WORK: &str = "ALLUVIUM_WRITER_WORK";
const RUN: &str = "ALLUVIUM_WRITER_RUN";
const PLAN: &str = "ALLUVIUM_WRITER_PLAN";
const ENDING: &str = "ALLUVIUM_WRITER_ENDING";

/// How often a writer has opened its store.
static OPENINGS: AtomicU64 = AtomicU64::new(0);

/// Opening is tried so often: faults that come once must not end a writer.
const MOST_OPENS: usize = 3;
pub(super) const FENCED_CODE: i32 = 3;
pub(super) const GAVE_UP_CODE: i32 = 4;

/// What a writer does when its plan is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Exit,
    /// It keeps everything open until its standard input ends.
    Linger,
    /// It opens the store once more, with positioned reads, and tells how many bytes it read from files for it.
    Measure,
}

/// What a writer is to do.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) checkpoint: PathBuf,
    /// Where RocksDB lives; without it the index is in heap.
    pub(super) work: Option<PathBuf>,
    pub(super) run: u64,
    pub(super) plan: String,
    pub(super) ending: Ending,
}

impl Job {
    /// A command that does this job in a process of its own.
    pub(super) fn command(&self, before: &[String]) -> Command {
        let myself = env::current_exe().unwrap();
        let mut command = match before.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(myself);
                command
            }
            None => Command::new(myself),
        };
        command.args(["--exact", "process::writer::writer_main", "--nocapture", "--test-threads=1"]);
        command.env(CHECKPOINT, &self.checkpoint).env(RUN, self.run.to_string()).env(PLAN, &self.plan);
        command.env(ENDING, format!("{:?}", self.ending)).env("RUST_BACKTRACE", "0");
        match &self.work {
            Some(work) => command.env(WORK, work),
            None => command.env_remove(WORK),
        };
        command
    }

    fn of_environment() -> Option<Self> {
        let ending = match env::var(ENDING).ok()?.as_str() {
            "Linger" => Ending::Linger,
            "Measure" => Ending::Measure,
            _ => Ending::Exit,
        };
        Some(Self {
            checkpoint: env::var_os(CHECKPOINT)?.into(),
            work: env::var_os(WORK).map(PathBuf::from),
            run: env::var(RUN).ok()?.parse().unwrap(),
            plan: env::var(PLAN).ok()?,
            ending,
        })
    }

    pub(super) fn batch(&self, step: usize) -> Batch {
        Batch { op: Op::of(self.plan.chars().nth(step).unwrap()), run: self.run, step }
    }
}

/// Small limits, so that the index flushes and takes deltas in several batches.
pub(super) fn backend_options() -> BackendOptions {
    BackendOptions::default().memory_limit(8 << 20)
}

/// Short tails, so that folding has begun at any moment.
pub(super) fn store_options() -> StoreOptions {
    // Every version stays, so that all of them can be checked.
    StoreOptions::default().longest_tail(4).unwrap().retain_versions(1_000_000).unwrap()
}

#[test]
fn writer_main() {
    let Some(job) = Job::of_environment() else { return };
    tell(&format!("pid {}", std::process::id()));
    let mut writer = Writer { job, open: None };
    if writer.open_patiently().is_err() {
        exit(GAVE_UP_CODE);
    }
    for step in 0..writer.job.plan.len() {
        writer.step(step);
    }
    match writer.job.ending {
        Ending::Exit => {}
        Ending::Linger => {
            tell("lingers");
            stdin().read_line(&mut String::new()).unwrap();
        }
        Ending::Measure => writer.measure(),
    }
    writer.open = None;
    tell("done");
    exit(0);
}

struct Writer {
    job: Job,
    open: Option<(RocksDbProvider, Backend)>,
}

impl Writer {
    fn step(&mut self, step: usize) {
        tell(&format!("try {step}"));
        let batch = self.job.batch(step);
        match self.act(&batch) {
            Ok(()) => tell(&format!("ok {step}")),
            Err(error) => {
                tell_failure(&error);
                if matches!(error.kind(), ErrorKind::Fenced { .. }) {
                    exit(FENCED_CODE);
                }
                match self.head() {
                    Ok((version, metadata)) => tell(&format!("head {version} {metadata}")),
                    Err(_) => exit(GAVE_UP_CODE),
                }
            }
        }
    }

    fn act(&mut self, batch: &Batch) -> Result<()> {
        if batch.op == Op::Reopen {
            return self.open_patiently();
        }
        let (provider, backend) = self.parts();
        match batch.op {
            Op::Snapshot => provider.snapshot().map(drop),
            Op::Collapse => provider.collapse().map(drop),
            Op::Settle => provider.settle().and_then(|()| backend.flush()),
            _ => transact(provider, batch),
        }
    }

    fn parts(&self) -> (&RocksDbProvider, &Backend) {
        let (provider, backend) = self.open.as_ref().unwrap();
        (provider, backend)
    }

    /// Opens backend and store, after closing those that are open.
    fn open_patiently(&mut self) -> Result<()> {
        self.open = None;
        let mut attempt = 0;
        loop {
            tell("open");
            attempt += 1;
            match open(&self.job, store_options(), self.ids()) {
                Ok(opened) => {
                    tell(&format!("opened {}", opened.0.latest()?));
                    self.open = Some(opened);
                    return Ok(());
                }
                Err(error) => {
                    tell_failure(&error);
                    if attempt == MOST_OPENS {
                        exit(GAVE_UP_CODE);
                    }
                }
            }
        }
    }

    /// The newest version and its metadata, which name the batch that made it. One more try after a failure.
    fn head(&self) -> Result<(Version, String)> {
        let look = || {
            let (provider, _) = self.parts();
            let version = provider.latest()?;
            let metadata = provider.metadata(version)?;
            Ok((version, String::from_utf8(metadata.to_vec()).unwrap()))
        };
        look().or_else(|error| {
            tell_failure(&error);
            look()
        })
    }

    /// They repeat with the run, and with them the names of temporary files, so that a fault can be aimed at these. No
    /// two openings draw the same.
    fn ids(&self) -> IdSource {
        let opening = OPENINGS.fetch_add(1, Ordering::Relaxed);
        IdSource::seeded(Dice::new(self.job.run ^ opening.rotate_left(32)).next())
    }

    fn measure(&mut self) {
        self.open = None;
        let before = bytes_read();
        let (provider, backend) = open(&self.job, store_options().access(Access::Positioned), self.ids()).unwrap();
        let opened = bytes_read();
        let batch = provider.begin(provider.latest().unwrap()).unwrap();
        let family = batch.family(FAMILIES[0]).unwrap();
        assert!(batch.contains(family, b"key 0500").unwrap());
        tell(&format!("read {} {}", opened - before, bytes_read() - opened));
        batch.abort();
        self.open = Some((provider, backend));
    }
}

fn transact(provider: &RocksDbProvider, batch: &Batch) -> Result<()> {
    let newest = provider.latest()?;
    let base = if matches!(batch.op, Op::Older | Op::Abort) { newest.previous() } else { newest };
    let mut transaction = provider.begin(base)?;
    batch.edits().iter().try_for_each(|edit| edit.write(&mut transaction))?;
    if batch.op == Op::Abort {
        transaction.abort();
        return Ok(());
    }
    let version = transaction.commit_with(batch.metadata().as_bytes())?;
    assert_eq!(version, base.next(), "a commit says which version it made");
    Ok(())
}

/// Opens what a job works on.
pub(super) fn open(job: &Job, options: StoreOptions, ids: IdSource) -> Result<(RocksDbProvider, Backend)> {
    let backend = match &job.work {
        Some(work) => Backend::open(work, backend_options())?,
        None => Backend::in_memory()?,
    };
    let checkpoint = LocalCheckpoint::open(&job.checkpoint)?;
    let clock = Arc::new(SystemClock::new());
    Ok((RocksDbProvider::open_with(&backend, checkpoint, store_id(), options, ids, clock)?, backend))
}

/// What this process has read from files and pipes so far, as the kernel counts it; mapped pages are not in it.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

fn tell_failure(error: &Error) {
    let kind = format!("{:?}", error.kind());
    let kind = kind.split(|character: char| !character.is_alphanumeric()).next().unwrap();
    tell(&format!("failed {kind} {}", error.to_string().replace('\n', " ")));
}

/// In one call, so that no line is cut in two.
fn tell(what: &str) {
    stderr().write_all(format!("@ {what}\n").as_bytes()).unwrap();
}
