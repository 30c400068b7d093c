//! What follows `alluvium log`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Lists the segments of a log, and what is wrong with them at first sight.
    Ls(Folder),
    /// Shows the records, oldest first.
    Read(ReadArgs),
    /// Reads and checks every byte; exit code 1 where acknowledged records are damaged or missing.
    Verify(Folder),
    /// Copies what can still be read into a new log; exit code 1 where something could not.
    Salvage(SalvageArgs),
    /// Gives up the oldest segments. The log must not be open elsewhere.
    Clean(CleanArgs),
}

#[derive(Debug, Args)]
pub(super) struct Folder {
    /// The log's folder.
    pub(super) dir: PathBuf,
    /// Writes JSON instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    pub(super) folder: Folder,
    /// The first LSN to be shown.
    #[arg(long, default_value_t = 0)]
    pub(super) from: u64,
    /// The most records to be shown.
    #[arg(long)]
    pub(super) limit: Option<u64>,
    /// Skips what is damaged, and says so.
    #[arg(long)]
    pub(super) salvage: bool,
}

#[derive(Debug, Args)]
pub(super) struct SalvageArgs {
    #[command(flatten)]
    pub(super) folder: Folder,
    /// The folder of the new log.
    #[arg(long)]
    pub(super) to: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    #[command(flatten)]
    pub(super) folder: Folder,
    /// Segments all of whose records are older than this go: milliseconds since 1970.
    #[arg(long, required_unless_present = "below")]
    pub(super) older_than: Option<u64>,
    /// Segments all of whose records have LSNs below this go.
    #[arg(long, conflicts_with = "older_than")]
    pub(super) below: Option<u64>,
}

impl LogCommand {
    /// The log's folder.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Ls(folder) | Self::Verify(folder) => &folder.dir,
            Self::Read(args) => &args.folder.dir,
            Self::Salvage(args) => &args.folder.dir,
            Self::Clean(args) => &args.folder.dir,
        }
    }
}
