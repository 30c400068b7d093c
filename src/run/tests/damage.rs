//! Every cut and every flipped bit of a small delta and a small snapshot is detected, and hostile bytes do no harm.

use std::ops::ControlFlow;

use super::support::*;
use crate::checksum::crc32;
use crate::entry::{FamilyId, KeyRange, Probe};
use crate::error::{ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::run::index::{IndexView, PagePlace, StripePlace};
use crate::run::{Access, Packing, PageCodec, WriterOptions};
use crate::version::RunKind;

struct Specimen {
    bytes: Vec<u8>,
    entries: Entries,
}

/// A delta of a few pages with tombstones, ranges and metadata.
fn delta(codec: PageCodec) -> Specimen {
    let mut entries = numbered(24, 9);
    entries.iter_mut().step_by(5).for_each(|(_, value)| *value = None);
    entries.push((key("z"), Some(vec![9; 300])));
    let mut ranges = RangeSet::default();
    ranges.insert(KeyRange::prefix(FamilyId(1), b"t"));
    let options = WriterOptions { packing: Packing::Packed, page_bytes: Some(256) };
    Specimen { bytes: write_with(&header(RunKind::Delta, codec), options, &entries, &ranges, b"offsets"), entries }
}

fn snapshot() -> Specimen {
    let entries = numbered(40, 20);
    let options = WriterOptions { packing: Packing::Aligned, page_bytes: Some(512) };
    let header = header(RunKind::Snapshot, PageCodec::None);
    Specimen { bytes: write_with(&header, options, &entries, &RangeSet::default(), b"m"), entries }
}

fn is_detection(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt { .. } | ErrorKind::Unsupported)
}

/// What reading every entry by key and in order gives: an error that names damage, or exactly what was written.
fn read_all(bytes: Vec<u8>, access: Access, entries: &Entries) -> Result<()> {
    let run = open(bytes, access)?;
    let mut first_error = None;
    for (key, value) in entries {
        match run.get(&Probe::new(key)) {
            Ok(found) => assert_eq!(found, Some(as_change(value.as_ref())), "a wrong answer"),
            Err(e) => first_error = first_error.or(Some(e)),
        }
    }
    let scanned = scan(&run, KeyRange::ALL);
    match (first_error, scanned) {
        (None, Ok(found)) => assert_eq!(found, *entries, "a wrong scan"),
        (Some(e), Err(_)) => return Err(e),
        // A filter is used by gets only, all else by both.
        (Some(e), Ok(found)) => {
            assert_eq!(found, *entries, "a wrong scan");
            return Err(e);
        }
        (None, Err(e)) => panic!("gets saw nothing of {e}"),
    }
    Ok(())
}

fn verify(bytes: Vec<u8>) -> Result<()> {
    open(bytes, Access::Mapped)?.verify(&mut |_| ControlFlow::Continue(()))
}

#[test]
fn every_cut_is_detected_at_open() {
    for specimen in [delta(PageCodec::None), delta(PageCodec::Lz4), delta(PageCodec::Zstd), snapshot()] {
        for length in 0..specimen.bytes.len() {
            for access in [Access::Mapped, Access::Positioned] {
                let error = open(specimen.bytes[..length].to_vec(), access).unwrap_err();
                assert!(error.is_corrupt(), "cut at {length}: {error}");
            }
        }
        let longer = [specimen.bytes.as_slice(), &[0]].concat();
        assert!(open(longer, Access::Mapped).unwrap_err().is_corrupt());
    }
}

/// Flips every bit; gives the bytes in which a flip goes unnoticed by reading (but never by verifying).
fn flip_every_bit(specimen: &Specimen) -> Vec<usize> {
    let mut harmless = Vec::new();
    for bit in 0..specimen.bytes.len() * 8 {
        let mut bytes = specimen.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let verified = verify(bytes.clone()).expect_err("verify misses a bit");
        assert!(is_detection(verified.kind()), "bit {bit}: {verified}");
        match read_all(bytes, Access::Mapped, &specimen.entries) {
            Ok(()) => harmless.push(bit / 8),
            Err(e) => assert!(is_detection(e.kind()), "bit {bit}: {e}"),
        }
    }
    harmless.dedup();
    harmless
}

#[test]
fn every_flipped_bit_of_a_delta_is_detected_by_reading_and_by_verifying() {
    for codec in [PageCodec::None, PageCodec::Lz4, PageCodec::Zstd] {
        assert_eq!(flip_every_bit(&delta(codec)), Vec::<usize>::new());
    }
}

/// Padding is the one thing that a reader passes by: nothing points there, and a page that has been checked ends before
/// it. `verify` sees it all the same.
#[test]
fn every_flipped_bit_of_a_snapshot_is_detected_and_those_of_padding_only_by_verifying() {
    // Small pages, so that flipping every bit stays quick: the 4 KiB gaps are sampled, all else is done in full.
    let specimen = snapshot();
    let run = open(specimen.bytes.clone(), Access::Mapped).unwrap();
    assert_eq!(run.footer.pages, 3);
    let is_padding = |at: usize| specimen.bytes[at.saturating_sub(40)..(at + 40).min(specimen.bytes.len())] == [0; 80];
    for at in 0..specimen.bytes.len() {
        if is_padding(at) && at % 509 != 0 {
            continue;
        }
        for bit in 0..8 {
            let mut bytes = specimen.bytes.clone();
            bytes[at] ^= 1 << bit;
            let verified = verify(bytes.clone()).expect_err("verify misses a bit");
            assert!(verified.is_corrupt(), "byte {at}: {verified}");
            if read_all(bytes, Access::Mapped, &specimen.entries).is_ok() {
                assert_eq!(specimen.bytes[at], 0, "byte {at} is no padding");
                let Err(error) = verify({
                    let mut bytes = specimen.bytes.clone();
                    bytes[at] ^= 1 << bit;
                    bytes
                }) else {
                    panic!("byte {at}")
                };
                assert!(matches!(error.kind(), ErrorKind::Corrupt { expected, .. } if expected.contains("padding")));
            }
        }
    }
}

#[test]
fn positioned_reads_detect_what_mapped_ones_do() {
    let specimen = delta(PageCodec::None);
    for at in 0..specimen.bytes.len() {
        let mut bytes = specimen.bytes.clone();
        bytes[at] ^= 0x10;
        let error = read_all(bytes, Access::Positioned, &specimen.entries).unwrap_err();
        assert!(is_detection(error.kind()), "byte {at}: {error}");
    }
}

#[test]
fn a_failed_cursor_stays_failed() {
    let specimen = delta(PageCodec::None);
    let mut bytes = specimen.bytes.clone();
    let place = bytes.windows(8).position(|window| window == b"00000020").unwrap();
    bytes[place] ^= 1;
    let run = open(bytes, Access::Mapped).unwrap();
    let mut cursor = run.cursor(KeyRange::ALL);
    let first = loop {
        match crate::entry::Cursor::advance(&mut cursor) {
            Ok(more) => assert!(more, "the damage is passed over"),
            Err(e) => break e,
        }
    };
    let again = crate::entry::Cursor::advance(&mut cursor).unwrap_err();
    assert_eq!(first.kind(), again.kind());
}

/// The planted bug: without page checksums a flipped value bit goes out as data. The harness must notice that.
#[test]
fn skipping_page_checksums_shows() {
    let specimen = snapshot();
    let mut bytes = specimen.bytes.clone();
    let (key, value) = &specimen.entries[7];
    let value = value.as_ref().unwrap();
    let place = bytes.windows(value.len()).position(|window| window == value).unwrap();
    bytes[place] ^= 1;
    let wrong = open_unchecked(bytes.clone()).unwrap().get(&Probe::new(key)).unwrap();
    assert_ne!(wrong, Some(as_change(Some(value))));
    assert!(open(bytes, Access::Mapped).unwrap().get(&Probe::new(key)).unwrap_err().is_corrupt());
}

/// Rewrites the header after `change`, with a checksum that fits: a file from elsewhere, not an accident.
fn forge_header(change: impl FnOnce(&mut Vec<u8>)) -> ErrorKind {
    let mut bytes = delta(PageCodec::None).bytes;
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    change(&mut bytes);
    let crc = crc32(&bytes[..length - 4]);
    bytes[length - 4..length].copy_from_slice(&crc.to_le_bytes());
    open(bytes, Access::Mapped).unwrap_err().kind().clone()
}

#[test]
fn what_this_build_cannot_read_is_unsupported_not_corrupt() {
    assert_eq!(forge_header(|bytes| bytes[8] = 2), ErrorKind::Unsupported, "format");
    assert_eq!(forge_header(|bytes| bytes[17] = 3), ErrorKind::Unsupported, "codec");
    assert_eq!(forge_header(|bytes| bytes[19] = 1), ErrorKind::Unsupported, "encryption");
    assert_eq!(forge_header(|bytes| bytes[20] = 1), ErrorKind::Unsupported, "flags");
    assert!(matches!(forge_header(|bytes| bytes[24] = 9), ErrorKind::Corrupt { .. }), "from above to");
}

#[test]
fn forged_blocks_with_right_checksums_never_panic() {
    // Any byte of a page, its index or the top index set to extremes, all checksums above it made to fit again.
    let specimen = delta(PageCodec::None);
    let run = open(specimen.bytes.clone(), Access::Mapped).unwrap();
    let footer = run.footer;
    let top_at = usize::try_from(footer.top.offset).unwrap();
    let top_end = top_at + footer.top.length as usize;
    for at in top_at..top_end {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = specimen.bytes.clone();
            bytes[at] = byte;
            reseal_top(&mut bytes, top_at, top_end);
            poke(&bytes, &specimen.entries);
        }
    }
    let top = IndexView::<StripePlace>::parse(&run.top).unwrap();
    let stripe = run.stripe(&top, 0).unwrap();
    let index = stripe.place.page_index();
    let (index_at, index_bytes) = (usize::try_from(index.offset).unwrap(), index.length as usize);
    for at in index_at..index_at + index_bytes {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = specimen.bytes.clone();
            bytes[at] = byte;
            let crc = crc32(&bytes[index_at..index_at + index_bytes]);
            replace(&mut bytes, index.crc, crc);
            reseal_top(&mut bytes, top_at, top_end);
            poke(&bytes, &specimen.entries);
        }
    }
    let page_bytes = run.layout.header_bytes as usize..index_at;
    let first_page =
        IndexView::<PagePlace>::parse(&specimen.bytes[index_at..index_at + index_bytes]).unwrap().entry(0).unwrap();
    for at in page_bytes.start..page_bytes.start + first_page.stored_bytes as usize {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = specimen.bytes.clone();
            bytes[at] = byte;
            let page = page_bytes.start..page_bytes.start + first_page.stored_bytes as usize;
            let crc = crc32(&bytes[page]);
            replace(&mut bytes, first_page.crc, crc);
            let crc = crc32(&bytes[index_at..index_at + index_bytes]);
            replace(&mut bytes, index.crc, crc);
            reseal_top(&mut bytes, top_at, top_end);
            poke(&bytes, &specimen.entries);
        }
    }
}

/// A writer that is wrong, not a disk: right checksums over a filter without its keys, or a tag of another key.
#[test]
fn verifying_finds_keys_that_gets_would_miss() {
    let specimen = delta(PageCodec::None);
    let run = open(specimen.bytes.clone(), Access::Mapped).unwrap();
    let top = IndexView::<StripePlace>::parse(&run.top).unwrap();
    let stripe = run.stripe(&top, 0).unwrap();
    let index = stripe.place.page_index();
    let place = IndexView::<PagePlace>::parse(&run.page_index(&stripe).unwrap()).unwrap().entry(0).unwrap();
    let range = |at: u64, length: u32| {
        let at = usize::try_from(at).unwrap();
        at..at + length as usize
    };
    let (filter_at, index_at) = (stripe.place.filter(run.layout.block_align()), range(index.offset, index.length));
    let filter_range = range(filter_at.offset, filter_at.length);
    let page_range = range(stripe.place.offset, place.stored_bytes);
    let top_range = range(run.footer.top.offset, run.footer.top.length);

    let mut bytes = specimen.bytes.clone();
    bytes[filter_range.clone()].fill(0);
    let crc = crc32(&bytes[filter_range]);
    replace(&mut bytes, filter_at.crc, crc);
    reseal_top(&mut bytes, top_range.start, top_range.end);
    assert!(verify(bytes).unwrap_err().is_corrupt());

    let mut bytes = specimen.bytes.clone();
    bytes[page_range.start + 4] ^= 1; // the first tag
    let crc = crc32(&bytes[page_range]);
    replace(&mut bytes, place.crc, crc);
    let crc = crc32(&bytes[index_at]);
    replace(&mut bytes, index.crc, crc);
    reseal_top(&mut bytes, top_range.start, top_range.end);
    assert!(verify(bytes).unwrap_err().is_corrupt());
}

fn replace(bytes: &mut [u8], old: u32, new: u32) {
    let place = bytes.windows(4).rposition(|window| window == old.to_le_bytes()).unwrap();
    bytes[place..place + 4].copy_from_slice(&new.to_le_bytes());
}

fn reseal_top(bytes: &mut [u8], top_at: usize, top_end: usize) {
    let crc = crc32(&bytes[top_at..top_end]);
    let footer = bytes.len() - 100;
    bytes[footer + 76..footer + 80].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32(&bytes[footer..footer + 88]);
    bytes[footer + 88..footer + 92].copy_from_slice(&crc.to_le_bytes());
}

/// Uses a file in every way; errors are fine, panics and endless loops are not.
fn poke(bytes: &[u8], entries: &Entries) {
    for access in [Access::Mapped, Access::Positioned] {
        let Ok(run) = open(bytes.to_vec(), access) else { continue };
        for _ in 0..2 {
            for (key, _) in entries {
                drop(run.get(&Probe::new(key)));
            }
        }
        drop(scan(&run, KeyRange::ALL));
        drop(run.verify(&mut |_| ControlFlow::Continue(())));
    }
}
