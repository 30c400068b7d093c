//! One process commits, another one looks after its files, and both are killed, again and again. And a third that reads.
//!
//! The children are this test binary, started again with a role in their environment. A line on standard error that starts with
//! `@` is for the parent.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::env;
use std::hint::spin_loop;
use std::io::{BufRead, BufReader, Read, Write, stderr, stdin};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use alluvium::prelude::*;
use alluvium::{
    Backend, ErrorKind, FamilyId, LocalCheckpoint, Maintenance, MaintenanceOptions, RocksDbProvider, StateStoreId,
    StoreOptions, Upkeep, Version,
};

const ROLE: &str = "ALLUVIUM_UPKEEP_ROLE";
const DIRECTORY: &str = "ALLUVIUM_UPKEEP_DIRECTORY";
const FAMILY: FamilyId = FamilyId::DEFAULT;
const RETAINED: u64 = 5;
const ROUNDS: u64 = 100;
const SILENCE: Duration = Duration::from_mins(3);

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// The generator called `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

/// What a version changes follows from its number.
fn changes(version: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut dice = Dice(version);
    let mut change = || {
        let key = format!("key {:03}", dice.below(300)).into_bytes();
        let value = format!("{version} {}", "x".repeat(usize::try_from(dice.below(200)).unwrap())).into_bytes();
        (key, (dice.below(4) > 0).then_some(value))
    };
    (0..12).map(|_| change()).collect()
}

fn apply(state: &mut State, version: u64) {
    for (key, value) in changes(version) {
        match value {
            Some(value) => _ = state.insert(key, value),
            None => _ = state.remove(&key),
        }
    }
}

fn tell(line: &str) {
    let mut out = stderr().lock();
    writeln!(out, "@ {line}").unwrap();
    out.flush().unwrap();
}

/// Plays a role; does nothing where this is not a child.
#[test]
fn child_main() {
    let (Ok(role), Some(directory)) = (env::var(ROLE), env::var_os(DIRECTORY)) else { return };
    let checkpoint = LocalCheckpoint::open(Path::new(&directory)).unwrap();
    match role.as_str() {
        "writer" => write(checkpoint, Upkeep::Manual),
        "writer with upkeep" => write(checkpoint, Upkeep::Background),
        "maintainer" => maintain(checkpoint),
        "reader" => read(checkpoint),
        _ => panic!("no such role: {role}"),
    }
}

fn write(checkpoint: LocalCheckpoint, upkeep: Upkeep) {
    let options = StoreOptions::default().upkeep(upkeep).longest_tail(4).unwrap().collapse_from(2_000);
    let options = options.retain_versions(usize::try_from(RETAINED).unwrap()).unwrap();
    let provider = RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint, id(), options).unwrap();
    let mut version = provider.latest().unwrap().0;
    loop {
        let mut batch = provider.begin(Version(version)).unwrap();
        version += 1;
        for (key, value) in changes(version) {
            match value {
                Some(value) => batch.put(FAMILY, &key, &value).unwrap(),
                None => batch.remove(FAMILY, &key).unwrap(),
            }
        }
        tell(&format!("try {version}"));
        batch.commit().unwrap();
        tell(&format!("done {version}"));
    }
}

fn maintain(checkpoint: LocalCheckpoint) {
    let options = MaintenanceOptions::default().retain_versions(usize::try_from(RETAINED).unwrap()).unwrap();
    let maintenance = Maintenance::on(checkpoint, id(), options);
    let go_on = |_| ControlFlow::Continue(());
    for round in 0_u64.. {
        let outcome = match round % 7 {
            3 => maintenance.compact(&go_on).map(drop),
            6 => maintenance.repair(&go_on).and_then(alluvium::maintenance::Repaired::into_result).map(drop),
            _ => maintenance.maintain(&go_on).map(drop),
        };
        match outcome {
            Ok(()) => tell("maintained"),
            // A writer that has taken over sweeps what an outsider has half-written.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => tell("swept"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Opens a view of the newest version, and reads it when it is told to.
fn read(checkpoint: LocalCheckpoint) {
    let backend = Backend::in_memory().unwrap();
    let options = StoreOptions::default().upkeep(Upkeep::Manual);
    let provider = RocksDbProvider::open(&backend, checkpoint, id(), options).unwrap();
    let version = provider.latest().unwrap();
    let view = provider.read_at(version).unwrap();
    drop((provider, backend));
    tell(&format!("holds {version}"));
    stdin().read_exact(&mut [0]).unwrap();
    let mut expected = State::new();
    (1..=version.0).for_each(|version| apply(&mut expected, version));
    assert_eq!(content(&view), expected);
    tell("read");
}

struct Running {
    child: Child,
    lines: Receiver<String>,
    noise: Vec<String>,
}

impl Running {
    fn start(role: &str, directory: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "two_processes::child_main", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(DIRECTORY, directory).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines, noise: Vec::new() }
    }

    /// The next thing it tells; `None` when it has ended.
    fn next(&mut self) -> Option<String> {
        loop {
            let line = self.lines.recv_timeout(SILENCE).ok()?;
            match line.strip_prefix("@ ") {
                Some(told) => return Some(told.to_owned()),
                None => self.noise.push(line),
            }
        }
    }

    /// Kills it; everything it told that was not heard yet.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        let mut told = Vec::new();
        while let Some(line) = self.next() {
            told.push(line);
        }
        self.child.wait().unwrap();
        assert!(!self.noise.iter().any(|line| line.contains("panicked")), "{:#?}", self.noise);
        told
    }
}

fn content(store: &impl ReadStore) -> State {
    let entries = store.scan(FAMILY).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect()
}

fn open(directory: &Path) -> RocksDbProvider {
    let options = StoreOptions::default().upkeep(Upkeep::Manual);
    let checkpoint = LocalCheckpoint::open(directory).unwrap();
    RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint, id(), options).unwrap()
}

/// Checks the newest version and every retained one; says which is the newest.
fn check(directory: &Path, states: &mut Vec<State>, acknowledged: u64) -> u64 {
    let provider = open(directory);
    let head = provider.latest().unwrap().0;
    assert!(head == acknowledged || head == acknowledged + 1, "{head} after {acknowledged} was acknowledged");
    while states.len() as u64 <= head {
        let mut next = states.last().unwrap().clone();
        apply(&mut next, states.len() as u64);
        states.push(next);
    }
    let state = |version: u64| &states[usize::try_from(version).unwrap()];
    assert_eq!(content(&provider.begin(Version(head)).unwrap()), *state(head));
    for version in head.saturating_sub(RETAINED - 1).max(1)..=head {
        assert_eq!(
            content(&provider.read_at(Version(version)).unwrap()),
            *state(version),
            "version {version} of {head}"
        );
    }
    head
}

#[test]
fn a_writer_and_a_maintainer_that_are_killed_again_and_again_lose_nothing() {
    let seed = env::var("ALLUVIUM_SEED").map_or(7, |text| text.parse().unwrap());
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let all = tempfile::tempdir().unwrap();
    let directory = all.path().join("checkpoint");
    LocalCheckpoint::open(&directory).unwrap();
    let mut states = vec![State::new()];
    let (mut acknowledged, mut maintained) = (0, 0);
    for round in 0..ROUNDS {
        let role = if round % 3 == 0 { "writer with upkeep" } else { "writer" };
        let mut writer = Running::start(role, &directory);
        let mut upkeep = Running::start("maintainer", &directory);
        let mut told = Vec::new();
        for _ in 0..=dice.below(40) {
            told.extend(writer.next());
        }
        for _ in 0..dice.below(4) {
            maintained += usize::from(upkeep.next().is_some());
        }
        (0..dice.below(100_000)).for_each(|_| spin_loop());
        if dice.below(2) == 0 {
            told.extend(writer.kill());
            maintained += upkeep.kill().len();
        } else {
            maintained += upkeep.kill().len();
            told.extend(writer.kill());
        }
        let done = told.iter().filter_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok());
        acknowledged = done.max().unwrap_or(acknowledged);
        acknowledged = check(&directory, &mut states, acknowledged);
    }
    println!("{acknowledged} versions, maintained {maintained} times");
    assert!(acknowledged > ROUNDS && maintained > 50, "{acknowledged} versions, maintained {maintained} times");
    let options = MaintenanceOptions::default().retain_versions(usize::try_from(RETAINED).unwrap()).unwrap();
    let maintenance = Maintenance::on(LocalCheckpoint::open(&directory).unwrap(), id(), options);
    let go_on = |_| ControlFlow::Continue(());
    // A snapshot below all retained versions, so that no fork of a killed writer below it is needed any more.
    maintenance.maintain(&go_on).unwrap();
    assert_eq!(maintenance.verify(&go_on).unwrap().damaged, []);
    let left = std::fs::read_dir(directory.join("state/op/0/state")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    println!("{} files at the end", left.len());
    assert!(left.len() < 64, "{left:#?}");
    check(&directory, &mut states, acknowledged);
}

#[test]
fn a_reader_in_another_process_reads_on_while_everything_it_reads_is_retired() {
    let all = tempfile::tempdir().unwrap();
    let directory = all.path().join("checkpoint");
    let mut writer = Running::start("writer", &directory);
    (0..80).for_each(|_| _ = writer.next());
    writer.kill();
    let mut reader = Running::start("reader", &directory);
    let held = reader.next().unwrap();
    let held: u64 = held.strip_prefix("holds ").unwrap().parse().unwrap();
    let mut writer = Running::start("writer", &directory);
    (0..80).for_each(|_| _ = writer.next());
    writer.kill();
    let options = MaintenanceOptions::default().retain_versions(1).unwrap();
    let maintenance = Maintenance::on(LocalCheckpoint::open(&directory).unwrap(), id(), options);
    let go_on = |_| ControlFlow::Continue(());
    maintenance.compact(&go_on).unwrap();
    maintenance.retire(&|_| ControlFlow::Continue(())).unwrap();
    let gone = open(&directory).read_at(Version(held)).unwrap_err();
    assert!(matches!(gone.kind(), ErrorKind::VersionNotFound { .. }), "{gone}");
    reader.child.stdin.take().unwrap().write_all(b"!").unwrap();
    assert_eq!(reader.next().as_deref(), Some("read"), "{:#?}", reader.noise);
    assert!(reader.child.wait().unwrap().success());
}
