//! Every system call that a writer makes on its files, failed or made the last one, by `strace -e inject`.
//!
//! A run without faults tells which calls there are; then one run for each of them and each fault. The injected call is not
//! executed. After each run the store is opened again and held against the contract.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::check::check;
use super::child::{Ended, Running};
use super::games::{copy_tree, remove_tree};
use super::model::{Dice, Line};
use super::writer::{Ending, GAVE_UP_CODE, Job};

/// What happens in place of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The process is killed.
    Kill,
    /// The call fails with this error, once.
    Once(&'static str),
    /// It, and all of its name after it in the same thread, fail with this error.
    Forever(&'static str),
}

/// Which calls of a run are meant, by name, and what happens in their place.
type Table = &'static [(&'static [&'static str], &'static [Fault])];

const KILL: Fault = Fault::Kill;
const EIO: Fault = Fault::Once("EIO");
const ENOSPC: Fault = Fault::Once("ENOSPC");
const EMFILE: Fault = Fault::Once("EMFILE");

const ON_THE_CHECKPOINT: Table = &[
    (&["fsync", "fdatasync"], &[KILL, EIO, ENOSPC]),
    (&["rename", "renameat", "renameat2", "link", "linkat"], &[KILL, EIO, ENOSPC, Fault::Once("EINVAL")]),
    (&["write", "pwrite64"], &[KILL, EIO, ENOSPC, Fault::Forever("ENOSPC")]),
    (&["mkdir", "mkdirat"], &[KILL, EIO, ENOSPC]),
    (&["open", "openat"], &[EIO, EMFILE]),
    (&["unlink", "unlinkat"], &[KILL, EIO]),
    (&["getdents64", "pread64", "mmap"], &[EIO]),
];

const ON_THE_INDEX: Table = &[
    (&["fsync", "fdatasync", "rename"], &[KILL, EIO, ENOSPC]),
    (&["write", "pwrite64"], &[KILL, EIO, ENOSPC, Fault::Forever("ENOSPC")]),
    (&["open", "openat"], &[EIO, EMFILE]),
    (&["ftruncate", "fallocate", "unlink", "unlinkat", "mkdir", "mkdirat"], &[KILL, EIO]),
    (&["pread64", "getdents64"], &[EIO]),
];

/// One run that is to be made.
#[derive(Debug, Clone)]
struct Case {
    call: String,
    nth: usize,
    fault: Fault,
    /// Only calls on these count, so that neither the loader's nor the pipe's are meant. Relative to the bench.
    paths: Arc<[String]>,
    /// What the call was in the run without faults.
    was: String,
}

impl Case {
    fn strace(&self, bench: &Bench<'_>) -> Vec<String> {
        let (what, more) = match self.fault {
            Fault::Kill => ("signal=KILL".to_owned(), ""),
            Fault::Once(error) => (format!("error={error}"), ""),
            Fault::Forever(error) => (format!("error={error}"), "+"),
        };
        let (call, nth) = (&self.call, self.nth);
        let mut options = vec![format!("-etrace={call}"), format!("-einject={call}:{what}:when={nth}{more}")];
        options.extend(self.paths.iter().flat_map(|path| ["-P".to_owned(), format!("{}{path}", bench.dir.display())]));
        strace(&bench.log(), &options)
    }
}

fn strace(log: &Path, more: &[String]) -> Vec<String> {
    let head = ["strace", "-f", "-qq", "-y", "-s", "0", "-o"].map(str::to_owned);
    head.into_iter().chain([log.to_str().unwrap().to_owned()]).chain(more.iter().cloned()).collect()
}

/// Whether there is a strace that may trace here; says so if not.
pub(super) fn has_strace() -> bool {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1000", "true"]);
    let works = command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !works {
        println!("skipped: strace is not here, or may not trace");
    }
    works
}

/// A place to run in, which is as `base` before each run.
struct Bench<'a> {
    dir: PathBuf,
    base: &'a Path,
    line: &'a Line,
    job: Job,
}

impl<'a> Bench<'a> {
    fn new(dir: PathBuf, base: &'a Path, line: &'a Line, plan: &str, has_work: bool) -> Self {
        let checkpoint = dir.join("now/checkpoint");
        let work = has_work.then(|| dir.join("now/work"));
        let job = Job {
            checkpoint,
            work,
            run: Dice::new((plan.len() * 1_000 + line.len()) as u64).next(),
            plan: plan.into(),
            ending: Ending::Exit,
        };
        Self { dir, base, line, job }
    }

    fn reset(&self) {
        remove_tree(&self.dir);
        copy_tree(self.base, &self.dir.join("now"));
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Which calls on files below `below` a run without faults makes, and thus which cases there are.
    fn cases(&self, table: Table, below: &Path) -> Vec<Case> {
        self.reset();
        let names: Vec<&str> = table.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        // A `?` in front: not every machine has every call.
        let filter = names.iter().map(|name| format!("?{name}")).collect::<Vec<_>>().join(",");
        let ended = Running::start_under(&strace(&self.log(), &[format!("-etrace={filter}")]), &self.job).end();
        assert!(ended.status.success(), "{ended:#?}");
        let log = fs::read_to_string(self.log()).unwrap();
        let below = below.to_str().unwrap();
        let paths: Arc<[String]> =
            paths_in(&log, below).iter().map(|path| path[self.dir.as_os_str().len()..].to_owned()).collect();
        // strace counts by thread and call.
        let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
        let mut seen = BTreeSet::new();
        let mut cases = Vec::new();
        for line in log.lines().filter(|line| line.contains(below)) {
            let Some((thread, was)) = line.split_once(' ') else { continue };
            let Some((call, _)) = was.trim_start().split_once('(') else { continue };
            let count = counts.entry((thread, call)).or_default();
            *count += 1;
            let (nth, is_new) = (*count, seen.insert((call, *count)));
            let faults = table.iter().filter(|(names, _)| is_new && names.contains(&call));
            let paths = || Arc::clone(&paths);
            cases.extend(faults.flat_map(|(_, faults)| *faults).map(|fault| Case {
                call: call.to_owned(),
                nth,
                fault: *fault,
                paths: paths(),
                was: was.to_owned(),
            }));
        }
        cases
    }

    /// Makes one run, and checks what it leaves.
    fn run(&self, case: &Case, dice: &mut Dice) -> Outcome {
        self.reset();
        let ended = Running::start_under(&case.strace(self), &self.job).end();
        ended.assert_no_panic();
        let log = fs::read_to_string(self.log()).unwrap();
        let fired = log.contains("(INJECTED)") || ended.status.signal() == Some(9);
        let right_end = match case.fault {
            Fault::Kill if fired => ended.status.signal() == Some(9),
            Fault::Forever(_) => matches!(ended.status.code(), Some(0 | GAVE_UP_CODE)),
            _ => ended.status.code() == Some(0),
        };
        assert!(right_end, "{case:?} in place of {}: {ended:#?}", case.was);
        let lines = ended.lines(self.line);
        let found = check(&self.job, &lines, dice);
        found.unwrap_or_else(|error| panic!("{case:?}: {error:?}\n{ended:#?}"));
        Outcome { fired, kinds: ended.failures().iter().map(|kind| (*kind).to_owned()).collect() }
    }
}

/// The paths below `below` that a log names, as `"path"` or as `fd<path>`.
fn paths_in(log: &str, below: &str) -> BTreeSet<String> {
    let starts = log.match_indices(below).map(|(start, _)| &log[start..]);
    let ends = starts.map(|text| text.split(['"', '>', '\n']).next().unwrap_or_default().to_owned());
    ends.filter(|path| path.len() == below.len() || path[below.len()..].starts_with('/')).collect()
}

struct Outcome {
    fired: bool,
    kinds: Vec<String>,
}

/// What a sweep has done, by call and fault, and which errors writers met.
#[derive(Debug, Default)]
struct Report {
    runs: usize,
    fired: usize,
    by_fault: BTreeMap<String, usize>,
    kinds: BTreeMap<String, usize>,
}

impl Report {
    fn note(&mut self, case: &Case, outcome: Outcome) {
        self.runs += 1;
        if outcome.fired {
            self.fired += 1;
            *self.by_fault.entry(format!("{} {:?}", case.call, case.fault)).or_default() += 1;
        }
        for kind in outcome.kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }
}

/// Runs cases on two benches at a time.
fn sweep(benches: &[Bench<'_>; 2], cases: &[Case], seed: u64) -> Report {
    let report = Mutex::new(Report::default());
    let left = Mutex::new(cases.iter());
    thread::scope(|scope| {
        for (number, bench) in (0..).zip(benches) {
            let (report, left) = (&report, &left);
            scope.spawn(move || {
                let mut dice = Dice::new(seed + number);
                loop {
                    let Some(case) = left.lock().unwrap().next() else { return };
                    let outcome = bench.run(case, &mut dice);
                    report.lock().unwrap().note(case, outcome);
                }
            });
        }
    });
    report.into_inner().unwrap()
}

/// So many of the cases; all with `ALLUVIUM_ALL_FAULTS`. Running all takes minutes.
fn sample(mut cases: Vec<Case>, most: usize, dice: &mut Dice) -> Vec<Case> {
    while cases.len() > most && std::env::var_os("ALLUVIUM_ALL_FAULTS").is_none() {
        cases.swap_remove(usize::try_from(dice.roll(cases.len() as u64)).unwrap());
    }
    cases
}

/// What a writer leaves that is killed at the call `nth` of its name on the checkpoint; with the line that it holds then.
fn killed_at(all: &Path, call: &str, nth: usize, dice: &mut Dice) -> (PathBuf, Line) {
    let (empty, line) = (all.join("empty"), Line::new());
    let bench = Bench::new(all.join("killed"), &empty, &line, "ccsrcdkc", false);
    let cases = bench.cases(ON_THE_CHECKPOINT, &bench.job.checkpoint);
    let case = cases.iter().find(|case| (case.call.as_str(), case.nth, case.fault) == (call, nth, KILL)).unwrap();
    bench.reset();
    let ended: Ended = Running::start_under(&case.strace(&bench), &bench.job).end();
    assert_eq!(ended.status.signal(), Some(9), "{ended:#?}");
    let base = all.join(format!("base {call} {nth}"));
    copy_tree(&bench.dir.join("now"), &base);
    let found = check(&bench.job, &ended.lines(&line), dice).unwrap();
    (base, found)
}

#[test]
fn a_writer_may_die_or_fail_at_every_call_on_its_checkpoint() {
    if !has_strace() {
        return;
    }
    let mut dice = Dice::of_test("strace, checkpoint");
    let all = tempfile::tempdir().unwrap();
    let empty = all.path().join("empty");
    fs::create_dir_all(&empty).unwrap();
    let mut bases = vec![((empty, Line::new()), "ccscrdkoac")];
    // Recoveries are cut off too: where a writer died between a run's bytes and its name, and between the name and its sync.
    for (call, nth) in [("renameat2", 3), ("renameat2", 5), ("fsync", 20), ("fsync", 40)] {
        bases.push((killed_at(all.path(), call, nth, &mut dice), "cr"));
    }
    let (mut runs, mut fired) = (0, 0);
    for ((base, line), plan) in &bases {
        let bench = |name: &str| Bench::new(all.path().join(name), base, line, plan, false);
        let one = bench("one");
        let all_cases = one.cases(ON_THE_CHECKPOINT, &one.job.checkpoint);
        let cases = sample(all_cases, if line.is_empty() { 500 } else { 80 }, &mut dice);
        let report = sweep(&[one, bench("two")], &cases, dice.next());
        println!("from version {}, plan {plan}: {report:#?}", line.len());
        runs += report.runs;
        fired += report.fired;
        let is_rich = report.kinds.contains_key("Indeterminate") && report.kinds.contains_key("DiskFull");
        assert!(is_rich || !line.is_empty(), "{report:#?}");
    }
    println!("{runs} runs, {fired} faults fired");
    assert!(runs > 500 && fired * 20 > runs * 19, "{fired} faults in {runs} runs");
}

#[test]
fn a_writer_may_die_or_fail_at_every_call_on_its_index() {
    if !has_strace() {
        return;
    }
    let mut dice = Dice::of_test("strace, index");
    let all = tempfile::tempdir().unwrap();
    let empty = all.path().join("empty");
    fs::create_dir_all(&empty).unwrap();
    let line = Line::new();
    let bench = |name: &str| Bench::new(all.path().join(name), &empty, &line, "clcwdscwrcw", true);
    let one = bench("one");
    let all_cases = one.cases(ON_THE_INDEX, one.job.work.as_ref().unwrap());
    let count = all_cases.len();
    let cases = sample(all_cases, 150, &mut dice);
    let report = sweep(&[one, bench("two")], &cases, dice.next());
    println!("{} of {count} cases: {report:#?}", cases.len());
    // Which thread makes a call, and so its number, is RocksDB's affair: some do not come.
    assert!(report.fired * 3 > report.runs * 2, "{report:#?}");
}
