// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies the payload of a request or READ response into its frame, with its CRC, while the lock of the queue pair is free.
//!
//! With the lock held, the transport writes the headers and notes where the payload is; then the lock is released, the payload is
//! copied, and with the lock held again the packet counts as sent. Meanwhile requests may be posted. Everything else waits
//! for the copy ([`Qp::lock`](crate::Qp)), as it would for the lock: completions and flushes, which return memory to the
//! consumer, and changes of what is sent next.

use lock_api::RawMutex;

use super::pieces::Pieces;
use crate::region::access_rights::AccessError;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::peer::Link;
use roce_wire::{Frame, Headers};

/// Shortest payload that is copied without the lock, in bytes: a shorter one costs less than releasing and acquiring it.
pub(crate) const MIN_LENGTH: u32 = 512;

/// The next packet, and the memory that its payload is copied from.
#[derive(Debug)]
pub(crate) struct PayloadCopy {
    headers: Headers,
    /// Bytes of the payload.
    pub(crate) length: u32,
    /// The packet of a request; `None` for a READ response.
    pub(crate) request: Option<RequestPacket>,
    source: Source,
}

/// Memory that a payload is copied from.
#[derive(Debug)]
enum Source {
    /// Of a request: see [`Pieces::collect`].
    Pieces(Pieces),
    /// Of a READ response: what the peer may read.
    Region { key: u32, address: u64 },
}

/// Attributes of a packet of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPacket {
    pub(crate) ack_req: bool,
    /// Its acknowledgement measures the path.
    pub(crate) measures_path: bool,
}

impl PayloadCopy {
    /// Returns the copy of `length` bytes from `pieces` to a packet of a request.
    pub(crate) fn of_request(headers: Headers, length: u32, pieces: Pieces, packet: RequestPacket) -> Self {
        Self { headers, length, request: Some(packet), source: Source::Pieces(pieces) }
    }

    /// Returns the copy of `length` bytes from memory that the peer may read, to a READ response.
    pub(crate) fn of_response(headers: Headers, length: u32, key: u32, address: u64) -> Self {
        Self { headers, length, request: None, source: Source::Region { key, address } }
    }

    /// Writes the headers to `slot`. The lock is held.
    pub(crate) fn begin<'s, R: RawMutex>(
        &self,
        link: &Link,
        env: &Env<'_, R>,
        slot: &'s mut [u8],
    ) -> Result<Frame<'s>, Failure> {
        let frame = link.template.begin(env.shared.config.crc, slot, &self.headers, self.length as usize);
        frame.map_err(|_| Failure::FrameNotBuilt)
    }

    /// Copies the payload and finishes the frame. Returns its length. IRQL == `DISPATCH_LEVEL`, the lock of the queue pair is
    /// not held.
    pub(crate) fn run<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        mut frame: Frame<'_>,
    ) -> Result<usize, AccessError> {
        match &self.source {
            Source::Pieces(pieces) => {
                for piece in pieces.as_slice() {
                    env.regions.read_local(env.qp.pd, piece, 0, piece.length, &mut frame)?;
                }
            }
            // Checked for each packet: the region may be deregistered meanwhile.
            //= R-MR-17
            Source::Region { key, address } => {
                env.regions.read_remote(env.qp.scope(), *key, *address, self.length, &mut frame)?;
            }
        }
        Ok(frame.finish())
    }
}
