// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies the payload of a request or READ response into its frame, with its CRC, while the lock of the queue pair is free.
//!
//! With the lock held, the transport writes the headers and notes where the payload is; then the lock is released, the payload is
//! copied, and with the lock held again the packet counts as sent. Meanwhile requests may be posted. Everything else waits
//! for the copy ([`Qp::lock`](crate::Qp)), as it would for the lock: completions and flushes, which return memory to the
//! consumer, and changes of what is sent next.

use lock_api::RawMutex;

use super::frame::Unsent;
use super::pieces::Pieces;
use crate::region::access_rights::AccessError;
use crate::transport::env::Env;
use crate::transport::peer::Link;
use crate::transport::responder::inbound_reads::NextResponse;
use roce_wire::{Frame, Headers};

/// Shortest payload that is copied without the lock, in bytes: a shorter one costs less than releasing and acquiring it.
pub(crate) const MIN_LENGTH: u32 = 512;

/// The next packet, and the memory that its payload is copied from.
#[derive(Debug)]
pub(crate) struct PayloadCopy {
    headers: Headers,
    source: Source,
}

/// Memory that a payload is copied from.
#[derive(Debug)]
enum Source {
    /// Of a request: see [`Pieces::collect`].
    Pieces(Pieces),
    /// Of a READ response: what the peer may read.
    Region { key: u32, address: u64, length: u32 },
}

impl PayloadCopy {
    /// Notes the headers of a packet of a request, and the pieces of its payload.
    pub(crate) fn of_request(headers: Headers, pieces: Pieces) -> Self {
        Self { headers, source: Source::Pieces(pieces) }
    }

    /// Notes the headers of a READ response, and where its payload is.
    pub(crate) fn of_response(headers: Headers, next: &NextResponse) -> Self {
        let NextResponse { key, address, len: length, .. } = *next;
        Self { headers, source: Source::Region { key, address, length } }
    }

    /// Writes the headers to `slot`. The lock is held.
    pub(crate) fn begin<'s, R: RawMutex>(
        &self,
        link: Option<&Link>,
        env: &Env<'_, R>,
        slot: &'s mut [u8],
        length: u32,
    ) -> Result<Frame<'s>, Unsent> {
        let template = &link.ok_or(Unsent::Failed)?.template;
        let frame = template.begin(env.shared.config.crc, slot, &self.headers, length as usize);
        frame.map_err(|_| Unsent::Failed)
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
            Source::Region { key, address, length } => {
                env.regions.read_remote(env.qp.scope(), *key, *address, *length, &mut frame)?;
            }
        }
        Ok(frame.finish())
    }
}

/// What is being copied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Copying {
    /// The payload of the next packet of a request.
    Request(CopiedRequest),
    /// The payload of the next READ response.
    Response(CopiedResponse),
    /// The payload of the packet in order, see [`super::placement`].
    Packet,
}

impl Copying {
    /// Returns the length of the payload of a frame, in bytes.
    pub(crate) fn frame_payload(self) -> Option<u32> {
        match self {
            Self::Request(CopiedRequest { length, .. }) | Self::Response(CopiedResponse { length, .. }) => {
                Some(length)
            }
            Self::Packet => None,
        }
    }
}

/// A READ response whose payload is being copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedResponse {
    /// Bytes of the payload.
    pub(crate) length: u32,
    /// The rate is limited.
    pub(crate) paced: bool,
}

/// A packet of a request whose payload is being copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedRequest {
    /// Bytes of the payload.
    pub(crate) length: u32,
    pub(crate) ack_req: bool,
    /// Its acknowledgement measures the path.
    pub(crate) measures_path: bool,
    /// The rate is limited.
    pub(crate) paced: bool,
}
