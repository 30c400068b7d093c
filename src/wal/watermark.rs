//! The watermark: a small file that says up to which LSN the log is durable.
//!
//! It is written after every sync and never synced itself: it is only evidence. Without it, damage to the last group, behind which nothing
//! follows, would look like a write that was cut off. It never says more than is true, so losing it or finding an old one does no harm.

use std::path::Path;

use super::record::{LogId, Lsn};
use crate::checksum::crc32;
use crate::codec::{Put, Reader};
use crate::error::{Advice, ErrorKind, Result};
use crate::fs::{Disk, ReadFile, WriteFile};

/// The file's name.
pub(super) const WATERMARK: &str = "durable";
const SLOT_BYTES: usize = 28;
/// Two slots in turn, so that a torn write leaves the other one; each in a sector of its own.
const SLOTS: [u64; 2] = [0, 512];

/// The open file.
#[derive(Debug)]
pub(super) struct Watermark {
    file: Box<dyn WriteFile>,
    turn: bool,
}

impl Watermark {
    /// Opens the file in a log's folder, or makes it.
    pub(super) fn open(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let path = dir.join(WATERMARK);
        let file = disk
            .overwrite(&path)
            .or_else(|error| if error.is_not_found() { disk.create_new(&path) } else { Err(error) })?;
        Ok(Self { file, turn: false })
    }

    /// Says that the log is durable up to `lsn`.
    pub(super) fn say(&mut self, log: LogId, lsn: Lsn) -> Result<()> {
        let [even, odd] = SLOTS;
        self.turn = !self.turn;
        self.file.seek_to(if self.turn { odd } else { even })?;
        self.file.append(&encode(log, lsn))
    }
}

fn encode(log: LogId, lsn: Lsn) -> Vec<u8> {
    let mut out = Vec::with_capacity(SLOT_BYTES);
    out.extend_from_slice(&log.0);
    out.put_u64(lsn.0);
    out.put_u32(crc32(&out));
    out
}

/// What the slots of the file say, as far as it can be believed.
#[derive(Debug, Default)]
pub(super) struct Said([Option<(LogId, Lsn)>; 2]);

impl Said {
    /// The highest LSN said of `log`, or of any log; none where nothing is said.
    pub(super) fn of(&self, log: Option<LogId>) -> Lsn {
        let said = self.0.iter().flatten().filter(|(whose, _)| log.is_none_or(|log| log == *whose));
        said.map(|(_, lsn)| *lsn).max().unwrap_or(Lsn::NONE)
    }
}

/// What the file in `dir` says; nothing where there is none, or none that can ever be read: no log is refused for what is only evidence.
///
/// # Errors
/// What may be better the next time, such as too many open files: without the evidence a torn tail is believed too easily.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Said> {
    let path = dir.join(WATERMARK);
    let mut said = Said::default();
    let Some(file) = unless_useless(disk.open(&path))? else { return Ok(said) };
    for (slot, found) in SLOTS.into_iter().zip(&mut said.0) {
        if slot + SLOT_BYTES as u64 <= file.len() {
            *found = unless_useless(read_slot(file.as_ref(), &path, slot))?.flatten();
        }
    }
    Ok(said)
}

/// `None` where the file is no file, not ours to read, or on a bad sector.
fn unless_useless<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => {
            let is_no_file = matches!(error.kind(), ErrorKind::Io { kind: std::io::ErrorKind::InvalidInput, .. });
            if is_no_file || error.is_unreadable() || error.advice() == Advice::FixCall {
                tracing::warn!(%error, "the log's watermark cannot be read");
                return Ok(None);
            }
            Err(error)
        }
        outcome => outcome.map(Some),
    }
}

fn read_slot(file: &dyn ReadFile, path: &Path, slot: u64) -> Result<Option<(LogId, Lsn)>> {
    let mut bytes = [0; SLOT_BYTES];
    file.read_exact_at(&mut bytes, slot)?;
    let mut reader = Reader::new(path, slot, &bytes);
    let words = (LogId(reader.array("log id")?), Lsn(reader.u64("LSN")?));
    let covered = bytes.get(..SLOT_BYTES - 4).unwrap_or_default();
    Ok((reader.u32("checksum")? == crc32(covered)).then_some(words))
}
