// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reassembly of fragmented upper-layer messages ([MS-SMBD] 3.1.5.8).

use alloc::vec::Vec;

use fallible::vec;

use crate::descriptor::Token;
use crate::reason::Reason;

/// Payload of an upper-layer message.
#[derive(Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The message came in one piece and is in the receive buffer.
    Whole(&'a [u8]),
    /// The message was reassembled.
    Assembled(Vec<u8>),
}

impl Payload<'_> {
    /// Returns the bytes of the message.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Assembled(bytes) => bytes,
        }
    }
}

/// A received upper-layer message.
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Empty if the peer invalidated a token with a message without payload.
    pub payload: Payload<'a>,
    /// Token that a Send with Invalidate of the peer has invalidated since the previous message.
    pub invalidated: Option<Token>,
}

/// The message that is being reassembled.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Empty between messages. Grows with what has arrived, not with what is announced.
    data: Vec<u8>,
    /// Bytes that are missing; 0 between messages.
    remaining: u32,
    invalidated: Option<Token>,
}

impl Reassembly {
    /// Adds the payload of a Data Transfer message, after which `remaining` bytes follow in later ones. Returns the message that is
    /// complete, if one is.
    pub(crate) fn push<'a>(
        &mut self,
        payload: &'a [u8],
        remaining: u32,
        invalidated: Option<Token>,
        max: u32,
    ) -> Result<Option<Received<'a>>, Reason> {
        //= R-SMBD-51
        self.invalidated = invalidated.or(self.invalidated);
        if payload.is_empty() {
            return self.push_nothing(remaining, max);
        }
        //= R-SMBD-41
        let total = u32::try_from(payload.len()).ok().and_then(|length| length.checked_add(remaining));
        let Some(total) = total.filter(|&total| total <= max) else { return Err(Reason::FragmentedTooLong) };
        if self.remaining == 0 && remaining == 0 {
            return Ok(Some(self.deliver(Payload::Whole(payload))));
        }
        //= R-SMBD-47, R-SMBD-48
        if self.remaining != 0 && total != self.remaining {
            return Err(Reason::FragmentMismatch);
        }
        //= R-SMBD-46
        vec::extend(&mut self.data, payload).map_err(|_| Reason::NoMemory)?;
        self.remaining = remaining;
        if remaining > 0 {
            return Ok(None);
        }
        let data = core::mem::take(&mut self.data);
        Ok(Some(self.deliver(Payload::Assembled(data))))
    }

    /// Adds a Data Transfer message without payload.
    fn push_nothing(&mut self, remaining: u32, max: u32) -> Result<Option<Received<'static>>, Reason> {
        //= R-SMBD-41
        if remaining > max {
            return Err(Reason::FragmentedTooLong);
        }
        //= R-SMBD-49
        if remaining > 0 {
            return Err(Reason::EmptyFragment);
        }
        //= R-SMBD-50
        if self.remaining > 0 || self.invalidated.is_none() {
            return Ok(None);
        }
        Ok(Some(self.deliver(Payload::Whole(&[]))))
    }

    //= R-SMBD-51
    const fn deliver<'a>(&mut self, payload: Payload<'a>) -> Received<'a> {
        Received { payload, invalidated: self.invalidated.take() }
    }

    /// Frees the memory of an unfinished message.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
