//! Very many commits of ten keys: what is left of them, and what opening costs then.

use std::ops::ControlFlow;

use alluvium::{FamilyId, StateStoreProvider, StoreOptions, SystemClock, WriteStore};

use crate::measure::report::{Must, Report, median};
use crate::measure::workload::{Workload, key, value};
use crate::setup::{Place, open_cold};
use crate::{Args, Failure, float};

const KEYS: u64 = 1_000_000;
const CHANGED: usize = 10;
const RETAINED: [usize; 2] = [10, 1_000];

pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let mut times = Vec::new();
    for retained in RETAINED {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let place = Place::new(dir.path());
        eprintln!("\n{} commits of {CHANGED} keys, {retained} versions retained", args.tiny_commits);
        times.push(one(args, &place, retained, report)?);
    }
    let [few, many] = times.as_slice() else { return Err("two numbers of versions".into()) };
    let must = args.required.then_some(Must::Below(2.0));
    report.figure("open, 1,000 versions retained / 10", many / few, "×", must)
}

fn one(args: &Args, place: &Place, retained: usize, report: &mut Report) -> Result<f64, Failure> {
    let options = || StoreOptions::default().retain_versions(retained);
    let provider = place.open(options()?)?;
    let workload = Workload { keys: KEYS, seed: 1 };
    let mut numbers = (0..).flat_map(|batch| workload.picks(batch));
    for _ in 0..args.tiny_commits {
        let mut batch = provider.begin(provider.latest()?)?;
        for key in numbers.by_ref().take(CHANGED) {
            batch.put(FamilyId::DEFAULT, &key, &value(&key, 1))?;
        }
        batch.put(FamilyId::DEFAULT, &key(1), b"read first")?;
        batch.commit()?;
    }
    let before = place.sizes()?.len();
    provider.maintain(&|_| ControlFlow::Continue(()))?;
    drop(provider);
    let case = |what: &str| format!("{retained} retained, {what}");
    report.figure(&case("files before the last maintenance"), float(before as u64), "files", None)?;
    let files = place.sizes()?.len();
    let must = (args.required && retained == 10).then_some(Must::Below(64.0));
    report.figure(&case("files"), float(files as u64), "files", must)?;
    let clock = SystemClock::new();
    let times: Result<Vec<f64>, Failure> =
        (0..5).map(|_| Ok(open_cold(place, options()?, &clock)?.as_secs_f64() * 1e3)).collect();
    let time = median(times?);
    let must = (args.required && retained == 10).then_some(Must::Below(200.0));
    report.figure(&case("open without work directory"), time, "ms", must)?;
    Ok(time)
}
