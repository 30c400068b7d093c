//! The command line.

use crate::measure::Failure;
use crate::measure::plan::{Plan, default_dir, mebibytes};
use crate::measure::run::PHASE;

pub(crate) const HELP: &str = "\
Loads, overwrites, snapshots, scans, goes back, restarts and verifies a store, and watches its memory.

  scale [options]

  --keys N              distinct keys of 16 bytes with values of 100 bytes (default 3000000)
  --limit SIZE          the memory limit, such as 512MiB (default 48MiB)
  --residency KIND      mapped (default) or resident
  --stores N            spread over so many stores in one process (default 1)
  --cgroup SIZE         run in a memory control group with this limit, if the machine allows it
  --dir DIR             where to work; cleaned up afterwards (default: target/measure of the sources)
";

/// What the caller wants.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) plan: Plan,
    pub(crate) group_mib: Option<u64>,
    /// Set in a child: what it does.
    pub(crate) phase: Option<String>,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self { plan: Plan::new(default_dir("scale")), group_mib: None, phase: None, help: false };
        while let Some(word) = words.next() {
            if args.plan.take(&word, &mut words)? {
                continue;
            }
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--cgroup" => args.group_mib = Some(mebibytes(&value()?)?),
                PHASE => args.phase = Some(value()?),
                "--help" | "-h" => args.help = true,
                _ => return Err(format!("unknown argument {word:?}; see --help").into()),
            }
        }
        args.plan = args.plan.checked()?;
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, Failure> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_argument_is_taken() {
        let line = "--keys 9 --stores 3 --limit 1GiB --residency resident --cgroup 768MiB --dir d --phase load";
        let args = parse(line).unwrap();
        assert_eq!((args.plan.keys, args.plan.stores, args.plan.limit_mib, args.group_mib), (9, 3, 1024, Some(768)));
        assert_eq!((args.plan.residency_name(), args.phase.as_deref()), ("resident", Some("load")));
    }

    #[test]
    fn a_wrong_line_is_refused_with_the_word_that_is_wrong() {
        for (line, word) in
            [("--limit much", "much"), ("--keys", "--keys"), ("--quick", "--quick"), ("--residency both", "both")]
        {
            let refusal = parse(line).unwrap_err().to_string();
            assert!(refusal.contains(word), "{line}: {refusal}");
        }
        assert!(parse("--keys 1 --stores 2").is_err());
    }
}
