//! Any text as a name: nothing panics, and what is accepted reads back the same.
#![no_main]

use alluvium::catalog::RunName;
use alluvium::{Name, StateStoreId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(StateStoreId::new(text, 0, text).is_ok());
        assert!(!text.contains('/') && !text.starts_with('.'));
    }
    if let Some(name) = RunName::parse(text) {
        assert_eq!(name.to_string(), text);
    }
});
