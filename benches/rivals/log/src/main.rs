//! raft-engine as a rival of the log bench. Without arguments it prints its name; else
//! `log-rival <name> <folder> <bytes> <syncs> <writers>` prints how many synced records a second they take together.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use raft_engine::{Config, Engine, LogBatch};

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => {
            println!("raft-engine");
            return ExitCode::SUCCESS;
        }
        [name, folder, numbers @ ..] => run(name, Path::new(folder), numbers),
        _ => Err("log-rival <name> <folder> <bytes> <syncs> <writers>".into()),
    };
    match outcome {
        Ok(records) => {
            println!("{records}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("log-rival: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, folder: &Path, numbers: &[&str]) -> Result<f64, Failure> {
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let [bytes, syncs, writers] = numbers.as_slice() else { return Err("three numbers".into()) };
    let payload = vec![7; *bytes];
    match name {
        "raft-engine" => {
            let dir = folder.join("raft-engine").to_string_lossy().into_owned();
            let engine = Engine::open(Config { dir, ..Config::default() })?;
            race(*syncs, *writers, |writer| {
                let mut batch = LogBatch::with_capacity(1);
                batch.put(writer as u64 + 1, b"key".to_vec(), payload.clone())?;
                engine.write(&mut batch, true)?;
                Ok(())
            })
        }
        _ => Err(format!("no rival {name:?} in this build").into()),
    }
}

/// Records a second of writers that each write `syncs` of them.
fn race(syncs: usize, writers: usize, write: impl Fn(usize) -> Result<(), Failure> + Sync) -> Result<f64, Failure> {
    write(0)?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> =
            (0..writers).map(|writer| scope.spawn(move || (0..syncs).try_for_each(|_| write(writer)))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok((syncs * writers) as f64 / start.elapsed().as_secs_f64())
}
