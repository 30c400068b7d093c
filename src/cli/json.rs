//! JSON, written only.

use std::fmt;

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    /// Exact: readers that keep numbers as 64-bit floats lose digits from 2^53 on.
    Number(u64),
    Text(String),
    List(Vec<Json>),
    /// In the order given.
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// An object of these members.
    pub(super) fn object<const N: usize>(members: [(&'static str, Self); N]) -> Self {
        Self::Object(members.into())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Self>> for Json {
    fn from(values: Vec<Self>) -> Self {
        Self::List(values)
    }
}

impl<T: Into<Self>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(truth) => truth.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => string(f, text),
            Self::List(values) => {
                let mut before = "[";
                for value in values {
                    write!(f, "{before}{value}")?;
                    before = ",";
                }
                f.write_str(if values.is_empty() { "[]" } else { "]" })
            }
            Self::Object(members) => {
                let mut before = "{";
                for (name, value) in members {
                    f.write_str(before)?;
                    string(f, name)?;
                    write!(f, ":{value}")?;
                    before = ",";
                }
                f.write_str(if members.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

/// RFC 8259, section 7: quotes, backslashes and controls are escaped.
fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => fmt::Write::write_char(f, c)?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_written_as_the_standard_says() {
        let document = Json::object([
            ("text", "a\"b\\c\n\u{1}\u{7f}ü".into()),
            ("none", Json::from(None::<u64>)),
            ("list", vec![1.into(), u64::MAX.into(), true.into()].into()),
            ("empty", Json::object([])),
            ("nothing", Vec::new().into()),
        ]);
        assert_eq!(
            document.to_string(),
            r#"{"text":"a\"b\\c\n\u0001\u007fü","none":null,"list":[1,18446744073709551615,true],"empty":{},"nothing":[]}"#
        );
    }
}
