//! Rivals in processes of their own, so that nothing else compiles them.
//!
//! A rival is started as `<program> <name> <folder> <bytes> <syncs> <writers>` and prints its records a second.

use std::path::Path;
use std::process::Command;

use crate::{Args, Failure};

const NAMES: [&str; 2] = ["raft-engine", "rocksdb"];

/// The rivals that the program given by `--rival` has.
pub(crate) fn contenders(args: &Args) -> Vec<&'static str> {
    let Some(program) = &args.rival else { return Vec::new() };
    let known = Command::new(program).output().map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    let known = known.unwrap_or_default();
    NAMES.into_iter().filter(|name| known.split_whitespace().any(|word| word == *name)).collect()
}

pub(crate) fn run(
    args: &Args,
    name: &str,
    dir: &Path,
    bytes: usize,
    syncs: usize,
    writers: usize,
) -> Result<f64, Failure> {
    let program = args.rival.as_ref().ok_or("no rival")?;
    let numbers = [bytes, syncs, writers].map(|number| number.to_string());
    let out = Command::new(program).arg(name).arg(dir).args(numbers).output()?;
    if !out.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().parse()?)
}
