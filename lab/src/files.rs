// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that a command writes: checked before anything is opened, and opened before any work is done.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::exit::Exit;

/// Symbolic links that a path may consist of; Linux follows no more either.
const LINKS: usize = 40;

/// A file on the command line, and the option that names it.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    pub option: &'static str,
    pub path: &'a Path,
}

/// Refuses outputs that cannot be written, that are one of `inputs`, or that are the same file as another output.
/// Spellings of a path, symbolic links and hard links make no difference. Opens and changes no file.
///
/// # Errors
/// With exit code 2, if an output is refused.
pub fn check_outputs(inputs: &[Named<'_>], outputs: &[Named<'_>]) -> Result<()> {
    let unwritable =
        |path: &Path, reason: &str| Exit::usage(format!("cannot write {}: {reason}", path.display()));
    let mut known: Vec<(Identity, &Named<'_>)> = Vec::new();
    for input in inputs {
        known.extend(Identity::of(input.path).ok().map(|identity| (identity, input)));
    }
    for output in outputs {
        let path = output.path;
        if path.is_dir() {
            return Err(unwritable(path, "it is a directory"));
        }
        let identity = Identity::of(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unwritable(path, "no such directory"),
            _ => unwritable(path, &error.to_string()),
        })?;
        if let Some((_, other)) = known.iter().find(|(known, _)| *known == identity) {
            return Err(Exit::usage(format!(
                "{} and {} are the same file: {}",
                other.option,
                output.option,
                path.display()
            )));
        }
        known.push((identity, output));
    }
    Ok(())
}

/// Equal for two paths exactly if they lead to the same file, or would create the same file.
#[derive(PartialEq, Eq, Debug)]
enum Identity {
    #[cfg(unix)]
    Inode { device: u64, inode: u64 },
    #[cfg(not(unix))]
    Path(PathBuf),
    /// Of a file that does not exist yet.
    Missing { directory: PathBuf, name: OsString },
}

impl Identity {
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        let mut seen = HashSet::new();
        for _ in 0..LINKS {
            match fs::metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(metadata) => return Self::of_existing(&path, &metadata),
            }
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = fs::canonicalize(parent.unwrap_or(Path::new(".")))?;
            // A symbolic link whose target does not exist: writing creates the target.
            match fs::read_link(&path) {
                Ok(target) if seen.insert(target.clone()) => path = directory.join(target),
                _ => {
                    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
                    return Ok(Self::Missing { directory, name });
                }
            }
        }
        Err(io::Error::other("too many symbolic links"))
    }

    #[cfg(unix)]
    #[allow(clippy::unnecessary_wraps, reason = "elsewhere it can fail")]
    fn of_existing(_path: &Path, metadata: &fs::Metadata) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(Self::Inode { device: metadata.dev(), inode: metadata.ino() })
    }

    #[cfg(not(unix))]
    fn of_existing(path: &Path, _metadata: &fs::Metadata) -> io::Result<Self> {
        fs::canonicalize(path).map(Self::Path)
    }
}

/// A file that is opened before the work whose result it takes, so that an unwritable path is found at the start.
///
/// Its old content stays until [`Output::write`]. A file that was created is removed again if nothing is written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    is_new: bool,
    is_kept: bool,
}

impl Output {
    /// Opens `path` for writing, and creates the file if there is none.
    ///
    /// # Errors
    /// With exit code 2, if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| Exit::usage(format!("cannot write {}: {error}", path.display())))?;
        // The working directory may change before the file is written.
        let path = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
        Ok(Self { path, file, is_new, is_kept: false })
    }

    /// Returns the absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file's content.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(mut self, content: &[u8]) -> Result<()> {
        self.is_kept = true;
        let write = |file: &mut File| {
            // Devices and pipes have no length to set.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(content)
        };
        write(&mut self.file).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Keeps what another writer has written to the path.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new && !self.is_kept {
            drop(fs::remove_file(&self.path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_the_same_if_their_directory_and_name_are() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        let [plain, dotted] = ["a", "./a"].map(|name| Identity::of(&directory.join(name)).unwrap());
        assert_eq!(plain, dotted);
        assert_ne!(plain, Identity::of(&directory.join("b")).unwrap());
        assert!(Identity::of(&directory.join("no/a")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_missing_file_is_the_file_it_would_create() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        std::os::unix::fs::symlink("target", directory.join("link")).unwrap();
        let [link, target] = ["link", "target"].map(|name| Identity::of(&directory.join(name)).unwrap());
        assert_eq!(link, target);
        std::os::unix::fs::symlink("loop", directory.join("loop")).unwrap();
        assert!(Identity::of(&directory.join("loop")).is_err());
    }

    #[test]
    fn an_output_without_content_leaves_no_file_and_keeps_an_old_one() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        let (new, old) = (directory.join("new"), directory.join("old"));
        fs::write(&old, "content").unwrap();
        drop((Output::open(&new).unwrap(), Output::open(&old).unwrap()));
        assert!(!new.exists());
        assert_eq!(fs::read(&old).unwrap(), b"content");
        Output::open(&old).unwrap().write(b"new").unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"new");
    }
}
