//! The command line.

use std::path::{Path, PathBuf};

use crate::measure::Failure;
use crate::measure::plan::{Plan, default_dir};
use crate::point::TASK;

pub(crate) const HELP: &str = "\
Measures the memory of both providers by the number of keys, and draws it.

  memory_plot [options]

  --counts N,N,...      numbers of keys (default 250000 to 8000000)
  --limit SIZE          the memory limit of RocksDbProvider (default 64MiB)
  --out DIR             where memory.csv and memory.svg go (default docs/measurements of the sources)
  --draw                draw the memory.csv that is there; measure nothing
  --dir DIR             where to work; cleaned up afterwards (default: target/measure of the sources)
";

/// What the caller wants.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) counts: Vec<u64>,
    pub(crate) plan: Plan,
    pub(crate) out: PathBuf,
    pub(crate) draw: bool,
    /// Set in a child: what it does, and with whom.
    pub(crate) task: Option<String>,
    pub(crate) provider: String,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self {
            counts: (0..6).map(|power| 250_000 << power).collect(),
            plan: Plan { limit_mib: 64, ..Plan::new(default_dir("memory-plot")) },
            out: Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements"),
            draw: false,
            task: None,
            provider: String::new(),
            help: false,
        };
        while let Some(word) = words.next() {
            if args.plan.take(&word, &mut words)? {
                continue;
            }
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--counts" => args.counts = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--out" => args.out = value()?.into(),
                "--draw" => args.draw = true,
                TASK => args.task = Some(value()?),
                "--provider" => args.provider = value()?,
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument {word:?}; see --help").into()),
            }
        }
        Ok(args)
    }
}
