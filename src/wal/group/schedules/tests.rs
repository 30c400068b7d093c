use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread::ThreadId;

use super::commit::{Group, Written};
use super::contract::{Attempt, Failed, Need, Sink};
use super::record::Lsn;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// Every look is a millisecond later. A sync takes [`SYNC_MS`], so that leaders wait for followers.
#[derive(Debug, Default)]
struct Ticks(AtomicU64);

impl Clock for Ticks {
    fn wall_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.wall_ms())
    }
}

const SYNC_MS: u64 = 20;
/// Takes a few looks at the clock.
const GATHER: Duration = Duration::from_millis(6);

/// A record, and what its memory was taken from.
struct Paid {
    payload: u64,
    _room: Arc<()>,
}

/// What the sink has.
#[derive(Debug, Default)]
struct File {
    /// (LSN, payload) in the order of writing, without those whose sync has failed.
    records: Vec<(u64, u64)>,
    durable: usize,
    syncs: u64,
    /// Of each batch: its payloads, and who wrote it.
    led: Vec<(Vec<u64>, ThreadId)>,
    /// The write or the sync with this number fails, counted down.
    fails_write: Option<u64>,
    fails_sync: Option<u64>,
    /// Whether a write fails since the disk is full.
    is_full: bool,
}

struct Fake(Arc<Mutex<File>>, Arc<Ticks>);

fn due(countdown: &mut Option<u64>) -> bool {
    *countdown = countdown.map(|left| left.wrapping_sub(1));
    *countdown == Some(0)
}

impl Sink for Fake {
    type Record<'a> = Paid;
    type Placement = u64;

    fn bytes(_: &Paid) -> u64 {
        1
    }

    fn write(&mut self, first: Lsn, records: &[Paid]) -> Attempt<u64> {
        shuttle::thread::yield_now();
        let mut file = self.0.lock().unwrap();
        if due(&mut file.fails_write) {
            let full = ErrorKind::DiskFull { path: "disk".into() };
            let kind = if file.is_full { full } else { ErrorKind::InvalidInput };
            return Err(Failed::once(Error::new(kind, "write")));
        }
        for (lsn, record) in (first.0..).zip(records) {
            file.records.push((lsn, record.payload));
        }
        let payloads = records.iter().map(|record| record.payload).collect();
        file.led.push((payloads, shuttle::thread::current().id()));
        Ok(first.0)
    }

    fn sync(&mut self, first: Lsn, _: &[Paid]) -> Attempt<Option<u64>> {
        let written = self.0.lock().unwrap().records.len();
        shuttle::thread::yield_now();
        self.1.0.fetch_add(SYNC_MS, Ordering::Relaxed);
        let mut file = self.0.lock().unwrap();
        file.syncs += 1;
        if due(&mut file.fails_sync) {
            // They are in a segment that nobody believes any more.
            let durable = file.durable;
            let has_others = file.records.drain(durable..).any(|(lsn, _)| lsn < first.0);
            let error = Error::invalid("sync");
            return Err(if has_others { Failed::for_good(error) } else { Failed::once(error) });
        }
        file.durable = written;
        Ok(None)
    }
}

struct Writer {
    group: Group<Fake>,
    file: Arc<Mutex<File>>,
    clock: Arc<Ticks>,
    room: Arc<()>,
}

fn start(file: File, gather: Duration) -> Arc<Writer> {
    let (file, clock) = (Arc::new(Mutex::new(file)), Arc::new(Ticks::default()));
    let sink = Fake(Arc::clone(&file), Arc::clone(&clock));
    let group = Group::new(sink, Lsn::FIRST, Arc::clone(&clock) as Arc<dyn Clock>, gather);
    Arc::new(Writer { group, file, clock, room: Arc::new(()) })
}

impl Writer {
    /// Closes it, and looks whether all memory has been given back.
    fn end(&self) {
        let closed = self.group.close(|_| Ok(()));
        let has_stopped = closed.is_err_and(|error| matches!(error.kind(), ErrorKind::Poisoned));
        assert_eq!(
            has_stopped,
            write(self, 99, Need::Durable, None).is_err_and(|e| matches!(e.kind(), ErrorKind::Poisoned))
        );
        assert_eq!(Arc::strong_count(&self.room), 1, "records are still held");
    }
}

fn write(writer: &Writer, payload: u64, need: Need, deadline: Option<Duration>) -> Result<Written<u64>> {
    let paid = || Paid { payload, _room: Arc::clone(&writer.room) };
    match writer.group.try_alone(&[paid()], need) {
        Some(written) => written,
        None => writer.group.enqueue([paid()], need, deadline),
    }
}

/// What an acknowledgement promises.
fn check(writer: &Writer, payload: u64, need: Need, written: &Written<u64>) {
    let file = writer.file.lock().unwrap();
    let place = file.records.iter().rposition(|record| *record == (written.first.0, payload));
    let place = place.unwrap_or_else(|| panic!("{payload} is not at {}: {file:?}", written.first));
    assert!(need == Need::Written || place < file.durable, "{payload} was acknowledged before its sync: {file:?}");
    assert_eq!(written.placement + written.before, written.first.0, "it knows its place in its batch");
}

fn in_order(file: &File) {
    assert!(file.records.windows(2).all(|pair| pair[0].0 < pair[1].0), "{file:?}");
}

/// Runs under random schedules, and under those that are good at finding rare orders.
fn explore(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(scenario.clone(), 1500);
    shuttle::check_pct(scenario, 1500, 3);
}

/// One thread for each need, which writes so many records, their payloads its number times ten and on; the threads' names.
fn write_side_by_side(writer: &Arc<Writer>, needs: [Need; 4], rounds: u64) -> Vec<ThreadId> {
    let threads: Vec<_> = (0_u64..)
        .zip(needs)
        .map(|(thread, need)| {
            let writer = Arc::clone(writer);
            shuttle::thread::spawn(move || {
                for payload in thread * 10..thread * 10 + rounds {
                    let written = write(&writer, payload, need, None).unwrap();
                    check(&writer, payload, need, &written);
                    assert!(need == Need::Written || writer.group.durable() >= written.first);
                }
            })
        })
        .collect();
    let ids = threads.iter().map(|thread| thread.thread().id()).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    ids
}

#[test]
fn writers_are_acknowledged_after_their_sync_in_the_order_of_their_lsns() {
    explore(|| {
        let writer = start(File::default(), GATHER);
        let needs = [Need::Durable, Need::Written, Need::OwnSync, Need::Durable];
        write_side_by_side(&writer, needs, 2);
        writer.end();
        let file = writer.file.lock().unwrap();
        in_order(&file);
        assert_eq!(file.records.len(), 8);
        assert!(file.records.iter().zip(1..).all(|(record, lsn)| record.0 == lsn));
    });
}

/// Batches of several records that another writer led than the one who came first.
static TAKEN_OVER: AtomicU64 = AtomicU64::new(0);

#[test]
fn who_completes_a_group_leads_it_if_it_waits_for_the_sync() {
    explore(|| {
        let writer = start(File::default(), GATHER);
        let needs = [Need::Durable, Need::Durable, Need::Written, Need::OwnSync];
        let ids = write_side_by_side(&writer, needs, 3);
        writer.end();
        let file = writer.file.lock().unwrap();
        in_order(&file);
        for (payloads, leader) in file.led.iter().filter(|(payloads, _)| payloads.len() > 1) {
            let leader = ids.iter().position(|id| id == leader).unwrap();
            let place = payloads.iter().position(|payload| payload / 10 == leader as u64);
            assert!(place.is_some(), "{leader} led a batch that its record is not in: {file:?}");
            let syncs = payloads.iter().any(|payload| needs[usize::try_from(payload / 10).unwrap()] != Need::Written);
            assert!(!syncs || needs[leader] != Need::Written, "{leader} asked for no sync: {file:?}");
            if place > Some(0) {
                assert_eq!(needs[leader], Need::Durable, "{file:?}");
                TAKEN_OVER.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert!(TAKEN_OVER.load(Ordering::Relaxed) > 0, "no schedule has led there");
}

#[test]
fn who_leaves_at_the_deadline_learns_the_truth_from_the_durable_lsn() {
    explore(|| {
        let writer = start(File::default(), GATHER);
        let threads: Vec<_> = (0..4_u64)
            .map(|payload| {
                let writer = Arc::clone(&writer);
                shuttle::thread::spawn(move || {
                    let deadline = (payload % 2 == 0).then_some(Duration::ZERO);
                    match write(&writer, payload, Need::Durable, deadline) {
                        Ok(written) => {
                            check(&writer, payload, Need::Durable, &written);
                            None
                        }
                        Err(error) => {
                            let ErrorKind::Unknown { lsn } = error.kind() else { panic!("{error}") };
                            Some((*lsn, payload))
                        }
                    }
                })
            })
            .collect();
        let unknown: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
        writer.end();
        let file = writer.file.lock().unwrap();
        for (lsn, payload) in unknown {
            assert!(writer.group.durable() >= Lsn(lsn), "nobody wrote what was left behind");
            assert!(file.records.contains(&(lsn, payload)));
        }
    });
}

/// At once, and while somebody waits for more writers.
const AFTER: [Duration; 2] = [Duration::ZERO, Duration::from_millis(3)];

/// (LSN, payload).
type Told = Vec<(u64, u64)>;

/// Three threads write two records each, those from number `leaves` on with a deadline that is over `after` so long: what they were told of,
/// and which of it is unknown.
fn write_and_leave(writer: &Arc<Writer>, needs: [Need; 3], leaves: u64, after: Duration) -> (Told, Told) {
    let threads: Vec<_> = (0_u64..)
        .zip(needs)
        .map(|(thread, need)| {
            let writer = Arc::clone(writer);
            shuttle::thread::spawn(move || {
                let (mut told, mut unknown) = (Vec::new(), Vec::new());
                for round in 0..2 {
                    let payload = thread * 10 + round;
                    let deadline = (thread >= leaves).then(|| writer.clock.elapsed() + after);
                    match write(&writer, payload, need, deadline) {
                        Ok(written) => {
                            if need != Need::Written {
                                check(&writer, payload, need, &written);
                            }
                            told.push((written.first.0, payload));
                        }
                        Err(error) => {
                            if let ErrorKind::Unknown { lsn } = error.kind() {
                                told.push((*lsn, payload));
                                unknown.push((*lsn, payload));
                            }
                        }
                    }
                }
                (told, unknown)
            })
        })
        .collect();
    let (mut told, mut unknown) = (Vec::new(), Vec::new());
    for thread in threads {
        let (more, more_unknown) = thread.join().unwrap();
        told.extend(more);
        unknown.extend(more_unknown);
    }
    (told, unknown)
}

fn no_lsn_is_told_twice(told: &[(u64, u64)]) {
    let mut lsns: Vec<u64> = told.iter().map(|(lsn, _)| *lsn).collect();
    lsns.sort_unstable();
    lsns.dedup();
    assert_eq!(lsns.len(), told.len(), "an LSN was given to two: {told:?}");
}

/// Who waits, and for what: two for one sync, one who has been told before it, and each for its own.
const SIDE_BY_SIDE: [[Need; 3]; 3] =
    [[Need::Durable; 3], [Need::Durable, Need::Written, Need::Durable], [Need::OwnSync; 3]];

#[test]
fn failures_reach_their_writers_and_no_lsn_is_promised_twice() {
    let steps = (1..=5).flat_map(|step| [(Some(step), None), (None, Some(step))]);
    let steps = steps.flat_map(|step| AFTER.map(|after| (step, after)));
    for (((fails_write, fails_sync), after), needs) in steps.flat_map(|step| SIDE_BY_SIDE.map(|needs| (step, needs))) {
        explore(move || {
            let writer = start(File { fails_write, fails_sync, ..File::default() }, GATHER);
            let (told, _) = write_and_leave(&writer, needs, 2, after);
            writer.end();
            no_lsn_is_told_twice(&told);
            told_the_truth(&writer, &told);
        });
    }
}

/// Of what somebody was told of, each record is there, or nothing ever says that its LSN is durable.
fn told_the_truth(writer: &Writer, told: &[(u64, u64)]) {
    let file = writer.file.lock().unwrap();
    in_order(&file);
    for record in told {
        assert!(file.records.contains(record) || writer.group.durable() < Lsn(record.0), "{record:?} {file:?}");
    }
}

#[test]
fn a_failed_sync_after_a_full_disk_leaves_nobody_waiting() {
    let steps = (1..=3).flat_map(|write| (1..=3).map(move |sync| (Some(write), Some(sync))));
    for ((fails_write, fails_sync), needs) in steps.flat_map(|step| SIDE_BY_SIDE.map(|needs| (step, needs))) {
        explore(move || {
            let writer = start(File { fails_write, fails_sync, is_full: true, ..File::default() }, GATHER);
            let (told, _) = write_and_leave(&writer, needs, 1, Duration::ZERO);
            writer.end();
            no_lsn_is_told_twice(&told);
            told_the_truth(&writer, &told);
        });
    }
}

/// Schedules in which somebody left who had no record.
static LEFT: AtomicU64 = AtomicU64::new(0);

#[test]
fn who_leaves_without_a_record_costs_the_others_nothing() {
    for (fails_write, is_full) in [(1, false), (1, true), (2, false), (2, true)] {
        explore(move || {
            let file = File { fails_write: Some(fails_write), is_full, ..File::default() };
            let writer = start(file, GATHER);
            let threads: Vec<_> = (0..2_u64)
                .map(|payload| {
                    let writer = Arc::clone(&writer);
                    shuttle::thread::spawn(move || {
                        let failed = write(&writer, payload, Need::Durable, None).err();
                        let is_known = |error: &Error| !matches!(error.kind(), ErrorKind::Unknown { .. });
                        assert!(failed.as_ref().is_none_or(is_known), "{failed:?}");
                    })
                })
                .collect();
            let left = writer.group.enqueue([], Need::Durable, Some(Duration::ZERO));
            if left.is_err_and(|error| matches!(error.kind(), ErrorKind::Busy { .. })) {
                LEFT.fetch_add(1, Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().unwrap();
            }
            // The write that fails may be this one.
            let last = write(&writer, 9, Need::Durable, None);
            last.or_else(|_| write(&writer, 9, Need::Durable, None)).unwrap();
            writer.end();
        });
    }
    assert!(LEFT.load(Ordering::Relaxed) > 0, "no schedule has led there");
}

#[test]
fn after_a_full_disk_the_log_goes_on_and_what_was_left_behind_is_written_first() {
    for (fails_write, after) in (1..=5).flat_map(|step| AFTER.map(|after| (step, after))) {
        explore(move || {
            let file = File { fails_write: Some(fails_write), is_full: true, ..File::default() };
            let writer = start(file, GATHER);
            let (mut told, unknown) = write_and_leave(&writer, [Need::Durable; 3], 2, after);
            let last = write(&writer, 99, Need::Durable, None);
            // The write that fails may be this one.
            match last.or_else(|_| write(&writer, 99, Need::Durable, None)) {
                Ok(written) => told.push((written.first.0, 99)),
                Err(error) => panic!("{error}"),
            }
            writer.end();
            no_lsn_is_told_twice(&told);
            let file = writer.file.lock().unwrap();
            in_order(&file);
            for record in &unknown {
                assert!(file.records.contains(record), "{record:?} {file:?}");
            }
        });
    }
}

#[test]
fn closing_waits_for_the_queue_and_refuses_what_comes_later() {
    explore(|| {
        let writer = start(File::default(), GATHER);
        let threads: Vec<_> = (0..3_u64)
            .map(|payload| {
                let writer = Arc::clone(&writer);
                shuttle::thread::spawn(move || write(&writer, payload, Need::Durable, None).is_ok())
            })
            .collect();
        writer.group.close(|_| Ok(())).unwrap();
        let before = writer.file.lock().unwrap().records.len();
        let written = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|written| *written).count();
        assert_eq!((before, written), (written, before), "nothing is written after the close, and nothing is lost");
        assert!(write(&writer, 9, Need::Durable, None).is_err());
        writer.end();
    });
}
