// SPDX-License-Identifier: MIT OR Apache-2.0

//! The zip file of a package. Its bytes depend on the files and on the time of the commit alone.

use std::io::{Cursor, Read as _, Write as _};

use anyhow::{Context as _, Result, ensure};
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter, write::SimpleFileOptions};

use super::{contents::Contents, source::Source};

/// Files of a package need less; an archive that claims more is not read.
const LARGEST: u64 = 256 << 20;

/// Returns the archive: the files in a folder with the name of the package, in the order of names.
///
/// # Errors
/// A file is too large.
pub fn write(contents: &Contents, source: &Source) -> Result<Vec<u8>> {
    let [year, month, day, hour, minute, second] = source.date;
    let part = |value: u16| u8::try_from(value);
    let time = DateTime::from_date_and_time(
        year,
        part(month)?,
        part(day)?,
        part(hour)?,
        part(minute)?,
        part(second.min(59))?,
    )?;
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(6))
        .last_modified_time(time)
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in &contents.files {
        zip.start_file(format!("{}/{name}", contents.folder), options)?;
        zip.write_all(data)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// Reads an archive: the only folder, and its files.
///
/// # Errors
/// No such archive. A damaged file is named.
pub fn read(data: &[u8]) -> Result<Contents> {
    let mut zip = ZipArchive::new(Cursor::new(data)).context("no zip file")?;
    let mut contents = Contents::default();
    for index in 0..zip.len() {
        let file = zip.by_index(index)?;
        let path = file.name()?.into_owned();
        let (folder, name) = path.split_once('/').with_context(|| format!("{path} is in no folder"))?;
        ensure!(
            (contents.folder.is_empty() || contents.folder == folder) && !name.contains('/'),
            "{path} is in another folder"
        );
        ensure!(file.size() <= LARGEST, "{path} is too large");
        folder.clone_into(&mut contents.folder);
        let mut data = Vec::new();
        // The size is a claim of the archive, too.
        let size = file.size();
        file.take(LARGEST + 1).read_to_end(&mut data).with_context(|| format!("{name} is damaged"))?;
        ensure!(data.len() as u64 == size, "{name} is damaged: it has another size than the archive says");
        contents.files.insert(name.to_owned(), data);
    }
    Ok(contents)
}
