//! Operations that fail while the process lives on, and power cuts as the process itself meets them.

use std::io::ErrorKind::{Other, StorageFull};

use alluvium::fs::sim::{Operation, Persistence, Survivors};
use alluvium::prelude::*;
use alluvium::{Error, ErrorKind, StoreOptions};

use super::checks::{Told, Verdict, check, matching, observe};
use super::harness::{Base, History, histories};
use super::model::{Line, Machine, Op, Process};

const LONGEST: usize = if cfg!(debug_assertions) { 1 } else { 2 };
/// No operations named: all that change the disk.
const CHANGES: &[Operation] = &[];
const LOOKS: &[Operation] = &[Operation::Open, Operation::Read, Operation::List, Operation::Stat];

#[derive(Debug, Clone, Copy)]
struct Fault {
    operations: &'static [Operation],
    error: std::io::ErrorKind,
    persistence: Persistence,
    /// The operation takes effect before it fails. (A full disk says no before it does anything.)
    late: bool,
}

const FAULTS: [Fault; 7] = {
    use Persistence::{ForEver, Once};
    const fn fault(
        ops: &'static [Operation],
        error: std::io::ErrorKind,
        persistence: Persistence,
        late: bool,
    ) -> Fault {
        Fault { operations: ops, error, persistence, late }
    }
    [
        fault(CHANGES, Other, Once, false),
        fault(CHANGES, Other, ForEver, false),
        fault(CHANGES, Other, Once, true),
        fault(CHANGES, StorageFull, Once, false),
        fault(CHANGES, StorageFull, ForEver, false),
        fault(LOOKS, Other, Once, false),
        fault(LOOKS, Other, ForEver, false),
    ]
};

/// A process on which everything but the last operation of the history was done; that one is still to come.
fn before_the_last(history: &History) -> Verdict<(Process, Option<Op>)> {
    let mut process = Process::on(&history.base.machine(), &StoreOptions::default());
    let Some((last, first)) = history.ops.split_last() else { return Ok((process, None)) };
    process.open().told("the first open")?;
    first.iter().try_for_each(|op| process.run(*op)).told("the operations before")?;
    Ok((process, Some(*last)))
}

fn run_last(process: &mut Process, last: Option<Op>) -> alluvium::Result<()> {
    match last {
        Some(op) => process.run(op),
        None => process.open(),
    }
}

/// Says whether the fault was met at all.
fn fail_once_more(history: &History, fault: Fault, nth: u64) -> Verdict<bool> {
    let (mut process, last) = before_the_last(history)?;
    let (before, after) = (process.line.clone(), last.map_or(process.line.clone(), |op| process.next_line(op)));
    let sim = process.recorder.sim().clone();
    let plan = if fault.late { alluvium::fs::SimDisk::fail_after } else { alluvium::fs::SimDisk::fail_at };
    plan(&sim, nth, fault.operations, fault.error, fault.persistence);
    let outcome = run_last(&mut process, last);
    if sim.faults_fired() == 0 {
        return outcome.map(|()| false).told("without a fault");
    }
    let mut allowed = after_failure(&outcome, before.clone(), after)?;
    let indeterminate = allowed.len() > 1;
    if fault.persistence == Persistence::ForEver && fault.operations.is_empty() && process.is_open() {
        matching(&observe(process.provider())?, &allowed).map_err(|what| format!("while it fails, {what}"))?;
        match process.run(Op::Commit) {
            Ok(()) => return Err("a commit is acknowledged though nothing can be written".into()),
            Err(error) => check_kind(&error)?,
        }
    }
    sim.clear_faults();
    // A caller that was cut off may simply do its batch again, without a look at what became of the first.
    let again = last.filter(|_| indeterminate && nth % 2 == 0);
    if again.is_some() {
        allowed = vec![before];
    }
    go_on(&mut process, &mut allowed, again)?;
    process.recorder.offences().first().map_or(Ok(true), |what| Err(what.clone()))
}

/// The lines that the outcome of an operation allows.
fn after_failure(outcome: &alluvium::Result<()>, before: Line, after: Line) -> Verdict<Vec<Line>> {
    match outcome {
        Ok(()) => Ok(vec![after]),
        Err(error) => {
            check_kind(error)?;
            let cut_off = matches!(error.kind(), ErrorKind::Indeterminate { .. });
            Ok(if cut_off { vec![before, after] } else { vec![before] })
        }
    }
}

fn check_kind(error: &Error) -> Verdict<()> {
    match error.kind() {
        ErrorKind::Io { .. } | ErrorKind::DiskFull { .. } | ErrorKind::Indeterminate { .. } => Ok(()),
        kind => Err(format!("the wrong kind of error, {kind:?}: {error}")),
    }
}

/// The fault is gone: the same process goes on, without a restart, and loses nothing to a power cut afterwards.
fn go_on(process: &mut Process, allowed: &mut Vec<Line>, again: Option<Op>) -> Verdict<()> {
    if !process.is_open() {
        process.open().told("opening again")?;
    }
    let found = match again {
        Some(_) => 0,
        None => check(process.provider(), allowed).map_err(|what| format!("once it is over, {what}"))?,
    };
    process.line = allowed.swap_remove(found);
    process.run(again.unwrap_or(Op::Commit)).told("the next commit")?;
    check(process.provider(), &[process.line.clone()]).map_err(|what| format!("after the next commit: {what}"))?;
    let machine = process.machine();
    let mut next =
        Process::on(&Machine { disk: machine.disk.survive(Survivors::None), ..machine }, &StoreOptions::default());
    next.open().told("the open after a power cut")?;
    check(next.provider(), &[process.line.clone()]).map(drop).map_err(|what| format!("after a power cut: {what}"))
}

#[test]
fn a_failing_operation_acknowledges_nothing_and_the_process_goes_on_when_it_is_over() {
    let mut met = 0;
    for history in histories(&Base::ALL, LONGEST) {
        for fault in FAULTS {
            let fails = |nth| fail_once_more(&history, fault, nth);
            let place = |what, nth| panic!("{history:?}, {fault:?} at operation {nth}: {what}");
            met += (1..).take_while(|nth| fails(*nth).unwrap_or_else(|what| place(what, *nth))).count();
        }
    }
    println!("{met} failures");
    assert!(met > if cfg!(debug_assertions) { 1_000 } else { 10_000 }, "{met}");
}

/// Says whether the power was cut at all.
fn cut_inside(history: &History, nth: u64, late: bool) -> Verdict<bool> {
    let (mut process, last) = before_the_last(history)?;
    let (before, after) = (process.line.clone(), last.map_or(process.line.clone(), |op| process.next_line(op)));
    let sim = process.recorder.sim().clone();
    if late {
        sim.crash_after(nth);
    } else {
        sim.crash_at(nth);
    }
    let outcome = run_last(&mut process, last);
    if sim.faults_fired() == 0 {
        return outcome.map(|()| false).told("without a cut");
    }
    let allowed = if outcome.is_ok() { vec![after] } else { vec![before, after] };
    if process.is_open() && process.provider().read_at(process.provider().latest().unwrap_or_default()).is_ok() {
        return Err("something can be read from a disk without power".into());
    }
    let machine = process.machine();
    drop(process);
    let seeded = (0..4).map(|number| Survivors::Seeded(nth << 8 | number));
    for survivors in [Survivors::All, Survivors::None].into_iter().chain(seeded) {
        let machine = Machine { disk: sim.survive(survivors), ..machine.clone() };
        let mut next = Process::on(&machine, &StoreOptions::default());
        next.open().told(format!("{survivors:?}: the open"))?;
        check(next.provider(), &allowed).map_err(|what| format!("{survivors:?}: {what}"))?;
    }
    Ok(true)
}

#[test]
fn a_process_that_meets_the_power_cut_acknowledges_only_what_survives_it() {
    let mut cuts = 0;
    for history in histories(&Base::ALL, LONGEST) {
        for late in [false, true] {
            let place = |what, nth| panic!("{history:?}, cut at operation {nth}, late {late}: {what}");
            let cut = |nth: &u64| cut_inside(&history, *nth, late).unwrap_or_else(|what| place(what, *nth));
            cuts += (1..).take_while(cut).count();
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > if cfg!(debug_assertions) { 300 } else { 3_000 }, "{cuts}");
}
