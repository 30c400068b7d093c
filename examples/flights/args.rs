//! The command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Failure;

pub(crate) const HELP: &str = "\
Streams the flights of 2013 through a state store, in event order.

  flights --checkpoint DIR --work DIR [options]

  --checkpoint DIR      where the versions of the state live
  --work DIR            scratch of this process: the index, the unpacked input
  --input FILE          the packed input (default: examples/data/flights.csv.zst of the sources)
  --rows N              use only the first N rows, in event order
  --batch N             rows of a batch; each batch is one commit (default 2000)
  --memory-limit MIB    the store's memory limit (default 64)
  --residency KIND      mapped (default) or resident
  --snapshot-every N    write a snapshot after every N batches (default 50; 0 = never)
  --crash-after N       die by SIGKILL at a random moment of the batch that follows N commits of this run
  --resume              go on where the newest version of the checkpoint stands
  --verify              compare the final tables with a plain pass over the input; exit code 1 if they differ
  --json                print the result as JSON instead of tables
";

/// What the caller wants.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Args {
    pub(crate) checkpoint: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) input: PathBuf,
    pub(crate) rows: usize,
    pub(crate) batch: usize,
    pub(crate) memory_limit_mib: u64,
    pub(crate) resident: bool,
    pub(crate) snapshot_every: u64,
    pub(crate) crash_after: Option<u64>,
    pub(crate) resume: bool,
    pub(crate) verify: bool,
    pub(crate) json: bool,
}

impl Args {
    /// Reads the command line; `None` when it asks for help.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, Failure> {
        let mut args = Self {
            checkpoint: PathBuf::new(),
            work: PathBuf::new(),
            input: concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.csv.zst").into(),
            rows: usize::MAX,
            batch: 2000,
            memory_limit_mib: 64,
            resident: false,
            snapshot_every: 50,
            crash_after: None,
            resume: false,
            verify: false,
            json: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failure::new(format!("{word} needs a value")));
            match word.as_str() {
                "--checkpoint" => args.checkpoint = value()?.into(),
                "--work" => args.work = value()?.into(),
                "--input" => args.input = value()?.into(),
                "--rows" => args.rows = number(&word, &value()?)?,
                "--batch" => args.batch = number(&word, &value()?)?,
                "--memory-limit" => args.memory_limit_mib = number(&word, &value()?)?,
                "--residency" => args.resident = residency(&value()?)?,
                "--snapshot-every" => args.snapshot_every = number(&word, &value()?)?,
                "--crash-after" => args.crash_after = Some(number(&word, &value()?)?),
                "--resume" => args.resume = true,
                "--verify" => args.verify = true,
                "--json" => args.json = true,
                "--help" | "-h" => return Ok(None),
                _ => return Err(Failure::new(format!("unknown argument {word:?}; see --help"))),
            }
        }
        args.checked().map(Some)
    }

    fn checked(self) -> Result<Self, Failure> {
        if self.checkpoint.as_os_str().is_empty() || self.work.as_os_str().is_empty() {
            return Err(Failure::new("--checkpoint and --work are needed; see --help"));
        }
        if self.batch == 0 {
            return Err(Failure::new("--batch must be at least 1"));
        }
        if self.memory_limit_mib > u64::MAX >> 20 {
            return Err(Failure::new("--memory-limit is too large"));
        }
        Ok(self)
    }
}

fn number<T: FromStr<Err: Display>>(word: &str, value: &str) -> Result<T, Failure> {
    value.parse().map_err(|e| Failure::new(format!("{word} {value:?}: {e}")))
}

fn residency(value: &str) -> Result<bool, Failure> {
    match value {
        "mapped" => Ok(false),
        "resident" => Ok(true),
        _ => Err(Failure::new(format!("--residency: {value:?} is neither mapped nor resident"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Args>, Failure> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_argument_is_taken() {
        let line =
            "--checkpoint c --work w --rows 9 --batch 8 --memory-limit 7 --residency resident --crash-after 6 --verify";
        let args = parse(line).unwrap().unwrap();
        assert_eq!((args.rows, args.batch, args.memory_limit_mib, args.crash_after), (9, 8, 7, Some(6)));
        assert!(args.resident && args.verify && !args.resume && !args.json);
    }

    #[test]
    fn a_wrong_line_is_refused_with_the_word_that_is_wrong() {
        for (line, word) in [
            ("--work w", "--checkpoint"),
            ("--checkpoint c --work w --batch 0", "--batch"),
            ("--checkpoint c --work w --rows many", "many"),
            ("--checkpoint c --work w --rows", "--rows"),
            ("--checkpoint c --work w --quick", "--quick"),
            ("--checkpoint c --work w --residency both", "both"),
        ] {
            let refusal = parse(line).unwrap_err().to_string();
            assert!(refusal.contains(word), "{line}: {refusal}");
        }
        assert!(parse("--help").unwrap().is_none());
    }
}
