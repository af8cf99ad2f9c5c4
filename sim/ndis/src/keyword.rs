// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registry values of adapters.

use std::collections::BTreeMap;

/// Keywords by name in lower case: the registry is case-insensitive.
pub type Keywords = BTreeMap<String, Keyword>;

/// A registry value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keyword {
    /// A string. The Device Manager stores all settings as strings, numbers included.
    Text(String),
    Number(u32),
    Binary(Vec<u8>),
}

impl From<u32> for Keyword {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Keyword {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
