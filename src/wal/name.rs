//! The names in a log's folder: one spelling each. Whatever is spelled otherwise is not ours and is left alone.

use std::fmt;

/// The lock that keeps a second writer out.
pub(super) const LOCK: &str = "LOCK";
/// Room that is given back when the disk is full, so that the log can be closed and cleaned.
pub(super) const RESERVE: &str = "reserve";
/// Segment numbers in names have this many digits, so that they sort and every `u64` fits.
const DIGITS: usize = 20;

/// The name of a segment: `log-<start>-<stop>-<segment>`.
///
/// Start is the first record's time and stop the planned end, both in milliseconds since 1970, as in Spark's logs. They are for people:
/// what counts is the segment's number, which also makes the name unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// The segment's number; the order of segments.
    pub segment: u64,
    /// The first record's time.
    pub start_ms: u64,
    /// When the next segment is due.
    pub stop_ms: u64,
}

impl SegmentName {
    /// Reads a file name. Only the one spelling that `Display` writes is taken.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("log-")?.split('-');
        let (start, stop, segment) = (parts.next()?, parts.next()?, parts.next()?);
        let found = Self { start_ms: plain(start)?, stop_ms: plain(stop)?, segment: padded(segment)? };
        parts.next().is_none().then_some(found)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log-{}-{}-{:0DIGITS$}", self.start_ms, self.stop_ms, self.segment)
    }
}

/// Everything else of ours in a log's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// `horizon-<segment>`: the segments below that one are given up.
    Horizon(u64),
    /// `cut-<segment>-<offset>`: what recovery cut off that segment at that byte.
    Cut(u64, u64),
    /// `void-<segment>`: a segment that recovery took out of the log.
    Void(u64),
    /// `spare-<segment>`: a cleaned segment, to be written over.
    Spare(u64),
    /// `tmp-<number>`: not finished; swept at the next opening.
    Temporary(u64),
}

impl Side {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('-')?;
        match kind {
            "horizon" => padded(number).map(Self::Horizon),
            "void" => padded(number).map(Self::Void),
            "spare" => padded(number).map(Self::Spare),
            "tmp" => padded(number).map(Self::Temporary),
            "cut" => {
                let (segment, offset) = number.split_once('-')?;
                Some(Self::Cut(padded(segment)?, plain(offset)?))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Horizon(number) => write!(f, "horizon-{number:0DIGITS$}"),
            Self::Cut(segment, offset) => write!(f, "cut-{segment:0DIGITS$}-{offset}"),
            Self::Void(number) => write!(f, "void-{number:0DIGITS$}"),
            Self::Spare(number) => write!(f, "spare-{number:0DIGITS$}"),
            Self::Temporary(number) => write!(f, "tmp-{number:0DIGITS$}"),
        }
    }
}

/// A decimal number without leading zeros, signs or spaces.
fn plain(text: &str) -> Option<u64> {
    let spelled = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if spelled { text.parse().ok() } else { None }
}

fn padded(text: &str) -> Option<u64> {
    let spelled = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    if spelled { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        let name = SegmentName { segment: 12, start_ms: 1_700_000_000_000, stop_ms: 1_700_000_060_000 };
        assert_eq!(name.to_string(), "log-1700000000000-1700000060000-00000000000000000012");
        assert_eq!(SegmentName::parse(&name.to_string()), Some(name));
        for side in [Side::Horizon(3), Side::Cut(4, 99), Side::Void(5), Side::Spare(0), Side::Temporary(u64::MAX)] {
            assert_eq!(Side::parse(&side.to_string()), Some(side));
        }
    }

    #[test]
    fn whatever_is_spelled_otherwise_is_foreign() {
        let good = "log-1-2-00000000000000000003";
        assert!(SegmentName::parse(good).is_some());
        let others = [
            "xlog-1-2-00000000000000000003",
            "log-1-2-00000000000000000003.tmp",
            "log-1-2",
            "log-1-2-3",
            "log-01-2-00000000000000000003",
            "log--1-2-00000000000000000003",
            "log-1-2-0000000000000000000a",
            "log-1-2-99999999999999999999",
            "log-1-2-00000000000000000003-4",
            "notalog",
            "",
            "log-18446744073709551616-2-00000000000000000003",
            "log-+1-2-00000000000000000003",
        ];
        for other in others {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
        for other in
            ["horizon-3", "cut-00000000000000000003", "cut-00000000000000000003-01", "tmp-", "spare-x", "log-1-2"]
        {
            assert_eq!(Side::parse(other), None, "{other}");
        }
    }
}
