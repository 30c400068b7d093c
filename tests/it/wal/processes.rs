//! Two processes and one folder.
//!
//! The children are this test binary, started again with a role in their environment. A line on standard error that starts with
//! `@` is for the parent.

use std::env;
use std::io::{BufRead, BufReader, Read, Write, stderr, stdin};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use alluvium::ErrorKind;
use alluvium::wal::{FileLog, LogOptions, WriteAheadLog, inspect};

use super::support::{payloads, read_all};

const ROLE: &str = "ALLUVIUM_LOG_ROLE";
const DIRECTORY: &str = "ALLUVIUM_LOG_DIRECTORY";

fn tell(line: &str) {
    let mut out = stderr().lock();
    writeln!(out, "@ {line}").unwrap();
    out.flush().unwrap();
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 << 10, preallocates: false, ..LogOptions::default() }
}

/// Plays a role; does nothing where this is not a child.
#[test]
fn child_main() {
    let (Ok(role), Some(directory)) = (env::var(ROLE), env::var_os(DIRECTORY)) else { return };
    let log = FileLog::open(&directory, options()).unwrap();
    match role.as_str() {
        "holder" => {
            log.write(b"from the child", 1).unwrap();
            tell("holds");
            stdin().read_exact(&mut [0]).unwrap();
            log.close().unwrap();
            tell("has closed");
            stdin().read_exact(&mut [0]).unwrap();
        }
        "writer" => loop {
            let handle = log.write(&[7; 500], 1).unwrap();
            tell(&handle.lsn.to_string());
        },
        _ => panic!("no such role: {role}"),
    }
}

struct Running {
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Running {
    fn start(role: &str, directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "wal::processes::child_main", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(DIRECTORY, directory).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines }
    }

    /// The next thing that it tells; `None` when it has ended.
    fn next(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            assert!(!line.contains("panicked"), "{line}");
            if let Some(told) = line.strip_prefix("@ ") {
                return Some(told.trim().to_owned());
            }
        }
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    }

    /// Kills it; everything it told that was not heard yet.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        let told = std::iter::from_fn(|| self.next()).collect();
        self.child.wait().unwrap();
        told
    }
}

#[test]
fn a_second_process_is_told_who_holds_the_log_and_gets_it_when_that_one_is_gone() {
    for is_killed in [false, true] {
        let all = tempfile::tempdir().unwrap();
        let directory = all.path().join("log");
        // Opened while there was no folder: it learns of the other one when it writes.
        let early = FileLog::open(&directory, options()).unwrap();
        let mut child = Running::start("holder", &directory);
        assert_eq!(child.next().as_deref(), Some("holds"));
        let holder = format!("process {} on host ", child.child.id());
        for error in [FileLog::open(&directory, options()).unwrap_err(), early.write(b"x", 1).unwrap_err()] {
            let ErrorKind::Locked { holder: found } = error.kind() else { panic!("{error}") };
            assert!(found.starts_with(&holder), "{found}");
        }
        assert!(!inspect::verify(&alluvium::fs::RealDisk::new(), &directory, &mut |_| ()).unwrap().has_loss());
        if is_killed {
            child.kill();
        } else {
            child.go_on();
            assert_eq!(child.next().as_deref(), Some("has closed"));
        }
        let log = FileLog::open(&directory, options()).unwrap();
        assert_eq!(payloads(&log), ["from the child"]);
        let error = early.write(b"x", 1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
        log.write(b"from here", 2).unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_again_and_again_loses_nothing_that_it_was_told() {
    let all = tempfile::tempdir().unwrap();
    let directory = all.path().join("log");
    let mut acknowledged: u64 = 0;
    for round in 0..8 {
        let mut child = Running::start("writer", &directory);
        let mut told: Vec<String> = (0..20 + round * 7).filter_map(|_| child.next()).collect();
        // Beside the writer, and with its help at every stage.
        assert!(!inspect::verify(&alluvium::fs::RealDisk::new(), &directory, &mut |_| ()).unwrap().has_loss());
        told.extend(child.kill());
        // Of the last line only a part may have come through.
        let lsns = told.iter().filter_map(|line| line.parse::<u64>().ok());
        let heard = lsns.max().unwrap();
        assert!(heard > acknowledged);
        let log = FileLog::open(&directory, options()).unwrap();
        let found = read_all(&log).unwrap();
        let last = found.last().unwrap().lsn;
        assert!(found.len() as u64 == last && last >= heard, "{} records, {heard} acknowledged", found.len());
        acknowledged = last;
    }
}
