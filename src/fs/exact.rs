//! The one loop that turns short reads into whole ones, for the real disk and the simulated one alike.

use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// Fills `buffer` from `offset` by calling `read` until nothing is left to fill.
///
/// A call that was interrupted is repeated. The end of the file before the buffer is full is `Corrupt`: whoever asks for bytes
/// has reason to expect them.
pub(super) fn read_exact_at(
    path: &Path,
    buffer: &mut [u8],
    offset: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<()> {
    let mut rest = buffer;
    let mut at = offset;
    while !rest.is_empty() {
        match read(rest, at) {
            Ok(0) => {
                let expected = format!("{} more bytes", rest.len());
                return Err(Error::corrupt(path, at, expected, "the end of the file"));
            }
            Ok(count) => {
                rest = rest.get_mut(count..).unwrap_or_default();
                at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(path, "read the file", error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_interrupted_reads_are_continued_where_they_stopped() {
        let file: Vec<u8> = (0..100).collect();
        let mut calls = 0;
        let mut buffer = [0; 50];
        read_exact_at(Path::new("f"), &mut buffer, 30, |part, at| {
            calls += 1;
            if calls % 3 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let at = usize::try_from(at).unwrap();
            let count = part.len().min(7);
            part[..count].copy_from_slice(&file[at..at + count]);
            Ok(count)
        })
        .unwrap();
        assert_eq!(buffer, file[30..80]);
        assert!(calls > 8);
    }

    #[test]
    fn the_end_of_the_file_is_reported_where_it_was_met() {
        let error = read_exact_at(Path::new("f"), &mut [0; 10], 5, |_, at| Ok(usize::from(at < 8))).unwrap_err();
        let text = error.to_string();
        assert!(error.is_corrupt() && text.contains("byte 8") && text.contains("7 more bytes"), "{text}");
    }

    #[test]
    fn any_other_failure_is_passed_on() {
        let error =
            read_exact_at(Path::new("f"), &mut [0; 10], 0, |_, _| Err(io::ErrorKind::TimedOut.into())).unwrap_err();
        assert!(matches!(error.kind(), crate::ErrorKind::Io { kind: io::ErrorKind::TimedOut, .. }));
    }
}
