//! Bytes from anywhere as the newest segment of a log: read or refused, in every mode, nothing worse.
//!
//! The fuzz target `log` is [`feed`] under a fuzzer; it takes this file as its own.

use std::path::Path;
use std::sync::Arc;

use alluvium::fs::{Disk, SimDisk};
use alluvium::wal::{FileLog, LogOptions, NewRecord, RecordCodec, WriteAheadLog, inspect, read_untrusted};
use alluvium::{IdSource, SystemClock};

const DIR: &str = "/log";
/// The newest segment of [`good`].
const NAME: &str = "/log/log-9-60009-00000000000000000002";
const SEGMENT_HEADER_BYTES: usize = 80;
const FRAME_HEADER_BYTES: usize = 32;
const TRAILER_BYTES: usize = 20;

/// A log of two segments that has all there is: records of every size and codec, marks, seals and an index.
pub(super) fn good() -> SimDisk {
    let sim = SimDisk::new(1);
    for (time_ms, codec) in [(1, RecordCodec::None), (9, RecordCodec::Lz4)] {
        let options = LogOptions { preallocates: false, codec, ..LogOptions::default() };
        let clock = Arc::new(SystemClock::new());
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let log = FileLog::open_on(disk, DIR, options, clock, IdSource::seeded(time_ms)).unwrap();
        for payload in [&b"first"[..], b"", &[7; 300], &vec![0; 70_000]] {
            log.write_batch(&[NewRecord::new(payload, time_ms), NewRecord::new(b"beside", time_ms)]).unwrap();
        }
        log.close().unwrap();
    }
    sim
}

/// Feeds the newest segment of a good log with bytes replaced and others behind it, once as it is and once with good checksums, which lets it
/// get further; and those others alone.
pub(super) fn feed(good: &SimDisk, replaced: &[(u16, u8)], behind: &[u8]) -> u64 {
    let mut bytes = good.read_file(NAME).unwrap().to_vec();
    for (place, byte) in replaced {
        if let Some(found) = bytes.get_mut(usize::from(*place)) {
            *found = *byte;
        }
    }
    let mut sealed = bytes.clone();
    renew_checksums(&mut sealed);
    bytes.extend_from_slice(behind);
    let mut both = sealed.clone();
    both.extend_from_slice(behind);
    renew_checksums(&mut both);
    [bytes.as_slice(), &sealed, &both, behind].into_iter().map(|bytes| read(good, bytes)).sum()
}

fn read(good: &SimDisk, bytes: &[u8]) -> u64 {
    let sim = good.fork();
    sim.write_file(NAME, bytes).unwrap();
    drop(inspect::verify(&sim, Path::new(DIR), &mut |_| ()));
    let saved = sim.fork();
    let disk: Arc<dyn Disk> = Arc::new(saved);
    drop(inspect::salvage(disk, Path::new(DIR), Path::new("/saved"), &mut |_| ()));
    let disk: Arc<dyn Disk> = Arc::new(sim);
    read_untrusted(&disk, Path::new(DIR))
}

/// Makes the checksums of a segment fit what it says, as far as its frames follow each other.
fn renew_checksums(bytes: &mut [u8]) {
    let Some(header) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else { return };
    let (salt, crc) = (header[56..64].to_vec(), crc32(&[&header[..76]]));
    bytes[76..SEGMENT_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(frame) = bytes.get(at..at + FRAME_HEADER_BYTES) {
        let length = u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
        let (is_mark, end) = (frame[12] == 3, at + FRAME_HEADER_BYTES);
        let whole = if is_mark { 0 } else { length };
        let Some(payload) = bytes.get(end..end + whole) else { break };
        if !is_mark {
            let crc = crc32(&[payload]);
            bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32(&[&salt, &bytes[at + 4..end]]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        at = end + whole;
    }
    let Some(trailer) = bytes.len().checked_sub(TRAILER_BYTES).filter(|trailer| *trailer >= at) else { return };
    let crc = crc32(&[&salt, &bytes[trailer..trailer + 8]]);
    bytes[trailer + 8..trailer + 12].copy_from_slice(&crc.to_le_bytes());
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
