//! Runs a part of the work in a process of its own, so that its memory is its own.
//!
//! The child is this very program, started again. It answers with one line of named numbers on standard output.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::Failure;
use super::cgroup::{Cgroup, join};

/// Names the control group that a child joins.
const GROUP: &str = "ALLUVIUM_MEASURE_CGROUP";
/// How jemalloc is set in a child: one arena, and what is free goes back at once (`docs/decisions/0011`). Other allocators don't know the name.
const ALLOCATOR: (&str, &str) = ("MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0");
/// How often the parent looks around while it waits.
const LOOK: Duration = Duration::from_millis(200);

/// Named numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer(BTreeMap<String, u64>);

impl Answer {
    pub(crate) fn with(mut self, name: &str, value: u64) -> Self {
        self.0.insert(name.into(), value);
        self
    }

    /// The number called `name`; 0 where there is none.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn line(&self) -> String {
        let words: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect(); // a handful
        words.join(" ")
    }

    fn parse(line: &str) -> Result<Self, Failure> {
        let mut answer = Self::default();
        for word in line.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("no answer: {line:?}"))?;
            answer = answer.with(name, value.parse()?);
        }
        Ok(answer)
    }
}

/// In a child, before anything else: it ends with its parent, and joins the control group that it was given.
pub(crate) fn begin() -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if let Some(dir) = env::var_os(GROUP) {
        join(&PathBuf::from(dir))?;
    }
    Ok(())
}

/// In a child, at the end.
pub(crate) fn answer(answer: &Answer) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", answer.line())?;
    Ok(out.flush()?)
}

/// In the parent: runs this program with `arguments`, and gives its answer. Calls `look` every now and then meanwhile.
pub(crate) fn run(
    arguments: &[OsString],
    group: Option<&Cgroup>,
    look: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    let mut command = Command::new(env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).env(ALLOCATOR.0, ALLOCATOR.1);
    if let Some(group) = group {
        command.env(GROUP, group.path());
    }
    let mut child = command.spawn()?;
    let mut out = child.stdout.take().ok_or("the child has no standard output")?;
    let (said, hears) = mpsc::channel();
    // Ends with the child.
    let listener = thread::spawn(move || {
        let mut text = String::new();
        let outcome = out.read_to_string(&mut text).map(|_| text);
        // Whoever waits has gone only if looking failed, and then nobody wants to know.
        said.send(outcome).is_ok()
    });
    let text = loop {
        match hears.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => look()?,
            Err(RecvTimeoutError::Disconnected) => return Err("nobody listened to the child".into()),
            Ok(text) => break text?,
        }
    };
    look()?;
    if listener.join().is_err() {
        return Err("listening to the child failed".into());
    }
    let status = child.wait()?;
    let kills = group.map_or(0, |group| group.seen().oom_kills);
    if status.success() { Answer::parse(&text) } else { Err(ended(status, kills).into()) }
}

fn ended(status: ExitStatus, oom_kills: u64) -> String {
    match status.signal() {
        Some(_) if oom_kills > 0 => format!("killed for lack of memory ({oom_kills} OOM kills in the control group)"),
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("ended with {}", status.code().unwrap_or(-1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_from_its_line() {
        let answer = Answer::default().with("keys", 3).with("nanos", u64::MAX);
        let read = Answer::parse(&answer.line()).unwrap();
        assert_eq!((read.get("keys"), read.get("nanos"), read.get("other")), (3, u64::MAX, 0));
        assert_eq!(read, answer);
        assert!(Answer::parse("thread 'main' panicked").is_err());
    }
}
