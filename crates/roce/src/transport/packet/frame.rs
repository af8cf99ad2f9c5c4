// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds frames of a connection.

use lock_api::RawMutex;

use crate::transport::env::Env;
use crate::transport::peer::Link;
use roce_wire::{Frame, Headers};

/// Why no frame was built. As large as a length, so that a result with either is returned in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Unsent {
    /// There is nothing to send now.
    Idle,
    /// The frame cannot be built: a bug, or a slot that is too small.
    Failed,
    /// Its payload is to be copied without the lock of the queue pair.
    Copying,
}

/// Builds a frame in `slot`: headers, the payload that `fill` writes, ICRC. Returns the length of the frame, or
/// the error of `fill`.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "on the way of every packet; opcode and extended headers are known in the caller"
)]
pub(crate) fn build_frame<R: RawMutex, E>(
    link: Option<&Link>,
    env: &Env<'_, R>,
    slot: &mut [u8],
    headers: &Headers,
    payload_len: usize,
    fill: impl FnOnce(&mut Frame<'_>) -> Result<(), E>,
) -> Result<Result<usize, E>, Unsent> {
    let link = link.ok_or(Unsent::Idle)?;
    // Used where it is: moving it takes as long as the headers.
    let mut begun = link.template.begin(env.shared.config.crc, slot, headers, payload_len);
    let Ok(frame) = &mut begun else { return Err(Unsent::Failed) };
    if let Err(error) = fill(frame) {
        return Ok(Err(error));
    }
    let len = frame.finish();
    env.built(payload_len);
    Ok(Ok(len))
}
