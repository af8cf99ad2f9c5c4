// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tables of a script as TOML has them. What their values mean is checked elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub drivers: Vec<String>,
    pub timeout: Option<String>,
    #[serde(default)]
    pub set: BTreeMap<String, Value>,
    #[serde(default)]
    pub thread: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    pub name: String,
    pub on: String,
    #[serde(default)]
    pub step: Vec<Step>,
}

/// A step. Its first group of members says what it does: exactly one is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub open: Option<String>,
    pub ioctl: Option<u32>,
    pub close: Option<bool>,
    pub cancel: Option<String>,
    pub finish: Option<String>,
    pub wait: Option<String>,
    pub signal: Option<String>,
    pub wait_for: Option<String>,
    pub debug: Option<String>,
    pub file: Option<String>,
    pub write: Option<String>,
    pub remove: Option<String>,
    pub pool: Option<usize>,

    pub handle: Option<String>,
    pub start: Option<String>,
    pub input: Option<Vec<Field>>,
    pub size: Option<usize>,
    pub data: Option<Vec<Field>>,
    pub output: Option<usize>,
    pub status: Option<OneOrMore<u32>>,
    pub length: Option<OneOrMore<usize>>,
    pub expect: Option<Vec<Field>>,
    pub equal: Option<Vec<Equal>>,
    pub repeats: Option<String>,
    pub times: Option<OneOrMore<usize>>,
    pub within: Option<String>,
}

/// A piece of a buffer. Exactly one member besides `at` and `length` is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    pub at: Option<usize>,
    pub u8: Option<Value>,
    pub u16: Option<Value>,
    pub u32: Option<Value>,
    pub u64: Option<Value>,
    pub sockaddr: Option<String>,
    pub sockaddr_inet: Option<String>,
    pub utf16: Option<String>,
    pub text: Option<String>,
    pub hex: Option<String>,
    pub file: Option<String>,
    pub zeros: Option<usize>,
    /// First byte of a sequence that counts up modulo 256; needs `length`.
    pub ramp: Option<u8>,
    /// A byte that is repeated; needs `length`.
    pub fill: Option<u8>,
    pub length: Option<usize>,
}

/// Two ranges of an output that must be equal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equal {
    pub at: usize,
    pub to: usize,
    pub length: usize,
}

/// A number, or a text with variables that is one when the step runs.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Number(i64),
    Text(String),
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub fn list(self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value],
            Self::More(values) => values,
        }
    }
}
