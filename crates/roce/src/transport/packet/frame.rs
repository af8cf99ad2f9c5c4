// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds frames of a connection.

use core::convert::Infallible;

use lock_api::RawMutex;

use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::peer::Link;
use roce_wire::{Frame, Headers};

/// Reason why no frame was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// There is nothing to send now.
    Idle,
    /// The payload of the frame is to be copied without the lock of the queue pair.
    Copying,
    /// The connection ends.
    Fatal(Failure),
}

impl From<Failure> for Unsent {
    #[inline]
    fn from(failure: Failure) -> Self {
        Self::Fatal(failure)
    }
}

/// Builds a frame in `slot`: headers, the payload that `fill` writes, ICRC. Returns the length of the frame, or
/// the error of `fill`.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "on the way of every packet; opcode and extended headers are known in the caller"
)]
pub(crate) fn build_frame<R: RawMutex, E>(
    link: &Link,
    env: &Env<'_, R>,
    slot: &mut [u8],
    headers: &Headers,
    payload_len: usize,
    fill: impl FnOnce(&mut Frame<'_>) -> Result<(), E>,
) -> Result<Result<usize, E>, Failure> {
    // Used where it is: moving it takes as long as the headers.
    let mut begun = link.template.begin(env.shared.config.crc, slot, headers, payload_len);
    let Ok(frame) = &mut begun else { return Err(Failure::FrameNotBuilt) };
    if let Err(error) = fill(frame) {
        return Ok(Err(error));
    }
    let len = frame.finish();
    env.built(payload_len);
    Ok(Ok(len))
}

/// Builds a frame without payload in `slot`. Returns its length.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "on the way of every acknowledgement; opcode and extended headers are known in the caller"
)]
pub(crate) fn build_headers<R: RawMutex>(
    link: &Link,
    env: &Env<'_, R>,
    slot: &mut [u8],
    headers: &Headers,
) -> Result<usize, Failure> {
    let Ok(len) = build_frame(link, env, slot, headers, 0, |_| Ok::<_, Infallible>(()))?;
    Ok(len)
}
