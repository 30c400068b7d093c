//! Batches of random updates: Alluvium against RocksDB used by hand.
//!
//! N keys of 16 bytes with values of 100 bytes; batches of 10,000 get and put of uniformly random existing keys, one durable
//! commit each. The contenders get the same batches and the same memory limit, in processes of their own, and take turns in
//! alternating order; the figures are medians over the pairs. After the turns every value of every contender is checked.
//!
//! ```text
//! make bench NAME=batch                       # 1 and 5 million keys, 5 pairs
//! make bench NAME=batch ARGS="--quick"        # does it work at all? no requirements
//! ```
//! One JSON line a figure on standard output, a table on standard error; the exit code is 1 if a requirement is missed.

mod by_hand;
mod child;
mod contender;
#[path = "../../examples/measure/mod.rs"]
mod measure;
mod stored;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use alluvium::Residency;

use crate::by_hand::ByHand;
use crate::child::{Order, Rider, serve};
use crate::contender::{Contender, Turn};
use crate::measure::report::{Must, Report, median};
use crate::measure::workload::{BATCH_KEYS, KEY_BYTES, VALUE_BYTES, Workload};
use crate::measure::{Failure, float, mebibytes};
use crate::stored::Stored;

/// The order in which they take their turns; the other way round in every second pair.
const CONTENDERS: [&str; 3] = [BY_HAND, MAPPED, RESIDENT];
const BY_HAND: &str = "by_hand";
const MAPPED: &str = "mapped";
const RESIDENT: &str = "resident";
/// Batches above the snapshot when the time to open is measured.
const DELTAS_TO_REPLAY: u64 = 5;
const MILLION: u64 = 1_000_000;

#[derive(Debug)]
struct Args {
    keys: Vec<u64>,
    pairs: u64,
    batches: u64,
    limit_mib: u64,
    seed: u64,
    dir: PathBuf,
    contenders: Vec<&'static str>,
    /// Whether figures have to be met.
    required: bool,
    /// Set in a child: who it is.
    contender: Option<String>,
    /// By hand with LZ4, to compare.
    compressed: bool,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self {
            keys: vec![MILLION, 5 * MILLION],
            pairs: 5,
            batches: 40,
            limit_mib: 128,
            seed: 1,
            dir: concat!(env!("CARGO_TARGET_TMPDIR"), "/batch").into(),
            contenders: CONTENDERS.into(),
            required: true,
            contender: None,
            compressed: std::env::var_os("BY_HAND_LZ4").is_some(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--keys" => args.keys = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--pairs" => args.pairs = value()?.parse()?,
                "--batches" => args.batches = value()?.parse()?,
                "--limit-mib" => args.limit_mib = value()?.parse()?,
                "--seed" => args.seed = value()?.parse()?,
                "--dir" => args.dir = value()?.into(),
                "--only" => {
                    let only = value()?;
                    args.contenders.retain(|name| only.split(',').any(|wanted| wanted == *name));
                }
                "--contender" => args.contender = Some(value()?),
                "--quick" => {
                    (args.keys, args.pairs, args.batches) = (vec![20_000], 2, 3);
                    args.required = false;
                }
                // Cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument {word:?}").into()),
            }
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    let outcome = Args::parse(std::env::args().skip(1)).and_then(|args| match &args.contender {
        Some(name) => ride(name, &args),
        None => race(&args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("batch: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// In a child: becomes the contender.
fn ride(name: &str, args: &Args) -> Result<(), Failure> {
    let limit_bytes = args.limit_mib << 20;
    let keys = args.keys.first().copied().unwrap_or(0);
    let dir = args.dir.clone();
    fs::create_dir_all(&dir)?;
    let mut contender: Box<dyn Contender> = match name {
        BY_HAND => Box::new(ByHand::open(dir, usize::try_from(limit_bytes)?, args.compressed)?),
        MAPPED => Box::new(Stored::open(dir, limit_bytes, Residency::Mapped)?),
        RESIDENT => Box::new(Stored::open(dir, limit_bytes, Residency::Resident)?),
        _ => return Err(format!("no contender {name:?}").into()),
    };
    serve(contender.as_mut(), &Workload { keys, seed: args.seed })
}

/// In the parent: one race for each number of keys.
fn race(args: &Args) -> Result<(), Failure> {
    let mut report = Report::of("batch");
    for keys in &args.keys {
        fs::create_dir_all(&args.dir)?;
        let dir = tempfile::tempdir_in(&args.dir)?;
        let workload = Workload { keys: *keys, seed: args.seed };
        eprintln!(
            "\n{keys} keys, {} pairs of {} batches, {} MiB, seed {}",
            args.pairs, args.batches, args.limit_mib, args.seed
        );
        race_with(args, &workload, dir.path(), &mut report)?;
    }
    report.finish()
}

/// A contender and its turns.
struct Lane {
    rider: Rider,
    turns: Vec<Turn>,
}

fn race_with(args: &Args, workload: &Workload, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let mut lanes = Vec::new();
    for name in &args.contenders {
        let mut rider = Rider::start(name, dir, workload, args.limit_mib)?;
        eprintln!("  loading {name}");
        rider.order(Order::Load)?;
        // A turn that isn't counted: caches, buffers and the page cache are as in the middle of a job.
        rider.turn(0, args.batches)?;
        lanes.push(Lane { rider, turns: Vec::new() });
    }
    for pair in 1..=args.pairs {
        for lane in &mut lanes {
            let turn = lane.rider.turn(pair * args.batches, args.batches)?;
            lane.turns.push(turn);
        }
        lanes.reverse();
    }
    if args.pairs % 2 == 1 {
        lanes.reverse();
    }
    let batches = (args.pairs + 1) * args.batches;
    for lane in &mut lanes {
        own_figures(args, workload, lane, batches, report)?;
    }
    ratios(args, workload, &lanes, report)?;
    if let Some(lane) = lanes.iter_mut().find(|lane| lane.rider.name == MAPPED) {
        load_figures(args, workload, &mut lane.rider, batches, report)?;
    }
    Ok(())
}

fn batch_keys(workload: &Workload) -> u64 {
    workload.keys.min(BATCH_KEYS as u64)
}

/// Gets and puts per second in a turn.
fn operations(args: &Args, workload: &Workload, turn: &Turn) -> f64 {
    float(2 * args.batches * batch_keys(workload)) / turn.wall.as_secs_f64()
}

fn case(workload: &Workload, what: &str) -> String {
    format!("{} keys, {what}", workload.keys)
}

fn own_figures(
    args: &Args,
    workload: &Workload,
    lane: &mut Lane,
    batches: u64,
    report: &mut Report,
) -> Result<(), Failure> {
    let name = lane.rider.name;
    let case = |what: &str| case(workload, &format!("{name} {what}"));
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let turns = &lane.turns;
    report.figure(
        &case("operations"),
        median(turns.iter().map(|t| operations(args, workload, t))),
        "operations/s",
        None,
    )?;
    report.figure(&case("commit p50"), median(turns.iter().map(|t| millis(t.commit_p50))), "ms", None)?;
    report.figure(&case("commit p99"), median(turns.iter().map(|t| millis(t.commit_p99))), "ms", None)?;
    let updates = batches * batch_keys(workload);
    lane.rider.order(Order::Check { updates })?;
    let settled = lane.rider.order(Order::Settle)?;
    let [written_bytes, peak_bytes] = settled.as_slice() else {
        return Err("settling answers with two numbers".into());
    };
    let changed_bytes = updates * (KEY_BYTES + VALUE_BYTES) as u64;
    let ratio = float(*written_bytes) / float(changed_bytes.max(1));
    report.figure(&case("written per changed byte"), ratio, "bytes/byte", None)?;
    report.figure(&case("anonymous memory"), mebibytes(*peak_bytes), "MiB", None)
}

/// Each residency against by hand: the median of the ratios within each pair.
fn ratios(args: &Args, workload: &Workload, lanes: &[Lane], report: &mut Report) -> Result<(), Failure> {
    let turns = |name: &str| lanes.iter().find(|lane| lane.rider.name == name).map(|lane| lane.turns.as_slice());
    let Some(rival) = turns(BY_HAND) else { return Ok(()) };
    for name in [MAPPED, RESIDENT] {
        let Some(own) = turns(name) else { continue };
        let ratio = median(
            own.iter()
                .zip(rival)
                .map(|(own, rival)| operations(args, workload, own) / operations(args, workload, rival)),
        );
        let must = match name {
            RESIDENT => 0.9,
            _ if workload.keys >= 5 * MILLION => 2.5,
            _ => 1.3,
        };
        let must = (args.required && workload.keys >= MILLION).then_some(Must::AtLeast(must));
        report.figure(&case(workload, &format!("{name} / by_hand")), ratio, "×", must)?;
    }
    Ok(())
}

/// Opening without a work directory, and going back: over a fresh snapshot and a few deltas.
fn load_figures(
    args: &Args,
    workload: &Workload,
    rider: &mut Rider,
    batches: u64,
    report: &mut Report,
) -> Result<(), Failure> {
    rider.turn(batches, DELTAS_TO_REPLAY)?;
    let must = |bound| args.required.then_some(Must::Below(bound));
    if let [nanos] = rider.order(Order::Reopen)?.as_slice() {
        report.figure(&case(workload, "open without work directory"), float(*nanos) / 1e6, "ms", must(100.0))?;
    }
    if let [nanos] = rider.order(Order::RollBack)?.as_slice() {
        report.figure(&case(workload, "roll back one version"), float(*nanos) / 1e6, "ms", must(50.0))?;
    }
    Ok(())
}
