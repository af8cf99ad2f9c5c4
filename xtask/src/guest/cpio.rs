// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes an initial RAM file system: a cpio archive in the "newc" format, which the kernel unpacks.

use std::{collections::BTreeSet, io};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Writes an archive member by member. Adds the parent directories of each member.
pub struct Archive<W> {
    output: W,
    members: u32,
    directories: BTreeSet<String>,
}

impl<W: io::Write> Archive<W> {
    pub fn new(output: W) -> Self {
        Self { output, members: 0, directories: BTreeSet::new() }
    }

    /// Adds a file that is not executable. Paths are relative to the root, without a leading slash.
    pub fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.within(path)?;
        self.member(path, FILE, content)
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.within(path)?;
        self.member(path, PROGRAM, content)
    }

    /// Adds a symbolic link to `target`.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.within(path)?;
        self.member(path, LINK, target.as_bytes())
    }

    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.within(path)?;
        if self.directories.insert(path.to_owned()) {
            self.member(path, DIRECTORY, &[])?;
        }
        Ok(())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.member("TRAILER!!!", 0, &[])?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn within(&mut self, path: &str) -> io::Result<()> {
        match path.rsplit_once('/') {
            Some((directory, _)) => self.directory(directory),
            None => Ok(()),
        }
    }

    /// Writes a header of hexadecimal fields, the name and the content; both are padded to a multiple of four.
    fn member(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::other("a member of the archive is longer than 4 GiB");
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.members += 1;
        write!(self.output, "070701")?;
        // inode, mode, uid, gid, links, time, size, device and special device (two numbers each), name, checksum
        for field in [self.members, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            write!(self.output, "{field:08x}")?;
        }
        self.output.write_all(name.as_bytes())?;
        self.output.write_all(padding_after_name(name.len()))?;
        self.output.write_all(content)?;
        self.output.write_all(&[0; 3][..content.len().next_multiple_of(4) - content.len()])
    }
}

/// Returns the terminator of a name, and the padding of header (110 bytes) and name to a multiple of four.
fn padding_after_name(length: usize) -> &'static [u8] {
    let end = 110 + length + 1;
    &[0; 4][..1 + end.next_multiple_of(4) - end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_aligned_to_four_bytes_and_directories_precede_their_files() {
        let mut archive = Archive::new(Vec::new());
        archive.program("bin/tools/sh", b"12345").expect("memory");
        archive.link("bin/ls", "tools/sh").expect("memory");
        let bytes = archive.finish().expect("memory");
        let starts: Vec<usize> =
            (0..bytes.len()).filter(|&at| at % 4 == 0 && bytes[at..].starts_with(b"070701")).collect();
        let names: Vec<String> = starts
            .iter()
            .map(|&at| {
                let name = &bytes[at + 110..];
                String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
            })
            .collect();
        assert_eq!(names, ["bin", "bin/tools", "bin/tools/sh", "bin/ls", "TRAILER!!!"]);
        assert!(bytes.windows(9).any(|window| window == b"12345\0\0\0\x30"), "content is padded");
    }
}
