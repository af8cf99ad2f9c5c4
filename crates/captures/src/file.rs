// SPDX-License-Identifier: MIT OR Apache-2.0

//! Capture files of Ethernet frames: pcap and pcapng.

use std::{
    fmt,
    fs::File,
    io::{BufReader, Read, Seek as _},
    path::{Path, PathBuf},
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError,
    pcap::PcapReader,
    pcapng::{
        Block, PcapNgReader,
        blocks::{enhanced_packet::EnhancedPacketOption, interface_description::InterfaceDescriptionOption},
    },
};

/// A frame of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Timestamp: since 1970, or since another origin that the writer of the file chose.
    pub time: Duration,
    /// Length on the wire in bytes; greater than that of `data` if the capture truncated the frame.
    pub length: usize,
    /// From the Ethernet header on, without frame check sequence.
    pub data: Vec<u8>,
    /// The comment on the frame in a pcapng file.
    pub comment: Option<String>,
}

/// The reason why a capture cannot be read, or not to its end.
#[derive(Debug)]
pub enum Error {
    /// The file does not exist or cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file is neither pcap nor pcapng.
    NotACapture(PathBuf, String),
    /// The file has frames of another link layer than Ethernet.
    NotEthernet(PathBuf, String),
    /// The file ends within a frame, or is invalid, after this number of frames.
    Broken(PathBuf, u64, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::NotACapture(path, why) => {
                write!(f, "{} is neither pcap nor pcapng: {why}", path.display())
            }
            Self::NotEthernet(path, what) => {
                write!(f, "{} has frames of {what}, not of Ethernet", path.display())
            }
            Self::Broken(path, frames, why) => {
                write!(f, "{} cannot be read beyond its first {frames} frames: {why}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Iterator over the frames of a file. Ends after an error.
pub struct Frames {
    path: PathBuf,
    format: Option<Format>,
    read: u64,
}

enum Format {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

/// The first four bytes of a pcapng file, in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Opens a capture.
///
/// # Errors
/// All of [`Error`] except [`Error::Broken`].
pub fn open(path: &Path) -> Result<Frames, Error> {
    let unreadable = |error| Error::Unreadable(path.into(), error);
    let not_a_capture = |error| Error::NotACapture(path.into(), reason(&error));
    let mut file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Error::NotACapture(path.into(), "not a file".into()));
    }
    let mut magic = [0; 4];
    let is_pcapng = file.read_exact(&mut magic).is_ok() && magic == SECTION_HEADER;
    file.rewind().map_err(unreadable)?;
    let file = BufReader::new(file);
    let format = if is_pcapng {
        Format::PcapNg(PcapNgReader::new(file).map_err(not_a_capture)?)
    } else {
        let reader = PcapReader::new(file).map_err(not_a_capture)?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(Error::NotEthernet(path.into(), format!("{link:?}")));
        }
        Format::Pcap(reader)
    };
    Ok(Frames { path: path.into(), format: Some(format), read: 0 })
}

/// Returns all frames of a capture.
///
/// # Errors
/// See [`Error`].
pub fn read(path: &Path) -> Result<Vec<Captured>, Error> {
    open(path)?.collect()
}

impl Iterator for Frames {
    type Item = Result<Captured, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = match self.format.as_mut()? {
            Format::Pcap(reader) => next_of_pcap(reader),
            Format::PcapNg(reader) => next_of_pcapng(reader),
        };
        let result = match found {
            Ok(Some(frame)) => {
                self.read += 1;
                return Some(Ok(frame));
            }
            Ok(None) => None,
            Err(Stop::Broken(why)) => Some(Err(Error::Broken(self.path.clone(), self.read, why))),
            Err(Stop::NotEthernet(what)) => Some(Err(Error::NotEthernet(self.path.clone(), what))),
        };
        self.format = None;
        result
    }
}

enum Stop {
    Broken(String),
    NotEthernet(String),
}

impl From<PcapError> for Stop {
    fn from(error: PcapError) -> Self {
        Self::Broken(reason(&error))
    }
}

/// Returns the reason that the pcap library gives, in words.
fn reason(error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => "the file is truncated".into(),
        PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file is truncated".into()
        }
        PcapError::IoError(error) => error.to_string(),
        PcapError::InvalidField(what) => (*what).into(),
        other => other.to_string(),
    }
}

fn next_of_pcap(reader: &mut PcapReader<BufReader<File>>) -> Result<Option<Captured>, Stop> {
    let Some(packet) = reader.next_packet().transpose()? else { return Ok(None) };
    Ok(Some(Captured {
        time: packet.timestamp,
        length: packet.orig_len as usize,
        data: packet.data.into_owned(),
        comment: None,
    }))
}

fn next_of_pcapng(reader: &mut PcapNgReader<BufReader<File>>) -> Result<Option<Captured>, Stop> {
    loop {
        let Some(block) = reader.next_block().transpose()? else { return Ok(None) };
        let Block::EnhancedPacket(packet) = block.into_owned() else { continue };
        let interface = reader.packet_interface(&packet);
        let interface =
            interface.ok_or_else(|| Stop::Broken("a frame has no interface description".into()))?;
        if interface.linktype != DataLink::ETHERNET {
            return Err(Stop::NotEthernet(format!("{:?}", interface.linktype)));
        }
        let resolution = interface.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
            _ => None,
        });
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        // The library treats every unit as a nanosecond.
        let units = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        return Ok(Some(Captured {
            time: time(units, resolution.unwrap_or(MICROSECONDS)),
            length: packet.original_len as usize,
            data: packet.data.into_owned(),
            comment,
        }));
    }
}

/// The default of `if_tsresol`.
const MICROSECONDS: u8 = 6;

/// Converts `units` by an interface's `if_tsresol`: a power of ten, or of two if the highest bit is set.
fn time(units: u64, resolution: u8) -> Duration {
    let exponent = u32::from(resolution & 0x7F);
    let per_second = match resolution & 0x80 {
        0 => 10u128.checked_pow(exponent),
        _ => 1u128.checked_shl(exponent),
    };
    let nanos = per_second.map_or(0, |per_second| u128::from(units) * 1_000_000_000 / per_second);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_use_the_resolution_of_the_interface() {
        assert_eq!(time(1_500_000, MICROSECONDS), Duration::from_millis(1500));
        assert_eq!(time(1_500, 9), Duration::from_nanos(1500));
        assert_eq!(time(3 << 19, 0x94), Duration::from_millis(1500));
        assert_eq!(time(u64::MAX, 0x7F), Duration::ZERO);
    }
}
