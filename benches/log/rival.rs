//! Rivals: `raft-engine` in a process of its own, built on demand, so that nothing else compiles it; and RocksDB, where it is built in.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Args, Failure};

pub(crate) const RAFT_ENGINE: &str = "raft-engine";
pub(crate) const ROCKSDB: &str = "RocksDB";

/// Who takes part. Builds `raft-engine` if it has to.
pub(crate) fn contenders(args: &Args) -> Vec<Rival> {
    let mut found = Vec::new();
    if args.rivals {
        match build() {
            Ok(program) => found.push(Rival { name: RAFT_ENGINE, program: Some(program) }),
            Err(failure) => eprintln!("  without {RAFT_ENGINE}: {failure}"),
        }
        if cfg!(feature = "rocksdb") {
            found.push(Rival { name: ROCKSDB, program: None });
        }
    }
    found
}

#[derive(Debug)]
pub(crate) struct Rival {
    pub(crate) name: &'static str,
    program: Option<PathBuf>,
}

impl Rival {
    /// Synced records a second of `writers` that each write `syncs` of them.
    pub(crate) fn run(&self, dir: &Path, bytes: usize, syncs: usize, writers: usize) -> Result<f64, Failure> {
        let Some(program) = &self.program else { return rocksdb(dir, bytes, syncs, writers) };
        let numbers = [bytes, syncs, writers].map(|number| number.to_string());
        let out = Command::new(program).arg(self.name).arg(dir).args(numbers).output()?;
        if !out.status.success() {
            return Err(format!("{}: {}", self.name, String::from_utf8_lossy(&out.stderr)).into());
        }
        Ok(String::from_utf8(out.stdout)?.trim().parse()?)
    }
}

fn build() -> Result<PathBuf, Failure> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rivals/log/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rivals");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir"])
        .arg(&target)
        .status()?;
    if status.success() { Ok(target.join("release/log-rival")) } else { Err("it could not be built".into()) }
}

#[cfg(feature = "rocksdb")]
fn rocksdb(dir: &Path, bytes: usize, syncs: usize, writers: usize) -> Result<f64, Failure> {
    let db = rocksdb::DB::open_default(dir.join("rocksdb"))?;
    let mut options = rocksdb::WriteOptions::default();
    options.set_sync(true);
    let payload = vec![7; bytes];
    let write = |writer: usize| db.put_opt((writer as u64).to_le_bytes(), &payload, &options);
    write(0)?;
    let start = crate::Stopwatch::start();
    std::thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> =
            (0..writers).map(|writer| scope.spawn(move || (0..syncs).try_for_each(|_| write(writer)))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Failure::from)
        })
    })?;
    Ok(crate::float(syncs * writers) / start.seconds())
}

#[cfg(not(feature = "rocksdb"))]
fn rocksdb(_: &Path, _: usize, _: usize, _: usize) -> Result<f64, Failure> {
    Err("RocksDB is not built in".into())
}
