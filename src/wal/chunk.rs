//! Reading a segment front to back, a chunk of whole and verified frames at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, MAX_RECORD_BYTES};
use super::record::Lsn;
use crate::checksum::crc32;
use crate::error::{Error, Result};
use crate::fs::ReadFile;

/// Bytes read at once. Fits a core's cache, so that a frame is still there when its checksum is taken (64 KiB records, against `cat`:
/// 256 KiB and 512 KiB are equal, 4 MiB loses a third).
pub(super) const CHUNK_BYTES: usize = 512 << 10;

/// A frame in a chunk.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) header: FrameHeader,
    /// Of its header in the file.
    pub(super) offset: u64,
    /// Its payload in the chunk.
    pub(super) payload: Range<usize>,
}

impl Frame {
    /// Byte offset in the file of what comes after it.
    pub(super) fn end(&self) -> u64 {
        self.offset + (FRAME_HEADER_BYTES + self.header.body_bytes()) as u64
    }
}

/// Frames that lie one behind the other, verified.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<Frame>,
    /// Why there is nothing after them; `None`: more may follow.
    pub(super) stop: Option<Stop>,
}

impl Chunk {
    pub(super) fn payload(&self, frame: &Frame) -> &[u8] {
        self.bytes.get(frame.payload.clone()).unwrap_or_default()
    }
}

/// Where the frames of a segment end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// At the end of the file, or of what may be read of it.
    End(u64),
    /// Zeros from here to the end: room that was never written.
    Zeros(u64),
    /// Something that is no whole, undamaged frame.
    Bad(Bad),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) offset: u64,
    pub(super) expected: String,
    pub(super) found: String,
    /// The end of the frame, where its header can be believed and the file reaches that far.
    pub(super) resume: Option<u64>,
}

impl Bad {
    pub(super) fn error(&self, path: &Path) -> Error {
        Error::corrupt(path, self.offset, &self.expected, &self.found)
    }
}

/// Reads the frames of one segment from some offset on. Holds no bytes itself.
#[derive(Debug, Clone)]
pub(super) struct ChunkReader {
    file: Arc<dyn ReadFile>,
    path: Arc<Path>,
    salt: u64,
    /// Nothing from here on is looked at.
    end: u64,
    at: u64,
    checks_payloads: bool,
}

fn bad(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Bad {
    Bad { offset, expected: expected.into(), found: found.into(), resume: None }
}

impl ChunkReader {
    pub(super) fn new(file: Arc<dyn ReadFile>, path: Arc<Path>, salt: u64, from: u64, end: u64) -> Self {
        Self { file, path, salt, end, at: from, checks_payloads: true }
    }

    /// A planted bug: believes every payload.
    pub(super) fn without_payload_checks(mut self) -> Self {
        self.checks_payloads = false;
        self
    }

    /// Byte offset of the end of what may be read.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Puts so many bytes from `offset` on into `buffer`, or as many as there are.
    pub(super) fn read(&self, buffer: &mut Vec<u8>, offset: u64, most: usize) -> Result<()> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        buffer.resize(left.min(most), 0);
        self.file.read_exact_at(buffer, offset)
    }

    /// Whether the payload of a frame is what its header says, as far as this reader looks.
    pub(super) fn is_whole(&self, header: &FrameHeader, body: &[u8]) -> bool {
        header.kind == FrameKind::Mark || !self.checks_payloads || crc32(body) == header.payload_crc
    }

    pub(super) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Goes on somewhere else.
    pub(super) fn seek(&mut self, offset: u64) {
        self.at = offset;
    }

    /// The frames that come next, into the memory of `chunk`. A chunk has at least one frame, or says why there is none.
    ///
    /// # Errors
    /// Only what reading reports. Damage is in the chunk.
    pub(super) fn next(&mut self, chunk: &mut Chunk) -> Result<()> {
        chunk.frames.clear();
        chunk.stop = None;
        let mut wanted = CHUNK_BYTES;
        while chunk.frames.is_empty() && chunk.stop.is_none() {
            let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let length = left.min(wanted);
            chunk.bytes.resize(length, 0);
            self.file.read_exact_at(&mut chunk.bytes, self.at)?;
            wanted = self.take_frames(chunk, length == left)?;
        }
        Ok(())
    }

    /// Takes the frames that the chunk holds whole; returns how many bytes the next one needs.
    fn take_frames(&mut self, chunk: &mut Chunk, is_last: bool) -> Result<usize> {
        let start = self.at;
        let mut place = 0;
        loop {
            let offset = start + place as u64;
            self.at = offset;
            let rest = chunk.bytes.get(place..).unwrap_or_default();
            let Some(bytes) = rest.first_chunk::<FRAME_HEADER_BYTES>() else {
                if is_last {
                    chunk.stop = Some(Self::short_end(offset, rest));
                }
                return Ok(CHUNK_BYTES);
            };
            let Some(header) = FrameHeader::decode(bytes, self.salt) else {
                chunk.stop = Some(self.no_header(offset, bytes)?);
                return Ok(CHUNK_BYTES);
            };
            let whole = FRAME_HEADER_BYTES + header.body_bytes();
            if header.body_bytes() > MAX_RECORD_BYTES || whole as u64 > self.end - offset {
                let found = format!("{} bytes of payload", header.body_bytes());
                chunk.stop = Some(Stop::Bad(bad(offset, "a frame that the file has room for", found)));
                return Ok(CHUNK_BYTES);
            }
            let Some(body) = rest.get(FRAME_HEADER_BYTES..whole) else { return Ok(whole.max(CHUNK_BYTES)) };
            if !self.is_whole(&header, body) {
                let expected = format!("the payload's checksum {:08x}", header.payload_crc);
                let found = bad(offset, expected, format!("{:08x}", crc32(body)));
                chunk.stop = Some(Stop::Bad(Bad { resume: Some(offset + whole as u64), ..found }));
                return Ok(CHUNK_BYTES);
            }
            chunk.frames.push(Frame { header, offset, payload: place + FRAME_HEADER_BYTES..place + whole });
            place += whole;
        }
    }

    fn short_end(offset: u64, rest: &[u8]) -> Stop {
        if rest.is_empty() {
            return Stop::End(offset);
        }
        if rest.iter().all(|byte| *byte == 0) {
            return Stop::Zeros(offset);
        }
        Stop::Bad(bad(offset, "a frame's header", format!("{} bytes at the end of the file", rest.len())))
    }

    fn no_header(&self, offset: u64, bytes: &[u8]) -> Result<Stop> {
        if bytes.iter().all(|byte| *byte == 0) && self.is_zero_from(offset)? {
            return Ok(Stop::Zeros(offset));
        }
        let found = format!("{:02x?}", bytes.first_chunk::<16>().unwrap_or(&[0; 16]));
        Ok(Stop::Bad(bad(offset, "a frame's header", found)))
    }

    fn is_zero_from(&self, offset: u64) -> Result<bool> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut at = offset;
        while at < self.end {
            let length = usize::try_from(self.end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let Some(part) = buffer.get_mut(..length) else { break };
            self.file.read_exact_at(part, at)?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += length as u64;
        }
        Ok(true)
    }

    /// Looks from `from` on, byte by byte, for the header of a frame that is not older than `at_least`; `None` where there is none.
    ///
    /// # Errors
    /// Only what reading reports.
    pub(super) fn find_frame(&self, from: u64, at_least: Lsn) -> Result<Option<u64>> {
        let mut buffer = Vec::new();
        let mut at = from;
        while at + FRAME_HEADER_BYTES as u64 <= self.end {
            self.read(&mut buffer, at, CHUNK_BYTES)?;
            if let Some((place, _)) = self.next_frame(&buffer, 0, at_least) {
                return Ok(Some(at + place as u64));
            }
            // The windows end one byte after each other: the last header that fits starts here.
            at += (buffer.len() - FRAME_HEADER_BYTES + 1) as u64;
        }
        Ok(None)
    }

    /// The first header in `bytes`, from `place` on, of a frame that is not older than `at_least`.
    pub(super) fn next_frame(&self, bytes: &[u8], place: usize, at_least: Lsn) -> Option<(usize, FrameHeader)> {
        let mut windows = bytes.get(place..)?.windows(FRAME_HEADER_BYTES).enumerate();
        windows.find_map(|(skipped, bytes)| Some((place + skipped, self.header(bytes, at_least)?)))
    }

    fn header(&self, bytes: &[u8], at_least: Lsn) -> Option<FrameHeader> {
        let bytes = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
        if !FrameHeader::is_plausible(bytes) {
            return None;
        }
        FrameHeader::decode(bytes, self.salt).filter(|header| match header.kind {
            // A mark's own LSN lies behind; that of its group is in its time.
            FrameKind::Mark => Lsn(header.time_ms) >= at_least,
            FrameKind::Record(_) | FrameKind::Seal => header.lsn >= at_least,
        })
    }
}
