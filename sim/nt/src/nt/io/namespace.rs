// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of devices and symbolic links, as in the object manager's namespace.
//!
//! Names are compared without regard to case. `\DosDevices` and `\??` are other names of `\GLOBAL??`, the directory
//! of what programs can open.

use std::collections::BTreeMap;

use ndk_abi::nt::{
    STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_INVALID, STATUS_OBJECT_NAME_NOT_FOUND,
    STATUS_OBJECT_PATH_NOT_FOUND, STATUS_OBJECT_PATH_SYNTAX_BAD, STATUS_OBJECT_TYPE_MISMATCH,
};
use parking_lot::Mutex;

use crate::services::Slot;

pub(crate) static NAMESPACE: Slot<Mutex<Namespace>> = Slot::new();

/// Directories in which objects can be created.
const DIRECTORIES: [&str; 3] = [r"\device", r"\global??", r"\driver"];

/// Number of links that one name may go through.
const LONGEST_CHAIN: usize = 32;

/// A named object.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Object {
    /// Address of its `DEVICE_OBJECT`.
    Device(usize),
    Link {
        target: String,
        id: usize,
    },
}

/// The names of a host.
#[derive(Default)]
pub struct Namespace {
    /// By name, in lower case.
    objects: BTreeMap<String, Object>,
    links: usize,
}

/// Where a name leads to.
#[derive(PartialEq, Eq, Debug)]
pub struct Found {
    /// Address of the `DEVICE_OBJECT`.
    pub device: usize,
    /// The part of the name behind the device's: empty, or a path that starts with a backslash.
    pub rest: String,
}

/// Returns the absolute name in lower case, with one name for each directory.
///
/// # Errors
/// `STATUS_OBJECT_PATH_SYNTAX_BAD` when it does not start with a backslash, `STATUS_OBJECT_NAME_INVALID` when a
/// component is empty.
fn canonical(name: &str) -> Result<String, i32> {
    let lower = name.to_lowercase();
    if !lower.starts_with('\\') {
        return Err(STATUS_OBJECT_PATH_SYNTAX_BAD);
    }
    if lower.ends_with('\\') || lower.contains(r"\\") {
        return Err(STATUS_OBJECT_NAME_INVALID);
    }
    Ok(with_directory(lower))
}

fn with_directory(lower: String) -> String {
    for alias in [r"\dosdevices\", r"\??\"] {
        if let Some(rest) = lower.strip_prefix(alias) {
            return format!(r"\global??\{rest}");
        }
    }
    lower
}

impl Namespace {
    fn insert(&mut self, name: &str, object: Object) -> Result<(), i32> {
        let name = canonical(name)?;
        let directory = name.rsplit_once('\\').map_or("", |(directory, _)| directory);
        if !DIRECTORIES.contains(&directory) {
            return Err(STATUS_OBJECT_PATH_NOT_FOUND);
        }
        if self.objects.contains_key(&name) {
            return Err(STATUS_OBJECT_NAME_COLLISION);
        }
        self.objects.insert(name, object);
        Ok(())
    }

    /// Names a device.
    ///
    /// # Errors
    /// The status of `IoCreateDevice`.
    pub fn insert_device(&mut self, name: &str, device: usize) -> Result<(), i32> {
        self.insert(name, Object::Device(device))
    }

    /// Removes the name of a device.
    pub fn remove_device(&mut self, device: usize) {
        self.objects.retain(|_, object| *object != Object::Device(device));
    }

    /// Makes a symbolic link, whose target need not exist; returns its number.
    ///
    /// # Errors
    /// The status of `IoCreateSymbolicLink`.
    pub fn insert_link(&mut self, name: &str, target: &str) -> Result<usize, i32> {
        let id = self.links + 1;
        self.insert(name, Object::Link { target: target.to_owned(), id })?;
        self.links = id;
        Ok(id)
    }

    /// Removes a symbolic link; returns its number.
    ///
    /// # Errors
    /// The status of `IoDeleteSymbolicLink`.
    pub fn remove_link(&mut self, name: &str) -> Result<usize, i32> {
        let name = canonical(name)?;
        match self.objects.get(&name) {
            Some(&Object::Link { id, .. }) => {
                self.objects.remove(&name);
                Ok(id)
            }
            Some(Object::Device(_)) => Err(STATUS_OBJECT_TYPE_MISMATCH),
            None => Err(STATUS_OBJECT_NAME_NOT_FOUND),
        }
    }

    /// Finds the device that a name leads to. The name may continue behind the device's. `\\.\X` is `\??\X`, as for
    /// programs.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` when the last component does not exist, `STATUS_OBJECT_PATH_NOT_FOUND` when
    /// another one does not, or the errors of a malformed name.
    pub fn find(&self, name: &str) -> Result<Found, i32> {
        let mut name = match name.strip_prefix(r"\\.\") {
            Some(rest) => format!(r"\??\{rest}"),
            None => name.to_owned(),
        };
        if !name.starts_with('\\') {
            return Err(STATUS_OBJECT_PATH_SYNTAX_BAD);
        }
        for _ in 0..LONGEST_CHAIN {
            // The rest keeps its case, as the driver sees it.
            let folded = with_directory(name.to_lowercase());
            let tail = |length: usize| name[name.len() - (folded.len() - length)..].to_owned();
            let ends = folded.match_indices('\\').map(|(index, _)| index).skip(2);
            let known = ends
                .chain([folded.len()])
                .find_map(|end| Some((self.objects.get(&folded[..end])?, tail(end))));
            match known {
                Some((&Object::Device(device), rest)) => return Ok(Found { device, rest }),
                Some((Object::Link { target, .. }, rest)) => name = format!("{target}{rest}"),
                None if folded.matches('\\').count() > 2 => return Err(STATUS_OBJECT_PATH_NOT_FOUND),
                None => return Err(STATUS_OBJECT_NAME_NOT_FOUND),
            }
        }
        Err(STATUS_OBJECT_NAME_NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Namespace {
        let mut names = Namespace::default();
        names.insert_device(r"\Device\Ping", 1).unwrap();
        names.insert_link(r"\DosDevices\Ping", r"\Device\Ping").unwrap();
        names
    }

    #[test]
    fn a_device_is_found_by_its_name_and_through_its_link() {
        let names = example();
        let ping = || Ok(Found { device: 1, rest: String::new() });
        for name in [r"\Device\Ping", r"\device\PING", r"\DosDevices\Ping", r"\??\ping", r"\\.\Ping"] {
            assert_eq!(names.find(name), ping(), "{name}");
        }
        let deeper = Ok(Found { device: 1, rest: r"\A\b".to_owned() });
        assert_eq!(names.find(r"\??\Ping\A\b"), deeper);
    }

    #[test]
    fn names_that_lead_nowhere_have_the_object_managers_answers() {
        let mut names = example();
        assert_eq!(names.find(r"\Device\Pong"), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(names.find(r"\Device\Pong\x"), Err(STATUS_OBJECT_PATH_NOT_FOUND));
        assert_eq!(names.find("Ping"), Err(STATUS_OBJECT_PATH_SYNTAX_BAD));
        assert_eq!(names.insert_device(r"\Device\PING", 2), Err(STATUS_OBJECT_NAME_COLLISION));
        assert_eq!(names.insert_device(r"\Nowhere\Ping", 2), Err(STATUS_OBJECT_PATH_NOT_FOUND));
        assert_eq!(names.insert_device("Ping", 2), Err(STATUS_OBJECT_PATH_SYNTAX_BAD));
        assert_eq!(names.insert_link(r"\??\ping", "x"), Err(STATUS_OBJECT_NAME_COLLISION));
        assert_eq!(names.remove_link(r"\Device\Ping"), Err(STATUS_OBJECT_TYPE_MISMATCH));
        assert_eq!(names.remove_link(r"\??\Pong"), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        names.insert_link(r"\??\a", r"\??\b").unwrap();
        names.insert_link(r"\??\b", r"\??\a").unwrap();
        assert_eq!(names.find(r"\??\a"), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        names.remove_device(1);
        assert_eq!(names.find(r"\??\Ping"), Err(STATUS_OBJECT_NAME_NOT_FOUND));
    }
}
