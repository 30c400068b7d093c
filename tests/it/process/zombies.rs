//! Two processes on one checkpoint, each with its own work directory: the first is stopped in the middle, the second takes over, and
//! the first goes on, not knowing.

use std::hint::spin_loop;

use rustix::process::{Pid, Signal, kill_process};

use super::check::check;
use super::child::{Ended, Event, Running};
use super::model::{Dice, Line};
use super::writer::{Ending, FENCED_CODE, Job};

const ROUNDS: usize = 12;

#[test]
fn a_writer_that_slept_through_a_takeover_is_fenced_and_adds_nothing_to_what_it_had_acknowledged() {
    let mut dice = Dice::of_test("zombies");
    let all = tempfile::tempdir().unwrap();
    let place = |name: &str| all.path().join(name);
    let mut line = Line::new();
    let mut stopped_in_a_step = 0;
    for round in 0..ROUNDS {
        let job = |work: &str, run, plan: &str| Job {
            checkpoint: place("checkpoint"),
            work: Some(place(work)),
            run,
            plan: plan.to_owned(),
            ending: Ending::Exit,
        };
        let sleeper = job("first", dice.next(), &"cdclcdc".repeat(200));
        let mut running = Running::start(&sleeper);
        for _ in 0..4 + dice.roll(12) {
            running.next().unwrap();
        }
        (0..dice.roll(100_000)).for_each(|_| spin_loop());
        let pid = Pid::from_raw(i32::try_from(running.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        wait_until_stopped(running.pid());

        let successor = Running::start(&job("second", dice.next(), "cdc")).end();
        assert!(successor.status.success(), "{successor:#?}");
        kill_process(pid, Signal::CONT).unwrap();
        let zombie = running.end();
        zombie.assert_no_panic();
        assert_eq!(zombie.status.code(), Some(FENCED_CODE), "{zombie:#?}");
        assert_eq!(zombie.failures(), ["Fenced"], "{zombie:#?}");

        // What it had acknowledged lies below the successor's, with or without the commit it slept in; nothing lies above.
        let lines = zombie.lines(&line);
        stopped_in_a_step += usize::from(lines.len() > 1);
        let lines = lines.iter().filter(|line| opened_on(&successor) == line.len());
        let lines: Vec<Line> = lines.flat_map(|line| successor.lines(line)).collect();
        let look = job(["first", "second", "third"][round % 3], 0, "");
        line = check(&look, &lines, &mut dice).unwrap_or_else(|error| panic!("round {round}: {error:?}"));
    }
    println!("{} versions after {ROUNDS} takeovers, {stopped_in_a_step} of them in the middle of a commit", line.len());
}

fn opened_on(ended: &Ended) -> usize {
    let opened =
        ended.events.iter().find_map(|event| if let Event::Opened(version) = event { Some(*version) } else { None });
    opened.unwrap()
}

/// The signal is on its way when `kill` returns; the kernel says when all threads have stopped.
fn wait_until_stopped(pid: u32) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    while state() != 'T' {
        std::thread::yield_now();
    }
}
