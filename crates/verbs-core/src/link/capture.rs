// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures: frames in a file that tcpdump and Wireshark read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// Of a file with times in nanoseconds.
const MAGIC: u32 = 0xA1B2_3C4D;
const ETHERNET: u32 = 1;
const SNAP_LEN: u32 = 65_535;

/// A file in which frames are recorded.
#[derive(Debug)]
pub struct Capture(Mutex<BufWriter<File>>);

impl Capture {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// That of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&header())?;
        file.flush()?;
        Ok(Self(Mutex::new(file)))
    }

    /// Records frames. What cannot be written is missing in the file.
    pub fn record<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut file = self.0.lock();
        for frame in frames {
            let length = frame.len() as u32;
            let words = [time.as_secs() as u32, time.subsec_nanos(), length, length];
            let written = file.write_all(words.map(u32::to_ne_bytes).as_flattened());
            if written.and_then(|()| file.write_all(frame)).is_err() {
                return;
            }
        }
        // A process that is killed leaves what it has recorded.
        let _ = file.flush();
    }
}

fn header() -> [u8; 24] {
    let mut header = [0; 24];
    let words = [MAGIC, 0, 0, 0, SNAP_LEN, ETHERNET];
    header.copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    // Version 2.4.
    header[4..8].copy_from_slice([2u16, 4].map(u16::to_ne_bytes).as_flattened());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_frames_with_their_lengths() {
        let path = std::env::temp_dir().join(format!("viordma-capture-{}", std::process::id()));
        let capture = Capture::create(&path).unwrap();
        capture.record([&b"first"[..], &b"second"[..]].into_iter());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes[..4], MAGIC.to_ne_bytes());
        assert_eq!(bytes[4..8], [2, 0, 4, 0], "version 2.4");
        assert_eq!(bytes.len(), 24 + 16 + 5 + 16 + 6);
        assert_eq!((&bytes[40..45], &bytes[61..]), (&b"first"[..], &b"second"[..]));
        assert_eq!(bytes[36..40], 5u32.to_ne_bytes());
        assert!(Capture::create(Path::new("/nonexistent/file")).is_err());
    }
}
