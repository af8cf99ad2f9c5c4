// SPDX-License-Identifier: MIT OR Apache-2.0

//! The file of a driver that a user brings: version, dates and hash, so that what is printed of it says which build it is.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context as _, Result};
use object::{
    LittleEndian as LE,
    pe::IMAGE_DIRECTORY_ENTRY_SECURITY,
    read::pe::{ImageNtHeaders as _, PeFile64, ResourceDirectoryEntryData},
};
use sha2::{Digest as _, Sha256};

use crate::exit::Exit;

/// The file of a driver.
#[derive(Debug)]
pub struct DriverFile {
    path: PathBuf,
    /// The file version of its resource.
    version: Option<[u16; 4]>,
    /// The time stamp of its PE header, in seconds since 1970. A linker can write a hash there.
    linked: u32,
    /// The time of its signature. The signature is not verified.
    signed: Option<String>,
    sha256: [u8; 32],
}

impl DriverFile {
    /// Reads the file.
    ///
    /// # Errors
    /// With exit code 2, if it cannot be read, or is no image for x86-64.
    pub fn read(path: &Path) -> Result<Self> {
        let unusable = |reason: String| Exit::usage(format!("{}: {reason}", path.display()));
        let data = fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let pe = PeFile64::parse(&*data).map_err(|error| unusable(format!("no PE image: {error}")))?;
        Ok(Self {
            path: path.to_owned(),
            version: version(&pe, &data).unwrap_or_default(),
            linked: pe.nt_headers().file_header().time_date_stamp.get(LE),
            signed: signature(&pe, &data).and_then(signing_time),
            sha256: Sha256::digest(&data).into(),
        })
    }
}

impl fmt::Display for DriverFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy();
        match self.version {
            Some([major, minor, build, revision]) => {
                write!(f, "{name}: version {major}.{minor}.{build}.{revision}")?;
            }
            None => write!(f, "{name}: no version resource")?,
        }
        match date(self.linked) {
            Some(linked) => write!(f, ", linked {linked}")?,
            None => write!(f, ", time stamp {:#010x}, no date", self.linked)?,
        }
        match &self.signed {
            Some(signed) => write!(f, ", signed {signed}")?,
            None => f.write_str(", no signature with a date")?,
        }
        f.write_str(", SHA-256 ")?;
        self.sha256.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Returns the file version in the resources of an image, if it has one.
fn version(pe: &PeFile64<'_>, data: &[u8]) -> Result<Option<[u16; 4]>> {
    const RT_VERSION: u16 = 16;
    // The file version is behind dwSignature and dwStrucVersion of VS_FIXEDFILEINFO.
    const SIGNATURE: [u8; 4] = 0xfeef_04bd_u32.to_le_bytes();
    let sections = pe.section_table();
    let Some(resources) = pe.data_directories().resource_directory(data, &sections)? else { return Ok(None) };
    let kinds = resources.root()?;
    let mut entry = kinds.entries.iter().find(|entry| entry.name_or_id().id() == Some(RT_VERSION));
    let leaf = loop {
        match entry.context("an empty directory")?.data(resources)? {
            ResourceDirectoryEntryData::Table(table) => entry = table.entries.first(),
            ResourceDirectoryEntryData::Data(leaf) => break leaf,
        }
    };
    let info = sections.pe_data_at(data, leaf.offset_to_data.get(LE)).context("outside of the image")?;
    let at = info.windows(4).position(|bytes| bytes == SIGNATURE).context("no VS_FIXEDFILEINFO")?;
    let words = info.get(at + 8..at + 16).context("VS_FIXEDFILEINFO is cut off")?;
    let word = |number: usize| u16::from_le_bytes([words[2 * number], words[2 * number + 1]]);
    Ok(Some([word(1), word(0), word(3), word(2)]))
}

/// Returns the signatures in the file.
fn signature<'data>(pe: &PeFile64<'data>, data: &'data [u8]) -> Option<&'data [u8]> {
    let entry = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_SECURITY)?;
    let (start, size) = entry.address_range();
    data.get(start as usize..start as usize + size as usize)
}

/// Returns the time in a signature: that of the token of a time-stamping authority (RFC 3161), or the attribute `signingTime` of a signer (RFC 5652).
fn signing_time(signature: &[u8]) -> Option<String> {
    const TOKEN: &[u8] = b"\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01\x04";
    const ATTRIBUTE: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x05";
    // Between the identifier and the time: in the token policy, hash and serial number, in the attribute a tag and a length.
    const BEHIND: [(&[u8], usize); 2] = [(TOKEN, 256), (ATTRIBUTE, 2)];
    BEHIND.into_iter().find_map(|(identifier, distance)| {
        let at = signature.windows(identifier.len()).position(|bytes| bytes == identifier)?;
        let rest = &signature[at + identifier.len()..];
        (0..=distance).find_map(|skipped| der_time(rest.get(skipped..)?))
    })
}

/// Returns the time that begins here in DER: `GeneralizedTime` or `UTCTime`, to the second.
fn der_time(der: &[u8]) -> Option<String> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let [tag, length, rest @ ..] = der else { return None };
    let text = str::from_utf8(rest.get(..usize::from(*length))?).ok()?.strip_suffix('Z')?;
    let (century, digits) = match *tag {
        UTC_TIME if text.len() == 12 => ("20", text),
        GENERALIZED_TIME if text.len() >= 14 && text.is_char_boundary(2) => text.split_at(2),
        _ => return None,
    };
    let digits = digits.get(..12).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let part = |at: usize| &digits[at..at + 2];
    Some(format!("{century}{}-{}-{} {}:{}:{}", part(0), part(2), part(4), part(6), part(8), part(10)))
}

/// Returns a time in seconds since 1970 as a date in UTC, if it is between the year 2000 and now.
fn date(seconds: u32) -> Option<String> {
    const YEAR_2000: u64 = 946_684_800;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |now| now.as_secs());
    let seconds = u64::from(seconds);
    if !(YEAR_2000..=now).contains(&seconds) {
        return None;
    }
    let (mut year, mut days) = (2000, (seconds - YEAR_2000) / 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    Some(format!("{year}-{:02}-{:02} {hour:02}:{minute:02}:{second:02}", month + 1, days + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamp_of_the_header_is_a_date_or_a_hash() {
        assert_eq!(date(1_578_527_788).as_deref(), Some("2020-01-08 23:56:28"));
        assert_eq!(date(951_782_400).as_deref(), Some("2000-02-29 00:00:00"));
        assert_eq!(date(1_735_689_599).as_deref(), Some("2024-12-31 23:59:59"));
        assert_eq!([date(0), date(u32::MAX)], [None, None]);
    }

    #[test]
    fn time_of_a_signature_is_that_of_its_token_or_its_attribute() {
        let token = b"..\x06\x0b\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x01\x04\xa0\x30\x18\x18\x1320230722113946.975Z..";
        assert_eq!(signing_time(token).as_deref(), Some("2023-07-22 11:39:46"));
        let attribute = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x09\x05\x31\x0f\x17\x0d200110083015Z";
        assert_eq!(signing_time(attribute).as_deref(), Some("2020-01-10 08:30:15"));
        for without in [&attribute[..25], b"", b"\x17\x0d200110083015Z"] {
            assert_eq!(signing_time(without), None);
        }
    }

    #[test]
    fn driver_file_says_version_dates_and_hash() {
        let Some(path) = crate::image() else { return };
        let text = DriverFile::read(&path).unwrap().to_string();
        let version = concat!("version ", env!("CARGO_PKG_VERSION"), ".");
        assert!(text.contains(version) && text.contains(", no signature with a date, SHA-256 "), "{text}");
        assert_eq!(text.rsplit_once(' ').unwrap().1.len(), 64, "{text}");
        assert!(DriverFile::read(Path::new("Cargo.toml")).unwrap_err().to_string().contains("no PE image"));
    }
}
