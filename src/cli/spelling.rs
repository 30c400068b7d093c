//! How bytes are spelled, in arguments and in what is shown. What is shown can be typed again.

use std::ffi::OsStr;
use std::fmt::Write;

use clap::ValueEnum;

/// A way to spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Spelling {
    /// Printable characters as they are, everything else as `\xNN`.
    Text,
    /// Two digits a byte.
    Hex,
    /// 4 bytes as a big-endian number.
    U32,
    /// 8 bytes as a big-endian number.
    U64,
}

impl Spelling {
    /// Spells `bytes`.
    pub(super) fn show(self, bytes: &[u8]) -> String {
        match self {
            Self::Text => escaped(bytes),
            Self::Hex => hex(bytes),
            Self::U32 => match bytes.try_into() {
                Ok(bytes) => u32::from_be_bytes(bytes).to_string(),
                Err(_) => format!("0x{}", hex(bytes)),
            },
            Self::U64 => match bytes.try_into() {
                Ok(bytes) => u64::from_be_bytes(bytes).to_string(),
                Err(_) => format!("0x{}", hex(bytes)),
            },
        }
    }

    /// Reads what [`show`](Self::show) gives.
    ///
    /// # Errors
    /// How it should have been spelled.
    pub(super) fn read(self, text: &str) -> Result<Vec<u8>, String> {
        let read = match (self, text.strip_prefix("0x")) {
            (Self::Text, _) => unescaped(text),
            (Self::Hex, _) => unhexed(text),
            (Self::U32 | Self::U64, Some(digits)) => unhexed(digits),
            (Self::U32, None) => text.parse().ok().map(|number: u32| number.to_be_bytes().to_vec()),
            (Self::U64, None) => text.parse().ok().map(|number: u64| number.to_be_bytes().to_vec()),
        };
        let how = match self {
            Self::Text => "text; a backslash is \\\\, a byte is \\xNN",
            Self::Hex => "two hexadecimal digits a byte",
            Self::U32 => "a number of 32 bits, or 0x and hexadecimal digits",
            Self::U64 => "a number of 64 bits, or 0x and hexadecimal digits",
        };
        read.ok_or_else(|| format!("{:?} is not spelled as {how}", escaped(text.as_bytes())))
    }
}

/// Printable text as it is; backslashes and everything that a terminal might act on, escaped.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if is_printable(c) => text.push(c),
                c => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// A text of ours with what came from outside in it, made fit for a terminal: line ends stay.
pub(super) fn harmless(text: &str) -> String {
    let lines: Vec<String> = // an error's
        text.split('\n').map(|line| escaped(line.as_bytes()).replace("\\\\", "\\")).collect();
    lines.join("\n")
}

/// A path or a name as one word of a shell, for what is shown to be copied. Controls, and bytes that are no text, stay escaped.
pub(super) fn quoted(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_encoded_bytes();
    // What starts with a hyphen would be taken for an option. Names of stores never do.
    let start = if bytes.starts_with(b"-") { "./" } else { "" };
    let shown = escaped(bytes);
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+,".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => format!("{start}{text}"),
        Ok(text) if shown.replace("\\\\", "\\") == text => format!("'{start}{}'", text.replace('\'', "'\\''")),
        _ => format!("$'{start}{}'", shown.replace('\'', "\\'")),
    }
}

fn is_printable(c: char) -> bool {
    // The standard library escapes what is not printable: controls, marks that change the direction, what combines with others.
    matches!(c, '"' | '\'') || c.escape_debug().nth(1).is_none()
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        _ = write!(text, "\\x{byte:02x}"); // into memory
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let mut chars = after.chars();
        bytes.push(match chars.next()? {
            '\\' => b'\\',
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'x' => {
                let byte = unhexed(after.get(1..3)?)?;
                chars = after.get(3..)?.chars();
                *byte.first()?
            }
            _ => return None,
        });
        rest = chars.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        _ = write!(text, "{byte:02x}"); // into memory
    }
    text
}

fn unhexed(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed_again() {
        let samples: [&[u8]; 9] = [
            b"",
            b"plain text",
            b"tab\tline\nback\\slash",
            b"\0\x01\xff\xfe",
            "Grüße, 漢字".as_bytes(),
            b"\xc3\x28 broken",
            &[0, 0, 0, 7],
            &[0, 0, 0, 0, 0, 0, 1, 0],
            b"\\x41",
        ];
        for sample in samples {
            for spelling in Spelling::value_variants() {
                let shown = spelling.show(sample);
                assert_eq!(spelling.read(&shown).unwrap(), sample, "{spelling:?} {shown:?}");
            }
        }
        assert_eq!(Spelling::U32.show(&[0, 0, 0, 7]), "7");
        assert_eq!(Spelling::U64.show(&[0, 0, 0, 7]), "0x00000007");
        assert_eq!(Spelling::Text.show("Grüße".as_bytes()), "Grüße");
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_shown_as_it_is() {
        let controls = (0..0x20).chain(0x7f..0xa0).chain([0x200b, 0x200e, 0x202e, 0x2028, 0x2066, 0xfeff, 0xad]);
        for c in controls.filter_map(char::from_u32) {
            let shown = escaped(format!("a{c}b").as_bytes());
            assert!(shown.is_ascii() && !shown.contains(c), "{shown:?}");
        }
        assert_eq!(harmless("a\x1b[2J\\b\nc"), "a\\x1b[2J\\b\nc");
    }

    #[test]
    fn a_word_for_a_shell_is_quoted_where_it_must_be() {
        for (word, expected) in [
            ("/data/check-point_1.2", "/data/check-point_1.2"),
            ("Grüße", "Grüße"),
            ("", "''"),
            ("my data", "'my data'"),
            ("a$b;c", "'a$b;c'"),
            ("it's", "'it'\\''s'"),
            ("back\\slash", "'back\\slash'"),
            ("~", "'~'"),
            ("-x", "./-x"),
            ("-x y", "'./-x y'"),
            ("a\nb\x1b'c\\", "$'a\\nb\\x1b\\'c\\\\'"),
        ] {
            assert_eq!(quoted(word), expected, "{word:?}");
        }
        #[cfg(unix)]
        assert_eq!(quoted(std::os::unix::ffi::OsStrExt::from_bytes(b"a\xff") as &OsStr), "$'a\\xff'");
    }

    #[test]
    fn what_is_misspelled_is_refused() {
        for (spelling, bad) in [
            (Spelling::Text, "\\"),
            (Spelling::Text, "\\x4"),
            (Spelling::Text, "\\q"),
            (Spelling::Text, "\\xü"),
            (Spelling::Hex, "abc"),
            (Spelling::Hex, "zz"),
            (Spelling::U32, "4294967296"),
            (Spelling::U64, "-1"),
            (Spelling::U64, ""),
            (Spelling::U64, "0x1"),
        ] {
            assert!(spelling.read(bad).is_err_and(|how| how.contains("is not spelled as")), "{spelling:?} {bad:?}");
        }
    }
}
