//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::log_args::LogCommand;
use super::spelling::{Spelling, quoted};

/// The notes below the help of the whole tool.
const NOTES: &str = "\
Words:
  A checkpoint is the directory in which a job keeps its state. It holds stores; a store is the keyed state of one partition
  of one operator, and is named <operator>/<partition>/<name>. Each commit of a store makes its next version, and the versions
  are kept as immutable files: deltas (what commits changed) and snapshots (the whole state). Keys live in families.

Keys and values:
  --keys and --values say how bytes are spelled, in arguments and in what is shown:
    text  as they are; what is no printable character as \\xNN, and \\ as \\\\ (also \\n, \\r, \\t)
    hex   two digits a byte
    u32   4 bytes as a big-endian number; bytes of another length as 0x and hex digits
    u64   8 bytes as a big-endian number; likewise

Output:
  Text is for people and may change. --json is for programs: one document for `ls`, `stats`, `export` and `import`, one document
  a line for the others. Keys and values are strings in JSON, spelled as above.

Exit codes:
  0  done
  1  damage was found, or a file is missing. A read that gets around a damaged file by itself says so, and is done
  2  the arguments are wrong
  3  there is no such checkpoint (nothing, a file or a symbolic link has the path), store, version, family or key
  4  refused for now: somebody else holds or has changed the store, or the target already exists
  5  the machine failed: disk full, no permission, I/O error

Examples:
  alluvium ls checkpoint
  alluvium get checkpoint ada --family users
  alluvium scan checkpoint --at 12 --limit 10 --json
  alluvium changes checkpoint --from 5 --to 9
  alluvium verify checkpoint";

/// Looks at the stores of Alluvium, and looks after them.
///
/// Works on a checkpoint directory alone, while a job writes it or not.
#[derive(Debug, Parser)]
#[command(name = "alluvium", version, after_help = NOTES, after_long_help = NOTES, max_term_width = 120)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Shows which stores a checkpoint holds: versions, files, bytes, lag.
    #[command(after_help = "\
Examples:
  alluvium ls checkpoint
  alluvium ls checkpoint --files
  alluvium ls checkpoint --store clicks/0/state --json")]
    Ls(Ls),
    /// Shows the versions of a store; exit code 1 where one of them cannot be read.
    #[command(after_help = "\
CHANGES and BYTES are those of the commit's own file: - where that was collapsed into others and is gone. A version that cannot be
read is listed with the reason.

Examples:
  alluvium versions checkpoint
  alluvium versions checkpoint --metadata
  alluvium versions checkpoint --store clicks/0/state --json")]
    Versions(Versions),
    /// Shows the value of a key.
    #[command(after_help = "\
The value goes to the standard output with a line end behind it; a key that is not there is exit code 3.

Examples:
  alluvium get checkpoint ada --family users
  alluvium get checkpoint 17 --keys u64 --values hex
  alluvium get checkpoint 'tab\\there' --at 12")]
    Get(Get),
    /// Shows the keys of a store and their values, in order.
    #[command(after_help = "\
A line has the family, the key and the value, with a tab between. Without --family, all families are shown.

Examples:
  alluvium scan checkpoint --family users --prefix a
  alluvium scan checkpoint --keys u64 --start 100 --end 200
  alluvium scan checkpoint --at 12 --limit 10 --json")]
    Scan(Scan),
    /// Shows what commits changed, version by version.
    #[command(after_help = "\
A line has the version, what was done (put, delete, delete-range), the family, the key and the value, with a tab between. A
delete-range has the start of the range and its end, which is not in it, or nothing where it goes on to the last key; what
the same commit put into the range follows.

Where commits were collapsed and their own deltas retired, the error says which range is still known: see `alluvium diff`.

Examples:
  alluvium changes checkpoint
  alluvium changes checkpoint --from 5 --to 9
  alluvium changes checkpoint --from 5 --to 9 --old --family users --json")]
    Changes(ChangesArgs),
    /// Shows what differs between two versions.
    #[command(after_help = "\
A line starts with + (only in the second), - (only in the first) or ~ (another value: the old one, then the new one), followed
by the family, the key and the value, with a tab between.

Examples:
  alluvium diff checkpoint 5 9
  alluvium diff checkpoint 9 5 --family users
  alluvium diff checkpoint 5 9 --json")]
    Diff(DiffArgs),
    /// Counts the keys of a version, by family: sizes, the largest keys, the share of tombstones.
    #[command(after_help = "\
Reads the whole version once, in memory that does not grow with it.

Examples:
  alluvium stats checkpoint
  alluvium stats checkpoint --at 12 --largest 20 --keys hex
  alluvium stats checkpoint --json")]
    Stats(StatsArgs),
    /// Reads every byte of every run and checks it; exit code 1 where something is damaged.
    #[command(after_help = "\
Without --store, all stores of the checkpoint are verified.

Examples:
  alluvium verify checkpoint
  alluvium verify checkpoint --store clicks/0/state --json")]
    Verify(Verify),
    /// Makes damaged files anew from others that hold the same; exit code 1 where something is lost.
    #[command(after_help = "\
Reads every byte first, as `verify` does. A damaged file that cannot be made anew stays where it is. Without --store, all
stores of the checkpoint are repaired.

Examples:
  alluvium repair checkpoint
  alluvium repair checkpoint --store clicks/0/state --json")]
    Repair(Repair),
    /// Writes what lies in many files into fewer, so that opening and reading get faster. Deletes nothing.
    #[command(after_help = "\
Does what is worth doing: collapses deltas, takes a snapshot. No version is given up: `alluvium retire` with the same --keep
does that, and deletes what has become superfluous. The job that writes the store may be running, and usually does all this
by itself.

Examples:
  alluvium compact checkpoint --dry-run
  alluvium compact checkpoint --keep 100
  alluvium compact checkpoint --snapshot --store clicks/0/state --json")]
    Compact(Compact),
    /// Lets go of old versions, and of every file that nothing needs.
    #[command(after_help = "\
What still leads to a version that is kept goes only once `alluvium compact` with the same --keep has put it together. Readers
that are open read on; their files leave the disk with them.

Examples:
  alluvium retire checkpoint --keep 100 --dry-run
  alluvium retire checkpoint --keep 100 --keep-changes 1000
  alluvium retire checkpoint --keep 10 --store clicks/0/state --json")]
    Retire(Retire),
    /// Writes a version as one file that needs no other.
    #[command(after_help = "\
The file is called <operator>.<partition>.<name>.<version>.snapshot.

Examples:
  alluvium export checkpoint backups
  alluvium export checkpoint backups --at 12 --store clicks/0/state")]
    Export(Export),
    /// Starts a store from a file that an export wrote.
    #[command(after_help = "\
The file is checked from end to end before anything is made. The store must not have a version yet.

Examples:
  alluvium import backups/clicks.0.state.12.snapshot checkpoint --store clicks/0/state")]
    Import(Import),
    /// Looks at write-ahead logs, and looks after them.
    #[command(after_help = "\
Works on a log's folder, beside its writer or not; only `clean` needs the log for itself.

Examples:
  alluvium log ls received/0
  alluvium log read received/0 --from 1000 --limit 10 --json
  alluvium log verify received/0
  alluvium log salvage received/0 --to salvaged
  alluvium log clean received/0 --older-than 1700000000000")]
    Log {
        /// What to do.
        #[command(subcommand)]
        command: LogCommand,
    },
}

/// Where the stores are.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The checkpoint directory.
    pub(super) checkpoint: PathBuf,
    // As an attribute: in a doc comment it would be HTML.
    #[arg(long, short, help = "The store, as <operator>/<partition>/<name>. May be left out where there is only one")]
    pub(super) store: Option<String>,
    /// Writes JSON instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

/// Reads a number of versions to keep.
fn at_least_one(text: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().map_err(|error| error.to_string())?;
    if number == 0 { Err("at least the newest version is kept".into()) } else { Ok(number) }
}

impl Place {
    /// The checkpoint, and the store where it was named, as they are typed in a shell.
    pub(super) fn words(&self) -> String {
        let store = self.store.as_ref().map(|store| format!(" --store {}", quoted(store)));
        format!("{}{}", quoted(&self.checkpoint), store.unwrap_or_default())
    }
}

/// How bytes are spelled.
#[derive(Debug, Args, Clone, Copy)]
pub(super) struct Spellings {
    /// How keys are spelled.
    #[arg(long, value_enum, default_value_t = Spelling::Text)]
    pub(super) keys: Spelling,
    /// How values are spelled.
    #[arg(long, value_enum, default_value_t = Spelling::Text)]
    pub(super) values: Spelling,
}

#[derive(Debug, Args)]
pub(super) struct Ls {
    #[command(flatten)]
    pub(super) place: Place,
    /// Lists every file of every store too.
    #[arg(long)]
    pub(super) files: bool,
}

#[derive(Debug, Args)]
pub(super) struct Versions {
    #[command(flatten)]
    pub(super) place: Place,
    /// Shows the metadata of each commit, and not only its length.
    #[arg(long)]
    pub(super) metadata: bool,
    /// How metadata is spelled.
    #[arg(long, value_enum, default_value_t = Spelling::Text)]
    pub(super) values: Spelling,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    #[command(flatten)]
    pub(super) place: Place,
    /// The key, spelled as --keys says.
    pub(super) key: String,
    /// The family that the key is in; `default` where it is left out.
    #[arg(long, short)]
    pub(super) family: Option<String>,
    /// The version; the newest where it is left out.
    #[arg(long)]
    pub(super) at: Option<u64>,
    #[command(flatten)]
    pub(super) spelling: Spellings,
}

#[derive(Debug, Args)]
pub(super) struct Scan {
    #[command(flatten)]
    pub(super) place: Place,
    /// Only this family.
    #[arg(long, short)]
    pub(super) family: Option<String>,
    /// The version; the newest where it is left out.
    #[arg(long)]
    pub(super) at: Option<u64>,
    /// Only keys that start with this one.
    #[arg(long, conflicts_with_all = ["start", "end"])]
    pub(super) prefix: Option<String>,
    /// The first key.
    #[arg(long)]
    pub(super) start: Option<String>,
    /// The key to end before.
    #[arg(long)]
    pub(super) end: Option<String>,
    /// Ends after so many keys.
    #[arg(long)]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) spelling: Spellings,
}

#[derive(Debug, Args)]
pub(super) struct ChangesArgs {
    #[command(flatten)]
    pub(super) place: Place,
    /// The first version; the same as --to where it is left out. The one after the newest gives nothing yet, and is no error.
    #[arg(long)]
    pub(super) from: Option<u64>,
    /// The last version; the newest where it is left out.
    #[arg(long)]
    pub(super) to: Option<u64>,
    /// Shows the value that each key had before, too: one look-up a change.
    #[arg(long)]
    pub(super) old: bool,
    /// Only this family.
    #[arg(long, short)]
    pub(super) family: Option<String>,
    /// Ends after so many changes.
    #[arg(long)]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) spelling: Spellings,
}

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    #[command(flatten)]
    pub(super) place: Place,
    /// The version to compare from.
    pub(super) from: u64,
    /// The version to compare to.
    pub(super) to: u64,
    /// Only this family.
    #[arg(long, short)]
    pub(super) family: Option<String>,
    /// Ends after so many differences.
    #[arg(long)]
    pub(super) limit: Option<u64>,
    #[command(flatten)]
    pub(super) spelling: Spellings,
}

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pub(super) place: Place,
    /// The version; the newest where it is left out.
    #[arg(long)]
    pub(super) at: Option<u64>,
    /// How many of the largest keys are shown.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub(super) largest: u16,
    /// How keys are spelled.
    #[arg(long, value_enum, default_value_t = Spelling::Text)]
    pub(super) keys: Spelling,
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    #[command(flatten)]
    pub(super) place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Repair {
    #[command(flatten)]
    pub(super) place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Compact {
    #[command(flatten)]
    pub(super) place: Place,
    /// How many of the newest versions are going to be kept; all where it is left out. What leads to older ones is put
    /// together.
    #[arg(long, value_parser = at_least_one)]
    pub(super) keep: Option<u64>,
    /// Writes the newest version into one file, worth it or not.
    #[arg(long)]
    pub(super) snapshot: bool,
    /// Only says what is worth doing.
    #[arg(long, conflicts_with = "snapshot")]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Retire {
    #[command(flatten)]
    pub(super) place: Place,
    /// How many of the newest versions stay readable.
    #[arg(long, value_parser = at_least_one)]
    pub(super) keep: u64,
    /// Of how many of the newest versions the exact changes stay; as many as versions where it is left out.
    #[arg(long)]
    pub(super) keep_changes: Option<u64>,
    /// Only says what would be deleted, and why.
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(flatten)]
    pub(super) place: Place,
    /// The directory that the file goes into; made if it is missing.
    pub(super) dir: PathBuf,
    /// The version; the newest where it is left out.
    #[arg(long)]
    pub(super) at: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// The file that an export wrote.
    pub(super) file: PathBuf,
    /// The checkpoint directory; made if it is missing.
    pub(super) checkpoint: PathBuf,
    #[arg(long, short, help = "The store to start, as <operator>/<partition>/<name>")]
    pub(super) store: String,
    /// Writes JSON instead of text.
    #[arg(long)]
    pub(super) json: bool,
}
