//! Payload compression: the payload's own length in 4 bytes, then what the codec made of it.

use std::path::Path;

use super::format::{MAX_RECORD_BYTES, RecordCodec};
use crate::codec::{Put, Reader};
use crate::error::{Error, ErrorKind, Result};

/// Level 1 of zstd: the log is written at the speed of the input.
const ZSTD_LEVEL: i32 = 1;

/// `raw` compressed, with its length in front; `None` where that would not make it smaller.
pub(super) fn compress(codec: RecordCodec, raw: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::new();
    out.put_u32(u32::try_from(raw.len()).unwrap_or(u32::MAX));
    match codec {
        RecordCodec::None => return Ok(None),
        RecordCodec::Lz4 => out.extend_from_slice(&lz4_flex::block::compress(raw)),
        RecordCodec::Zstd => {
            let compressed = zstd::bulk::compress(raw, ZSTD_LEVEL)
                .map_err(|error| Error::new(ErrorKind::InvalidInput, "zstd refused a record").with_source(error))?;
            out.extend_from_slice(&compressed);
        }
    }
    Ok((out.len() < raw.len()).then_some(out))
}

/// The payload that `stored` was made of.
///
/// # Errors
/// `Corrupt` where it is not what [`compress`] makes. Allocates no more than a record may have.
pub(super) fn expand(codec: RecordCodec, file: &Path, offset: u64, stored: &[u8]) -> Result<Vec<u8>> {
    let mut reader = Reader::new(file, offset, stored);
    let length = reader.u32("payload length")? as usize;
    let compressed = stored.get(4..).unwrap_or_default();
    // LZ4 and zstd both stay below 1:255 and 1:2^20; what claims more is no payload of ours.
    if length > MAX_RECORD_BYTES || length / (1 << 20) > compressed.len() {
        return Err(Error::corrupt(file, offset, format!("at most {MAX_RECORD_BYTES} bytes"), format!("{length}")));
    }
    let wrong = |found: String| Error::corrupt(file, offset, format!("{length} compressed bytes"), found);
    let raw = match codec {
        RecordCodec::None => stored.to_vec(),
        RecordCodec::Lz4 => {
            lz4_flex::block::decompress(compressed, length).map_err(|error| wrong(error.to_string()))?
        }
        RecordCodec::Zstd => zstd::bulk::decompress(compressed, length).map_err(|error| wrong(error.to_string()))?,
    };
    let complete = codec == RecordCodec::None || raw.len() == length;
    if complete { Ok(raw) } else { Err(wrong(format!("{} bytes", raw.len()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_back_and_a_cut_one_is_refused() {
        let raw: Vec<u8> = (0..20_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for codec in [RecordCodec::Lz4, RecordCodec::Zstd] {
            let stored = compress(codec, &raw).unwrap().unwrap();
            assert!(stored.len() < raw.len() / 2);
            assert_eq!(expand(codec, Path::new("f"), 0, &stored).unwrap(), raw);
            for cut in [0, 3, 4, 10, stored.len() - 1] {
                assert!(expand(codec, Path::new("f"), 0, &stored[..cut]).is_err(), "{codec:?} {cut}");
            }
            assert_eq!(compress(codec, b"short").unwrap(), None);
        }
    }
}
