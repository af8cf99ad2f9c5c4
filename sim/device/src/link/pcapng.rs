// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packet captures in pcapng format, with timestamps of the simulation.
//!
//! Each frame appears once, on the interface of the host that sent it, as it was sent. A frame that suffers a
//! fault on the wire has a comment that names the fault.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
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

use super::faults::Fate;

/// Timestamps count units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Longest frame captured, in bytes.
const SNAP_LENGTH: u32 = 0x4_0000;
/// `epb_flags`: the frame left the interface.
const OUTBOUND: u32 = 2;

/// The fault that a captured frame suffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    None,
    Lost,
    Duplicated,
    Corrupted,
    Delayed,
    Marked,
}

impl Note {
    fn comment(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Lost => Some("lost on the wire"),
            Self::Duplicated => Some("duplicated on the wire"),
            Self::Corrupted => Some("corrupted on the wire"),
            Self::Delayed => Some("delayed on the wire"),
            Self::Marked => Some("marked on the wire"),
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
            Fate::Marked => Self::Marked,
        }
    }
}

/// Which frames a capture holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lost {
    /// All frames that were sent; lost ones have a comment.
    #[default]
    Marked,
    /// Only frames that were not lost.
    Omitted,
}

/// A capture being written. Clones write to the same file; it is complete after [`Capture::finish`].
///
/// Frames are encoded by the caller and written by the capture's own thread: a slow disk does not slow the
/// wire down as long as it keeps up on average.
#[derive(Clone)]
pub struct Capture {
    file: Arc<Mutex<Encoded>>,
    lost: Lost,
}

struct Encoded {
    writer: PcapNgWriter<Spool>,
    frames: u64,
    /// Time of the last frame. Two hosts may report frames in another order than that of their timestamps.
    time: u64,
}

impl Capture {
    /// Starts a capture file with one Ethernet interface per name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path, interfaces: &[&str], lost: Lost) -> io::Result<Self> {
        Self::new(File::create(path)?, interfaces, lost)
    }

    /// Starts a capture in any writer.
    ///
    /// # Errors
    /// When the writing thread cannot be started.
    pub fn new(output: impl Write + Send + 'static, interfaces: &[&str], lost: Lost) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(Spool::new(output)?).map_err(into_io)?;
        for &name in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            let block =
                InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: SNAP_LENGTH, options };
            writer.write_pcapng_block(block).map_err(into_io)?;
        }
        Ok(Self { file: Arc::new(Mutex::new(Encoded { writer, frames: 0, time: 0 })), lost })
    }

    /// Adds a frame that left `interface` at `time`, in nanoseconds.
    pub fn frame(&self, interface: usize, time: u64, frame: &[u8], note: Note) {
        if note == Note::Lost && self.lost == Lost::Omitted {
            return;
        }
        let mut file = self.file.lock();
        file.time = file.time.max(time);
        let mut options = vec![EnhancedPacketOption::Flags(OUTBOUND)];
        options.extend(note.comment().map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text))));
        let block = EnhancedPacketBlock {
            interface_id: u32::try_from(interface).unwrap_or(u32::MAX),
            timestamp: Duration::from_nanos(file.time),
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(frame),
            options,
        };
        // Write errors are returned by `finish`; encoding fails for frames of 4 GiB only.
        file.frames += u64::from(file.writer.write_pcapng_block(block).is_ok());
    }

    /// Waits until everything is written; returns the number of frames captured.
    ///
    /// # Errors
    /// The first error met since the capture was started.
    pub fn finish(&self) -> io::Result<u64> {
        let mut file = self.file.lock();
        file.writer.get_mut().flush()?;
        Ok(file.frames)
    }
}

/// Bytes passed to the writing thread at a time, and the number of such pieces that may be queued.
const PIECE: usize = 1 << 20;
const PIECES: usize = 128;

enum Order {
    Write(Vec<u8>),
    /// Send the first error once everything before is written.
    Flush(SyncSender<io::Result<()>>),
}

/// Collects bytes for the writing thread.
struct Spool {
    piece: Vec<u8>,
    orders: SyncSender<Order>,
    /// Buffers of written pieces, for reuse.
    written: Receiver<Vec<u8>>,
}

impl Spool {
    fn new(mut output: impl Write + Send + 'static) -> io::Result<Self> {
        let (orders, received) = mpsc::sync_channel(PIECES);
        let (give_back, written) = mpsc::channel();
        let work = move || {
            let mut outcome = Ok(());
            for order in received {
                match order {
                    Order::Write(mut piece) => {
                        if outcome.is_ok() {
                            outcome = output.write_all(&piece);
                        }
                        piece.clear();
                        let _ = give_back.send(piece);
                    }
                    Order::Flush(answer) => {
                        let flushed = std::mem::replace(&mut outcome, Ok(())).and_then(|()| output.flush());
                        let _ = answer.send(flushed);
                    }
                }
            }
        };
        std::thread::Builder::new().name("capture".to_owned()).spawn(work)?;
        Ok(Self { piece: Vec::with_capacity(PIECE), orders, written })
    }

    fn hand_over(&mut self) {
        let empty = self.written.try_recv().unwrap_or_else(|_| Vec::with_capacity(PIECE));
        let full = std::mem::replace(&mut self.piece, empty);
        // Cannot fail: the thread ends when this sender is dropped.
        let _ = self.orders.send(Order::Write(full));
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.hand_over();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hand_over();
        let (answer, answered) = mpsc::sync_channel(1);
        let _ = self.orders.send(Order::Flush(answer));
        answered.recv().map_err(io::Error::other)?
    }
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
