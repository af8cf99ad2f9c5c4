// SPDX-License-Identifier: MIT OR Apache-2.0

//! The file tree of a host: one volume, `C:`, in memory, with the answers of NTFS.

use std::collections::{BTreeMap, BTreeSet};

use ndk_abi::nt::{
    DELETE, FILE_APPEND_DATA, FILE_CREATE, FILE_CREATED, FILE_OPEN, FILE_OPEN_IF, FILE_OPENED,
    FILE_OVERWRITE, FILE_OVERWRITE_IF, FILE_OVERWRITTEN, FILE_READ_DATA, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE, FILE_SUPERSEDE, FILE_SUPERSEDED, FILE_WRITE_DATA, GENERIC_ALL, GENERIC_READ,
    GENERIC_WRITE, STATUS_DELETE_PENDING, STATUS_FILE_IS_A_DIRECTORY, STATUS_INVALID_PARAMETER,
    STATUS_NOT_A_DIRECTORY, STATUS_OBJECT_NAME_COLLISION, STATUS_OBJECT_NAME_INVALID,
    STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_PATH_NOT_FOUND, STATUS_OBJECT_PATH_SYNTAX_BAD,
    STATUS_SHARING_VIOLATION,
};
use parking_lot::Mutex;

use crate::{Host, services::Slot};

pub(super) static FILES: Slot<Files> = Slot::new();

/// Directories that every host has.
const DIRECTORIES: [&str; 6] = [
    r"c:",
    r"c:\windows",
    r"c:\windows\system32",
    r"c:\windows\system32\drivers",
    r"c:\windows\temp",
    r"c:\temp",
];

/// Access and sharing of one open.
#[derive(Clone, Copy, Debug)]
struct Sharing {
    number: u64,
    /// `FILE_SHARE_*` that it needs of others.
    access: u32,
    /// `FILE_SHARE_*` that it grants to others.
    share: u32,
}

#[derive(Default)]
struct Entry {
    name: String,
    data: Vec<u8>,
    opens: Vec<Sharing>,
    delete_pending: bool,
}

#[derive(Default)]
struct Tree {
    /// By path in lower case.
    files: BTreeMap<String, Entry>,
    directories: BTreeSet<String>,
    opens: u64,
}

/// The files of a host.
pub struct Files(Mutex<Tree>);

impl Default for Files {
    fn default() -> Self {
        let directories = DIRECTORIES.map(str::to_owned).into();
        Self(Mutex::new(Tree { directories, ..Tree::default() }))
    }
}

/// The access and options of an open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub access: u32,
    pub share: u32,
    /// `FILE_SUPERSEDE` to `FILE_OVERWRITE_IF`.
    pub disposition: u32,
    /// A directory is wanted.
    pub directory: bool,
    /// No directory is wanted.
    pub no_directory: bool,
}

/// An open file, or an open directory.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub path: String,
    pub number: u64,
    pub directory: bool,
    /// `FILE_OPENED`, `FILE_CREATED` and so on.
    pub outcome: usize,
}

/// Returns the path below the volume in lower case: `c:\a`.
fn canonical(name: &str) -> Result<String, i32> {
    let lower = name.to_lowercase();
    let path = if let Some(rest) = lower.strip_prefix(r"\systemroot") {
        format!(r"c:\windows{rest}")
    } else {
        let prefixes = [r"\dosdevices\", r"\??\", r"\global??\"];
        match prefixes.iter().find_map(|prefix| lower.strip_prefix(prefix)) {
            Some(rest) => rest.to_owned(),
            None if lower.starts_with('\\') => return Err(STATUS_OBJECT_PATH_NOT_FOUND),
            None => return Err(STATUS_OBJECT_PATH_SYNTAX_BAD),
        }
    };
    valid(&path)
}

fn valid(path: &str) -> Result<String, i32> {
    let path = path.strip_suffix('\\').unwrap_or(path);
    if !(path == "c:" || path.starts_with(r"c:\")) {
        return Err(STATUS_OBJECT_PATH_NOT_FOUND);
    }
    let bad = |character: char| character < ' ' || "*?<>|\":/".contains(character);
    if path[2..].contains(bad) || path.contains(r"\\") {
        return Err(STATUS_OBJECT_NAME_INVALID);
    }
    Ok(path.to_owned())
}

/// Returns the `FILE_SHARE_*` that an access needs of the other opens.
fn needs(access: u32) -> u32 {
    let bit = |rights: u32, share: u32| if access & (rights | GENERIC_ALL) != 0 { share } else { 0 };
    bit(FILE_READ_DATA | GENERIC_READ, FILE_SHARE_READ)
        | bit(FILE_WRITE_DATA | FILE_APPEND_DATA | GENERIC_WRITE, FILE_SHARE_WRITE)
        | bit(DELETE, FILE_SHARE_DELETE)
}

impl Tree {
    fn open(&mut self, path: String, name: &str, open: Open) -> Result<Opened, i32> {
        if self.directories.contains(&path) {
            return match open.disposition {
                _ if open.no_directory => Err(STATUS_FILE_IS_A_DIRECTORY),
                FILE_OPEN | FILE_OPEN_IF => {
                    Ok(Opened { path, number: 0, directory: true, outcome: FILE_OPENED })
                }
                FILE_CREATE => Err(STATUS_OBJECT_NAME_COLLISION),
                _ => Err(STATUS_INVALID_PARAMETER),
            };
        }
        let parent = path.rsplit_once('\\').map_or("", |(parent, _)| parent);
        if !self.directories.contains(parent) {
            return Err(STATUS_OBJECT_PATH_NOT_FOUND);
        }
        let exists = self.files.contains_key(&path);
        let outcome = match (open.disposition, exists) {
            (FILE_OPEN | FILE_OPEN_IF, true) => FILE_OPENED,
            (FILE_OVERWRITE | FILE_OVERWRITE_IF, true) => FILE_OVERWRITTEN,
            (FILE_SUPERSEDE, true) => FILE_SUPERSEDED,
            (FILE_CREATE, true) => return Err(STATUS_OBJECT_NAME_COLLISION),
            (FILE_OPEN | FILE_OVERWRITE, false) => return Err(STATUS_OBJECT_NAME_NOT_FOUND),
            (FILE_CREATE | FILE_OPEN_IF | FILE_OVERWRITE_IF | FILE_SUPERSEDE, false) => FILE_CREATED,
            _ => return Err(STATUS_INVALID_PARAMETER),
        };
        if open.directory {
            if exists {
                return Err(STATUS_NOT_A_DIRECTORY);
            }
            self.directories.insert(path.clone());
            return Ok(Opened { path, number: 0, directory: true, outcome });
        }
        let number = self.opens + 1;
        let sharing = Sharing { number, access: needs(open.access), share: open.share };
        let entry = self.files.entry(path.clone()).or_default();
        if entry.delete_pending {
            return Err(STATUS_DELETE_PENDING);
        }
        let clashes =
            |other: &Sharing| sharing.access & !other.share != 0 || other.access & !sharing.share != 0;
        if entry.opens.iter().any(clashes) {
            return Err(STATUS_SHARING_VIOLATION);
        }
        self.opens = number;
        if outcome == FILE_CREATED {
            name.rsplit('\\').next().unwrap_or_default().clone_into(&mut entry.name);
        } else if outcome != FILE_OPENED {
            entry.data.clear();
        }
        entry.opens.push(sharing);
        Ok(Opened { path, number, directory: false, outcome })
    }
}

impl Files {
    /// Opens a file by its name in the object manager's namespace.
    pub(super) fn open(&self, name: &str, open: Open) -> Result<Opened, i32> {
        let path = canonical(name)?;
        self.0.lock().open(path, name, open)
    }

    /// Closes a file; removes it if it is to be deleted and not open.
    pub(super) fn close(&self, opened: &Opened) {
        let mut tree = self.0.lock();
        let Some(entry) = tree.files.get_mut(&opened.path) else { return };
        entry.opens.retain(|open| open.number != opened.number);
        if entry.delete_pending && entry.opens.is_empty() {
            tree.files.remove(&opened.path);
        }
    }

    /// Calls `access` with the contents of an open file.
    pub(super) fn with_data<T>(&self, opened: &Opened, access: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
        self.0.lock().files.get_mut(&opened.path).map(|entry| access(&mut entry.data))
    }

    /// Lets an open file be deleted when it is closed, or not.
    pub(super) fn set_delete_pending(&self, opened: &Opened, pending: bool) {
        if let Some(entry) = self.0.lock().files.get_mut(&opened.path) {
            entry.delete_pending = pending;
        }
    }

    /// Returns the contents of a file such as `C:\Temp\a.log`; `None` when there is no such file.
    #[must_use]
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.0.lock().files.get(&path.to_lowercase()).map(|entry| entry.data.clone())
    }

    /// Makes a file with these contents, or replaces it, and the directories above it. Opens are not regarded.
    ///
    /// # Errors
    /// The status of a malformed path.
    pub fn write(&self, path: &str, data: &[u8]) -> Result<(), i32> {
        let key = valid(&path.to_lowercase())?;
        let mut tree = self.0.lock();
        let parents = key.match_indices('\\').map(|(end, _)| key[..end].to_owned());
        tree.directories.extend(parents);
        let entry = tree.files.entry(key).or_default();
        path.rsplit('\\').next().unwrap_or_default().clone_into(&mut entry.name);
        data.clone_into(&mut entry.data);
        Ok(())
    }

    /// Removes a file; returns `false` when there is none, or when it is open.
    pub fn remove(&self, path: &str) -> bool {
        let key = path.to_lowercase();
        let mut tree = self.0.lock();
        let closed = tree.files.get(&key).is_some_and(|entry| entry.opens.is_empty());
        closed && tree.files.remove(&key).is_some()
    }

    /// Returns the paths of all files, in lower case except for the file's name.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let tree = self.0.lock();
        let path = |(key, entry): (&String, &Entry)| {
            key.rsplit_once('\\')
                .map_or_else(|| key.clone(), |(parent, _)| format!(r"{parent}\{}", entry.name))
        };
        tree.files.iter().map(path).collect()
    }
}

impl Host {
    /// Returns the files of the host, which drivers and the harness share.
    #[must_use]
    pub fn files(&self) -> &Files {
        self.state(&FILES)
    }
}
