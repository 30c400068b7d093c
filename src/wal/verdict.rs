//! The decision table of recovery: what a finding means. Pure; the text is in `docs/formats/log.md`.

use super::record::Lsn;

/// What the end of a segment, or a hole in a log, means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A seal, the end of the file, or room that was never written: nothing is lost.
    CleanEnd,
    /// The write at the end was cut off, and nothing valid follows: it was not acknowledged.
    TornTail,
    /// Parts of an unsynced group reached the disk and earlier ones did not: none of it was durable.
    TornGroup,
    /// Old bytes of a file that was written over.
    StaleEnd,
    /// Records that were never known durable are lost in front of later segments, after a failed sync; or there never were any, after a write
    /// that a full disk refused.
    NeverDurable,
    /// Records that were durable are damaged.
    Damaged,
    /// Records that were durable are in no segment.
    Missing,
    /// A segment whose header cannot be read.
    Unreadable,
}

impl Verdict {
    /// Whether acknowledged records are lost.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Damaged | Self::Missing | Self::Unreadable)
    }

    /// In one word, for tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::CleanEnd => "clean",
            Self::TornTail => "torn-tail",
            Self::TornGroup => "torn-group",
            Self::StaleEnd => "stale-end",
            Self::NeverDurable => "never-durable",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What bytes that are no frame mean at the end of the newest segment, where the record `lsn` should be.
///
/// `durable` is the highest LSN that anything in the log says was durable, bytes behind the finding included.
pub(super) fn at_the_end(lsn: Lsn, durable: Lsn, more_follows: bool, recycled: bool) -> Verdict {
    if lsn <= durable {
        Verdict::Damaged
    } else if more_follows {
        Verdict::TornGroup
    } else if recycled {
        Verdict::StaleEnd
    } else {
        Verdict::TornTail
    }
}

/// What bytes that are no frame mean in front of a later segment, where the record `lsn` should be. `durable` is what that segment's header
/// says.
pub(super) fn in_the_middle(lsn: Lsn, durable: Lsn) -> Verdict {
    if lsn <= durable { Verdict::Damaged } else { Verdict::NeverDurable }
}

/// What it means that a segment ends well before the next one begins, the record `lsn` being the first that is in neither.
/// `durable` is what the next one's header says.
pub(super) fn in_between(lsn: Lsn, durable: Lsn) -> Verdict {
    if lsn <= durable { Verdict::Missing } else { Verdict::NeverDurable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_these_rows() {
        let (acknowledged, after) = (Lsn(5), Lsn(6));
        let durable = Lsn(5);
        let rows = [
            (at_the_end(acknowledged, durable, false, false), Verdict::Damaged),
            (at_the_end(acknowledged, durable, true, false), Verdict::Damaged),
            (at_the_end(acknowledged, durable, false, true), Verdict::Damaged),
            (at_the_end(after, durable, true, false), Verdict::TornGroup),
            (at_the_end(after, durable, true, true), Verdict::TornGroup),
            (at_the_end(after, durable, false, true), Verdict::StaleEnd),
            (at_the_end(after, durable, false, false), Verdict::TornTail),
            (in_the_middle(acknowledged, durable), Verdict::Damaged),
            (in_the_middle(after, durable), Verdict::NeverDurable),
            (in_between(acknowledged, durable), Verdict::Missing),
            (in_between(after, durable), Verdict::NeverDurable),
        ];
        for (number, (found, expected)) in rows.into_iter().enumerate() {
            assert_eq!(found, expected, "row {number}");
        }
    }
}
