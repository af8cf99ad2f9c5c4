// SPDX-License-Identifier: MIT OR Apache-2.0

//! The registry of a host, in memory. Names are compared without regard to case.

use std::collections::BTreeMap;

use ndk_abi::nt::{STATUS_OBJECT_NAME_INVALID, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_SYNTAX_BAD};
use parking_lot::Mutex;

use crate::{Host, services::Slot};

pub(super) static REGISTRY: Slot<Registry> = Slot::new();

/// A value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    pub name: String,
    /// `REG_*`.
    pub kind: u32,
    pub data: Vec<u8>,
}

/// Values of a key, by name in lower case.
type Values = BTreeMap<String, Value>;

/// The registry of a host: its keys, by path in lower case. A key exists when those above it do.
pub struct Registry(Mutex<BTreeMap<String, Values>>);

/// Keys that every host has.
const KEYS: [&str; 15] = [
    r"\registry",
    r"\registry\machine",
    r"\registry\machine\hardware",
    r"\registry\machine\hardware\devicemap",
    r"\registry\machine\software",
    r"\registry\machine\software\microsoft",
    r"\registry\machine\software\microsoft\windows nt",
    r"\registry\machine\software\microsoft\windows nt\currentversion",
    r"\registry\machine\system",
    r"\registry\machine\system\currentcontrolset",
    r"\registry\machine\system\currentcontrolset\control",
    r"\registry\machine\system\currentcontrolset\control\class",
    r"\registry\machine\system\currentcontrolset\services",
    r"\registry\user",
    r"\registry\user\.default",
];

impl Default for Registry {
    fn default() -> Self {
        Self(Mutex::new(KEYS.map(|key| (key.to_owned(), Values::new())).into()))
    }
}

fn canonical(path: &str) -> Result<String, i32> {
    let path = path.to_lowercase();
    let path = path.strip_suffix('\\').unwrap_or(&path);
    if !path.starts_with('\\') {
        return Err(STATUS_OBJECT_PATH_SYNTAX_BAD);
    }
    if path.contains(r"\\") { Err(STATUS_OBJECT_NAME_INVALID) } else { Ok(path.to_owned()) }
}

impl Registry {
    /// Finds a key; returns its path.
    pub(super) fn open(&self, path: &str) -> Result<String, i32> {
        let path = canonical(path)?;
        if self.0.lock().contains_key(&path) { Ok(path) } else { Err(STATUS_OBJECT_NAME_NOT_FOUND) }
    }

    /// Finds or makes a key below one that exists; returns its path, and whether it is new.
    pub(super) fn create(&self, path: &str) -> Result<(String, bool), i32> {
        let path = canonical(path)?;
        let mut keys = self.0.lock();
        if keys.contains_key(&path) {
            return Ok((path, false));
        }
        let parent = path.rsplit_once('\\').map_or("", |(parent, _)| parent);
        if !keys.contains_key(parent) {
            return Err(STATUS_OBJECT_NAME_NOT_FOUND);
        }
        keys.insert(path.clone(), Values::new());
        Ok((path, true))
    }

    /// Returns a value of a key, e.g. of `\Registry\Machine\System\CurrentControlSet\Services\Name\Parameters`.
    #[must_use]
    pub fn value(&self, key: &str, name: &str) -> Option<Value> {
        let key = canonical(key).ok()?;
        self.0.lock().get(&key)?.get(&name.to_lowercase()).cloned()
    }

    /// Returns all values of a key.
    #[must_use]
    pub fn values(&self, key: &str) -> Vec<Value> {
        let Ok(key) = canonical(key) else { return Vec::new() };
        self.0.lock().get(&key).map_or_else(Vec::new, |values| values.values().cloned().collect())
    }

    /// Sets a value of a key, which is made with the keys above it.
    ///
    /// # Errors
    /// The status of a malformed path.
    pub fn set_value(&self, key: &str, name: &str, kind: u32, data: &[u8]) -> Result<(), i32> {
        let key = canonical(key)?;
        let mut keys = self.0.lock();
        for (end, _) in key.match_indices('\\').skip(1) {
            keys.entry(key[..end].to_owned()).or_default();
        }
        let value = Value { name: name.to_owned(), kind, data: data.to_owned() };
        keys.entry(key).or_default().insert(name.to_lowercase(), value);
        Ok(())
    }

    /// Removes a value; returns `false` when there is none.
    pub fn remove_value(&self, key: &str, name: &str) -> bool {
        let Ok(key) = canonical(key) else { return false };
        self.0.lock().get_mut(&key).is_some_and(|values| values.remove(&name.to_lowercase()).is_some())
    }
}

impl Host {
    /// Returns the registry of the host, which drivers and the harness share.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.state(&REGISTRY)
    }
}
