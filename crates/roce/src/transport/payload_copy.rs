// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies the payload of a request into its frame, with its CRC, while the lock of the queue pair is free.
//!
//! With the lock held, the requester writes the headers and notes where the payload is; then the lock is released, the payload is
//! copied, and with the lock held again the packet counts as sent. Meanwhile requests may be posted. Everything else waits
//! for the copy ([`Qp::lock`](crate::Qp)), as it would for the lock: completions and flushes, which return memory to the
//! consumer, and changes of the requester's position.

use lock_api::RawMutex;

use super::env::Env;
use super::frame::Unsent;
use super::peer::Link;
use super::pieces::Pieces;
use crate::region::access_rights::AccessError;
use roce_wire::{Frame, Headers};

/// Shortest payload that is copied without the lock, in bytes: a shorter one costs less than releasing and acquiring it.
pub(crate) const MIN_LENGTH: u32 = 512;

/// The next packet, and the memory that its payload is copied from.
#[derive(Debug)]
pub(crate) struct PayloadCopy {
    headers: Headers,
    pieces: Pieces,
}

impl PayloadCopy {
    /// Notes the headers of the packet and the pieces of its payload, see [`Pieces::collect`].
    pub(super) fn new(headers: Headers, pieces: Pieces) -> Self {
        Self { headers, pieces }
    }

    /// Writes the headers to `slot`. The lock is held.
    pub(super) fn begin<'s, R: RawMutex>(
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
        for piece in self.pieces.as_slice() {
            env.regions.read_local(env.qp.pd, piece, 0, piece.length, &mut frame)?;
        }
        Ok(frame.finish())
    }
}

/// What is being copied.
#[derive(Clone, Copy, Debug)]
pub(super) enum Copying {
    /// The payload of the next frame.
    Frame(CopiedFrame),
    /// The payload of the packet in order, see [`super::placement`].
    Packet,
}

/// A frame whose payload is being copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiedFrame {
    pub(super) length: u32,
    pub(super) ack_req: bool,
    /// Its acknowledgement measures the path.
    pub(super) measures_path: bool,
    /// The rate is limited.
    pub(super) paced: bool,
}
