//! Packet captures in pcapng format: what hosts sent, with the time of the simulation.
//!
//! A frame appears once, on the interface of the host that sent it, as it was sent. A frame that a
//! fault met on the wire carries a comment that says so.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};

use crate::wire::Fate;

/// Timestamps count units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Longest frame captured, in bytes.
const SNAP_LENGTH: u32 = 0x4_0000;
/// `epb_flags`: the frame left the interface.
const OUTBOUND: u32 = 2;

/// What became of a captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    None,
    Lost,
    Duplicated,
    Corrupted,
    Delayed,
}

impl Note {
    fn comment(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Lost => Some("lost on the wire"),
            Self::Duplicated => Some("duplicated on the wire"),
            Self::Corrupted => Some("corrupted on the wire"),
            Self::Delayed => Some("delayed on the wire"),
        }
    }
}

impl From<&Fate> for Note {
    fn from(fate: &Fate) -> Self {
        match fate {
            Fate::Delivered => Self::None,
            Fate::Lost => Self::Lost,
            Fate::Duplicated { .. } => Self::Duplicated,
            Fate::Corrupted { .. } => Self::Corrupted,
            Fate::Delayed { .. } => Self::Delayed,
        }
    }
}

/// Which frames a capture holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lost {
    /// All that were sent; lost ones with a comment.
    #[default]
    Marked,
    /// Only those that reached the other end.
    Omitted,
}

/// A capture being written. Clones write to the same file; it is complete after [`Capture::finish`].
#[derive(Clone)]
pub struct Capture {
    file: Arc<Mutex<Written>>,
    lost: Lost,
}

struct Written {
    writer: PcapNgWriter<Box<dyn Write + Send>>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
    frames: u64,
}

impl Capture {
    /// Starts a capture file with one Ethernet interface per name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path, interfaces: &[&str], lost: Lost) -> io::Result<Self> {
        Self::new(BufWriter::with_capacity(1 << 20, File::create(path)?), interfaces, lost)
    }

    /// Starts a capture in any writer.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(output: impl Write + Send + 'static, interfaces: &[&str], lost: Lost) -> io::Result<Self> {
        let output: Box<dyn Write + Send> = Box::new(output);
        let mut writer = PcapNgWriter::new(output).map_err(into_io)?;
        for &name in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            let block =
                InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: SNAP_LENGTH, options };
            writer.write_pcapng_block(block).map_err(into_io)?;
        }
        let file = Arc::new(Mutex::new(Written { writer, failed: None, frames: 0 }));
        Ok(Self { file, lost })
    }

    /// Adds a frame that left `interface` at `time`, in nanoseconds.
    pub fn frame(&self, interface: usize, time: u64, frame: &[u8], note: Note) {
        if note == Note::Lost && self.lost == Lost::Omitted {
            return;
        }
        let mut options = vec![EnhancedPacketOption::Flags(OUTBOUND)];
        options.extend(note.comment().map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text))));
        let block = EnhancedPacketBlock {
            interface_id: u32::try_from(interface).unwrap_or(u32::MAX),
            timestamp: Duration::from_nanos(time),
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(frame),
            options,
        };
        let mut file = self.file.lock();
        if file.failed.is_none() {
            file.frames += 1;
            file.failed = file.writer.write_pcapng_block(block).map_err(into_io).err();
        }
    }

    /// Writes out what is buffered; returns the number of frames captured.
    ///
    /// # Errors
    /// The first error met since the capture was started.
    pub fn finish(&self) -> io::Result<u64> {
        let mut file = self.file.lock();
        if let Some(error) = file.failed.take() {
            return Err(error);
        }
        file.writer.get_mut().flush()?;
        Ok(file.frames)
    }
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
