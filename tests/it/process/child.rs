//! The parent's side of a writer: hears what it tells, kills it, and knows what the store may hold after that.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::model::{Batch, Line};
use super::writer::Job;

/// Longer than any step takes on the slowest machine; a writer that is silent for so long hangs.
const SILENCE: Duration = Duration::from_mins(3);

/// What a writer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Pid(i32),
    /// It begins to open backend and store.
    Open,
    Opened(usize),
    /// It begins a step of its plan.
    Try(usize),
    /// The step is done; if it was a commit, it is acknowledged.
    Done(usize),
    /// Opening or the step failed.
    Failed {
        kind: String,
        text: String,
    },
    /// After a step that failed: the newest version, and the metadata of its commit.
    Head(usize, String),
    Lingers,
    /// Bytes read to open the store, and for one get.
    Read(u64, u64),
    Finished,
}

impl Event {
    fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "pid" => Self::Pid(first.parse().unwrap()),
            "open" => Self::Open,
            "opened" => Self::Opened(first.parse().unwrap()),
            "try" => Self::Try(first.parse().unwrap()),
            "ok" => Self::Done(first.parse().unwrap()),
            "failed" => Self::Failed { kind: first.to_owned(), text: second.to_owned() },
            "head" => Self::Head(first.parse().unwrap(), second.to_owned()),
            "lingers" => Self::Lingers,
            "read" => Self::Read(first.parse().unwrap(), second.parse().unwrap()),
            "done" => Self::Finished,
            _ => panic!("a writer told {line:?}"),
        }
    }
}

/// A writer that runs.
#[derive(Debug)]
pub(super) struct Running {
    job: Job,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    events: Vec<Event>,
    noise: Vec<String>,
}

/// A writer that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) job: Job,
    pub(super) status: ExitStatus,
    pub(super) events: Vec<Event>,
    /// What it wrote besides: panics.
    pub(super) noise: Vec<String>,
}

impl Running {
    pub(super) fn start(job: &Job) -> Self {
        Self::start_under(&[], job)
    }

    /// Starts a writer below another program.
    pub(super) fn start_under(before: &[String], job: &Job) -> Self {
        let mut command = job.command(before);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        // Ends with the pipe, that is with the writer.
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let stdin = child.stdin.take();
        Self { job: job.clone(), child, stdin, lines, events: Vec::new(), noise: Vec::new() }
    }

    /// The next thing that the writer tells; `None` when it has ended.
    pub(super) fn next(&mut self) -> Option<Event> {
        loop {
            match self.lines.recv_timeout(SILENCE) {
                Ok(line) => match line.strip_prefix("@ ") {
                    Some(told) => {
                        let event = Event::parse(told);
                        self.events.push(event.clone());
                        return Some(event);
                    }
                    None => self.noise.push(line),
                },
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let _killed = self.child.kill();
                    panic!("the writer hangs: {self:#?}");
                }
            }
        }
    }

    /// Listens until the writer tells this.
    pub(super) fn wait_for(&mut self, wanted: &Event) {
        while let Some(event) = self.next() {
            if event == *wanted {
                return;
            }
        }
        panic!("the writer ended before it told {wanted:?}: {self:#?}");
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL, which no process survives or notices.
    pub(super) fn kill(mut self) -> Ended {
        self.child.kill().unwrap();
        self.end()
    }

    /// Lets it end by itself.
    pub(super) fn end(mut self) -> Ended {
        drop(self.stdin.take());
        while self.next().is_some() {}
        let status = self.child.wait().unwrap();
        Ended { job: self.job, status, events: self.events, noise: self.noise }
    }
}

impl Ended {
    /// The lines that the store may hold now, if it held `before` when the writer opened it: one, or two where it ended in the
    /// middle of a commit.
    pub(super) fn lines(&self, before: &Line) -> Vec<Line> {
        let mut line = before.clone();
        let mut pending: Option<Batch> = None;
        let mut is_told_indeterminate = false;
        for event in &self.events {
            match event {
                Event::Opened(version) => assert_eq!(*version, line.len(), "{self:#?}"),
                Event::Try(step) => {
                    pending = Some(self.job.batch(*step));
                    is_told_indeterminate = false;
                }
                Event::Done(_) => line = pending.take().unwrap().after(&line),
                Event::Failed { kind, .. } => is_told_indeterminate |= kind == "Indeterminate",
                Event::Head(version, metadata) => {
                    let next = pending.take().unwrap().after(&line);
                    let found = [&line, &next].into_iter().find(|line| ends_with(line, *version, metadata)).cloned();
                    let found = found.unwrap_or_else(|| panic!("neither before nor after: {self:#?}"));
                    // Any other error says that the version does not exist.
                    assert!(is_told_indeterminate || found == line, "{self:#?}");
                    line = found;
                }
                _ => {}
            }
        }
        let next = pending.map(|batch| batch.after(&line)).filter(|next| *next != line);
        std::iter::once(line).chain(next).collect()
    }

    /// Whether it told of errors; their kinds.
    pub(super) fn failures(&self) -> Vec<&str> {
        let kind = |event: &'_ Event| matches!(event, Event::Failed { .. });
        let failed = self.events.iter().filter(|event| kind(event));
        failed.map(|event| if let Event::Failed { kind, .. } = event { kind.as_str() } else { "" }).collect()
    }

    /// Whether the last thing it told is that it began a step.
    pub(super) fn died_in_a_step(&self) -> bool {
        matches!(self.events.last(), Some(Event::Try(_)))
    }

    #[track_caller]
    pub(super) fn assert_no_panic(&self) {
        let is_panic = |line: &String| line.contains("panicked") || line.contains("terminate called");
        assert!(!self.noise.iter().any(is_panic) && self.status.code() != Some(101), "{self:#?}");
    }
}

/// Whether a line ends so, as version and metadata tell.
pub(super) fn ends_with(line: &Line, version: usize, metadata: &str) -> bool {
    line.len() == version && line.last().map_or(String::new(), Batch::metadata) == metadata
}
