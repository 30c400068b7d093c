//! Cleans up after a process, however it ends: finished, interrupted by ctrl-c, or killed.
//!
//! The guardian is this very program, started again in a process group of its own, so that a ctrl-c doesn't reach it. It waits until
//! its standard input ends, which is when the process that holds the other end has gone, and then removes what it was told to.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The argument that makes a process a guardian.
const GUARD: &str = "--guard";
/// Whoever still works there is being killed, which takes its time while the disk is busy.
const ATTEMPTS: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A guardian that waits.
#[derive(Debug)]
pub(crate) struct Guardian {
    dir: PathBuf,
    process: Child,
}

impl Guardian {
    /// Guards a directory: it goes with this process.
    pub(crate) fn over(dir: &Path) -> io::Result<Self> {
        let process = Command::new(env::current_exe()?)
            .arg(GUARD)
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { dir: dir.into(), process })
    }

    /// Has the directory removed now.
    pub(crate) fn release(&mut self) {
        drop(self.process.stdin.take());
        match self.process.wait() {
            Ok(status) if status.success() => {}
            outcome => eprintln!("{} may have stayed behind: {outcome:?}", self.dir.display()),
        }
    }
}

/// What a process does that was started as a guardian; `None` for any other.
pub(crate) fn serve() -> Option<ExitCode> {
    let mut words = env::args_os().skip(1);
    if words.next()? != GUARD {
        return None;
    }
    let dir = PathBuf::from(words.next()?);
    let mut nothing = Vec::new(); // nobody writes
    let outcome = io::stdin().read_to_end(&mut nothing).and_then(|_| remove(&dir));
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} stays behind: {error}", dir.display());
            ExitCode::FAILURE
        }
    })
}

/// Removes a directory with all that is in it. A control group is removed as such: its files are not files.
fn remove(dir: &Path) -> io::Result<()> {
    let is_group = dir.join("cgroup.procs").exists();
    let mut outcome = Ok(());
    let (_silent, pause) = mpsc::channel::<()>();
    for _ in 0..ATTEMPTS {
        outcome = if is_group { fs::remove_dir(dir) } else { fs::remove_dir_all(dir) };
        match &outcome {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(()) => break,
            Err(_) => {
                // Nobody speaks: it ends by time alone.
                if pause.recv_timeout(PAUSE).is_ok() {
                    break;
                }
            }
        }
    }
    outcome
}
