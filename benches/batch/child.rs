//! Each contender runs in a process of its own, so that its memory and its bytes are its own, and is stopped while another
//! one has its turn, so that its background work takes nobody else's time.
//!
//! The parent writes one command a line, the child answers each with one line of numbers, or `failed: why`.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use alluvium::SystemClock;
use rustix::process::{Pid, Signal, kill_process};

use crate::contender::{Contender, Turn, nanos, turn};
use crate::measure::Failure;
use crate::measure::kernel::{held, written_bytes};
use crate::measure::workload::{Workload, key, updates};

/// What the parent can ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// Load, and read everything once. Answer: nothing.
    Load,
    /// Run batches. Answer: wall, p50 and p99 of commit, in nanoseconds.
    Turn { first: u64, count: u64 },
    /// Check every value against the number of updates that were made. Answer: nothing.
    Check { updates: u64 },
    /// Finish background work. Answer: bytes written since the load, and the peak of anonymous memory.
    Settle,
    /// Open again without the work directory. Answer: nanoseconds, if it can.
    Reopen,
    /// Go back by one version. Answer: nanoseconds, if it can.
    RollBack,
}

impl Order {
    fn line(self) -> String {
        match self {
            Self::Load => "load".into(),
            Self::Turn { first, count } => format!("turn {first} {count}"),
            Self::Check { updates } => format!("check {updates}"),
            Self::Settle => "settle".into(),
            Self::Reopen => "reopen".into(),
            Self::RollBack => "roll_back".into(),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let mut number = || words.next()?.parse().ok();
        Some(match name {
            "load" => Self::Load,
            "turn" => Self::Turn { first: number()?, count: number()? },
            "check" => Self::Check { updates: number()? },
            "settle" => Self::Settle,
            "reopen" => Self::Reopen,
            "roll_back" => Self::RollBack,
            _ => return None,
        })
    }
}

/// The child's side: does what standard input says until it ends.
pub(crate) fn serve(contender: &mut dyn Contender, workload: &Workload) -> Result<(), Failure> {
    let clock = SystemClock::new();
    let mut loaded_bytes = 0;
    let mut peak_bytes = 0;
    for line in io::stdin().lock().lines() {
        let order = Order::parse(&line?).ok_or("no such order")?;
        let answer = obey(contender, workload, order, &clock, &mut loaded_bytes, &mut peak_bytes);
        let answer = match answer {
            Ok(numbers) => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            Err(failure) => format!("failed: {failure}"),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn obey(
    contender: &mut dyn Contender,
    workload: &Workload,
    order: Order,
    clock: &SystemClock,
    loaded_bytes: &mut u64,
    peak_bytes: &mut u64,
) -> Result<Vec<u64>, Failure> {
    // A key that exists, and that batches touch as rarely as any other.
    let witness = key(workload.keys / 2);
    match order {
        Order::Load => {
            contender.load(workload)?;
            contender.scan(&mut |_, _| Ok(()))?;
            *loaded_bytes = written_bytes();
            Ok(Vec::new())
        }
        Order::Turn { first, count } => {
            let turn = turn(contender, workload, first, count, clock)?;
            // After the batches of a turn every buffer is as full as it gets.
            *peak_bytes = held().anonymous_bytes.max(*peak_bytes);
            Ok(vec![nanos(turn.wall), nanos(turn.commit_p50), nanos(turn.commit_p99)])
        }
        Order::Check { updates } => check(contender, workload, updates).map(|()| Vec::new()),
        Order::Settle => {
            contender.settle()?;
            Ok(vec![written_bytes().saturating_sub(*loaded_bytes), *peak_bytes])
        }
        Order::Reopen => Ok(contender.reopen(&witness, clock)?.map(nanos).into_iter().collect()),
        Order::RollBack => Ok(contender.roll_back(&witness, clock)?.map(nanos).into_iter().collect()),
    }
}

/// Reads everything: each value belongs to its key, none is missing, and all updates are in.
fn check(contender: &mut dyn Contender, workload: &Workload, expected: u64) -> Result<(), Failure> {
    let (mut keys, mut total) = (0, 0);
    contender.scan(&mut |key, value| {
        let key = key.try_into()?;
        total += updates(&key, value).ok_or("a value that doesn't belong to its key")?;
        keys += 1;
        Ok(())
    })?;
    if (keys, total) == (workload.keys, expected) {
        return Ok(());
    }
    Err(format!("found {keys} keys with {total} updates, expected {} with {expected}", workload.keys).into())
}

/// The parent's side. Stopped except while it has an order to obey.
#[derive(Debug)]
pub(crate) struct Rider {
    pub(crate) name: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Rider {
    pub(crate) fn start(name: &'static str, dir: &Path, workload: &Workload, limit_mib: u64) -> Result<Self, Failure> {
        let mut child = Command::new(env::current_exe()?)
            .args(["--contender", name, "--dir"])
            .arg(dir.join(name))
            .args(["--keys", &workload.keys.to_string(), "--seed", &workload.seed.to_string()])
            .args(["--limit-mib", &limit_mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("the child has no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the child has no standard output")?);
        let rider = Self { name, child, orders, answers };
        rider.signal(Signal::STOP)?;
        Ok(rider)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = Pid::from_child(&self.child);
        Ok(kill_process(pid, signal)?)
    }

    /// Lets the child run until it has answered.
    pub(crate) fn order(&mut self, order: Order) -> Result<Vec<u64>, Failure> {
        self.signal(Signal::CONT)?;
        writeln!(self.orders, "{}", order.line())?;
        self.orders.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        self.signal(Signal::STOP)?;
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>();
        match numbers {
            Ok(numbers) if answer.ends_with('\n') => Ok(numbers),
            _ => Err(format!("{}: {order:?}: {}", self.name, answer.trim()).into()),
        }
    }

    pub(crate) fn turn(&mut self, first: u64, count: u64) -> Result<Turn, Failure> {
        let numbers = self.order(Order::Turn { first, count })?;
        let [wall, commit_p50, commit_p99] = numbers.as_slice() else {
            return Err("a turn answers with three numbers".into());
        };
        Ok(Turn {
            wall: Duration::from_nanos(*wall),
            commit_p50: Duration::from_nanos(*commit_p50),
            commit_p99: Duration::from_nanos(*commit_p99),
        })
    }
}

impl Drop for Rider {
    fn drop(&mut self) {
        // It is a child of this process and holds nothing that outlives the benchmark.
        if let Err(e) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("batch: {} could not be ended: {e}", self.name);
        }
    }
}
