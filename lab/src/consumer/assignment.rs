// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values of names on the command line.

use std::str::FromStr;

/// `NAME=VALUE`.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub name: String,
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self { name: name.into(), value: value.into() }),
            _ => Err("it is not of the form NAME=VALUE".to_owned()),
        }
    }
}
