//! The fork record: the content of `forks/<epoch>`. What follows is `docs/formats/fork.md`, which is the law.
//!
#![doc = include_str!("../../docs/formats/fork.md")]

use std::path::Path;

use super::name::FileName;
use crate::checksum::crc32;
use crate::codec::{Put, Reader};
use crate::entry::StateStoreId;
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Epoch, Mark, RunId, StoreUid, Version, VersionId};

const MAGIC: &[u8; 8] = b"ALVMFORK";
const FORMAT: u32 = 1;
/// The longest holder text, in bytes; it is for people, so a longer one is cut.
const MAX_HOLDER_BYTES: usize = 512;
/// No fork file is longer than this, in bytes; a longer one is not read any further.
pub(crate) const MAX_FORK_BYTES: u64 = 2048;

/// What a writer writes down when it claims its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForkRecord {
    /// The store's directory, for ever.
    pub(crate) uid: StoreUid,
    /// The store.
    pub(crate) store: StateStoreId,
    /// The epoch that is claimed; also the file's name.
    pub(crate) epoch: Epoch,
    /// The version that the epoch builds on; of a lower epoch.
    pub(crate) base: Mark,
    /// Who claimed it, in words.
    pub(crate) holder: String,
    /// When, in milliseconds since 1970, for people to read.
    pub(crate) claimed_at_ms: u64,
}

impl ForkRecord {
    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.put_u32(FORMAT);
        bytes.extend_from_slice(&self.uid.0);
        bytes.put_u64(self.epoch.0);
        bytes.put_u64(self.base.at.version.0);
        bytes.put_u64(self.base.at.epoch.0);
        bytes.extend_from_slice(&self.base.tip.0);
        bytes.put_u64(self.claimed_at_ms);
        bytes.put_u32(self.store.partition());
        bytes.put_short(self.store.operator().as_str().as_bytes());
        bytes.put_short(self.store.name().as_str().as_bytes());
        bytes.put_short(cut(&self.holder, MAX_HOLDER_BYTES).as_bytes());
        let crc = crc32(&bytes);
        bytes.put_u32(crc);
        bytes
    }

    /// Reads the bytes of the file called `file`.
    ///
    /// # Errors
    /// `Unsupported` for a format number that this build does not know, `Corrupt` for everything else that is wrong.
    pub(crate) fn decode(file: &Path, bytes: &[u8]) -> Result<Self> {
        let mut head = Reader::new(file, 0, bytes);
        let magic = head.array::<8>("fork magic")?;
        if magic != *MAGIC {
            return Err(Error::corrupt(file, 0, "ALVMFORK", magic.escape_ascii().to_string()));
        }
        let format = head.u32("format number")?;
        if format != FORMAT {
            let text = format!("{} has fork format {format}; this build reads {FORMAT}", file.display());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let (body, crc) = bytes.split_last_chunk::<4>().unwrap_or((bytes, &[0; 4]));
        let (stored, computed) = (u32::from_le_bytes(*crc), crc32(body));
        if stored != computed {
            let place = u64::try_from(body.len()).unwrap_or(u64::MAX);
            return Err(Error::corrupt(file, place, format!("CRC {computed:08x}"), format!("{stored:08x}")));
        }
        let start = head.offset();
        let fields = body.get(usize::try_from(start).unwrap_or(usize::MAX)..).unwrap_or_default();
        Self::decode_fields(Reader::new(file, start, fields))
    }

    fn decode_fields(mut from: Reader<'_>) -> Result<Self> {
        let uid = StoreUid(from.array("store uid")?);
        let epoch = Epoch(from.u64("epoch")?);
        let at = VersionId::new(Version(from.u64("base version")?), Epoch(from.u64("base epoch")?));
        let base = Mark { at, tip: RunId(from.array("base run id")?) };
        let is_root = at.version == Version::EMPTY;
        let agrees = is_root == (at.epoch == Epoch::NONE) && is_root == (base.tip == RunId::NONE);
        if at.epoch >= epoch || !agrees {
            return Err(from.corrupt("a base of a lower epoch", format!("epoch {epoch} on {base:?}")));
        }
        let claimed_at_ms = from.u64("time")?;
        let partition = from.u32("partition")?;
        let operator = from.short_text("operator")?;
        let name = from.short_text("store name")?;
        let store = StateStoreId::new(operator, partition, name)
            .map_err(|e| from.corrupt("a store's name", format!("{operator:?}, {name:?}")).with_source(e))?;
        let holder = from.short_text("holder")?.to_owned();
        if holder.len() > MAX_HOLDER_BYTES {
            return Err(from.corrupt("a holder of at most 512 bytes", format!("{} bytes", holder.len())));
        }
        from.finish()?;
        Ok(Self { uid, store, epoch, base, holder, claimed_at_ms })
    }
}

/// A fork as a listing found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fork {
    /// A whole record.
    Whole(ForkRecord),
    /// The file is there, so its epoch is taken, but what it says cannot be known. The text says why. An error only
    /// where an answer depends on it.
    Damaged(String),
}

impl Fork {
    /// Reads the file `forks/<epoch>` of `store`. Never fails: what cannot be read is damaged.
    pub(crate) fn read(epoch: Epoch, store: &StateStoreId, bytes: &[u8]) -> Self {
        let file = FileName::Fork(epoch).to_string();
        match ForkRecord::decode(Path::new(&file), bytes) {
            Ok(record) if record.epoch != epoch => Self::Damaged(format!("it claims epoch {}", record.epoch)),
            Ok(record) if record.store != *store => Self::Damaged(format!("it belongs to the store {}", record.store)),
            Ok(record) => Self::Whole(record),
            Err(error) => Self::Damaged(error.to_string()),
        }
    }

    /// The version that the epoch builds on, if that can be known.
    #[cfg(test)]
    pub(crate) fn base(&self) -> Option<VersionId> {
        match self {
            Self::Whole(record) => Some(record.base.at),
            Self::Damaged(_) => None,
        }
    }
}

/// The error of an answer that depends on a damaged fork.
pub(crate) fn damaged(epoch: Epoch, reason: &str) -> Error {
    Error::corrupt(FileName::Fork(epoch).to_string(), 0, "a fork record", reason)
        .context(format!("what epoch {epoch} builds on cannot be known"))
}

/// The longest start of `text` that has at most `limit` bytes and ends between characters.
fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "forks/00000000000000000003";

    fn example() -> ForkRecord {
        let bytes = |first: u8| std::array::from_fn(|place| first + u8::try_from(place).unwrap());
        let base = Mark { at: VersionId::new(Version(7), Epoch(2)), tip: RunId(bytes(0xb0)) };
        ForkRecord {
            uid: StoreUid(bytes(0xa0)),
            store: StateStoreId::new("flights", 5, "state").unwrap(),
            epoch: Epoch(3),
            base,
            holder: "pid 41 on ada".into(),
            claimed_at_ms: 1_357_016_400_000,
        }
    }

    fn decode(bytes: &[u8]) -> Result<ForkRecord> {
        ForkRecord::decode(Path::new(FILE), bytes)
    }

    /// Changes a record's bytes and makes the checksum right again.
    fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = example().encode();
        bytes.truncate(bytes.len() - 4);
        change(&mut bytes);
        let crc = crc32(&bytes);
        bytes.put_u32(crc);
        bytes
    }

    #[test]
    fn the_example_of_the_format_page_is_what_it_says() {
        let page = include_str!("../../docs/formats/fork.md");
        let dump = page.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
        let digits = dump.lines().flat_map(|line| line.split_whitespace().skip(1));
        let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        assert_eq!(decode(&bytes).unwrap(), example());
        assert_eq!(example().encode(), bytes);
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_found() {
        let whole = example().encode();
        for length in 0..whole.len() {
            decode(&whole[..length]).unwrap_err();
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode(&bytes).unwrap_err();
            assert!(matches!(Fork::read(Epoch(3), &example().store, &bytes), Fork::Damaged(_)));
        }
        decode(&[whole, vec![0]].concat()).unwrap_err();
    }

    #[test]
    fn an_unknown_format_is_not_called_damage() {
        let bytes = resealed(|bytes| bytes[8] = 2);
        assert_eq!(*decode(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_whole_file_that_lies_is_damaged() {
        let lies: [fn(&mut Vec<u8>); 7] = [
            |bytes| bytes[28] = 2,            // its own base's epoch
            |bytes| bytes[44] = 0,            // version 7 of nobody
            |bytes| bytes[36] = 0,            // version 0 of somebody
            |bytes| bytes[52..68].fill(0),    // a version without a run
            |bytes| bytes[82] = b'/',         // a name that leaves its directory
            |bytes| bytes.push(0),            // more than there should be
            |bytes| bytes[80..82].fill(0xff), // a length beyond the end
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let error = decode(&resealed(lie)).unwrap_err();
            assert!(error.is_corrupt(), "{number}: {error}");
        }
        let record = example();
        assert!(matches!(Fork::read(Epoch(4), &record.store, &record.encode()), Fork::Damaged(_)));
        let other = StateStoreId::new("flights", 6, "state").unwrap();
        assert!(matches!(Fork::read(Epoch(3), &other, &record.encode()), Fork::Damaged(_)));
    }

    #[test]
    fn the_longest_record_fits_and_its_holder_is_cut_between_characters() {
        let long = "x".repeat(128);
        let store = StateStoreId::new(long.clone(), u32::MAX, long).unwrap();
        let record = ForkRecord { store, holder: format!("x{}", "ü".repeat(1000)), ..example() };
        let bytes = record.encode();
        assert!(bytes.len() as u64 <= MAX_FORK_BYTES);
        assert_eq!(decode(&bytes).unwrap().holder, format!("x{}", "ü".repeat(255)));
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(
            uid: [u8; 16], tip: [u8; 16], epoch in 2u64.., version in 1u64.., claimed_at_ms: u64, partition: u32,
            operator in "[a-z][a-z._-]{0,127}", holder in "\\PC{0,100}",
        ) {
            prop_assume!(tip != [0; 16]);
            let store = StateStoreId::new(operator, partition, "s").unwrap();
            let base = Mark { at: VersionId::new(Version(version), Epoch(epoch - 1)), tip: RunId(tip) };
            let record = ForkRecord { uid: StoreUid(uid), store, epoch: Epoch(epoch), base, holder, claimed_at_ms };
            prop_assert_eq!(decode(&record.encode()).unwrap(), record);
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(noise in prop::collection::vec(any::<u8>(), 0..300), place in 12usize..100) {
            prop_assert!(decode(&noise).is_err());
            let bytes = resealed(|bytes| {
                let place = place.min(bytes.len());
                bytes.splice(place.., noise);
            });
            if let Ok(record) = decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes, "one spelling for each record");
            }
        }
    }
}
