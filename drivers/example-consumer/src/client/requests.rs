// SPDX-License-Identifier: MIT OR Apache-2.0

//! The client's requests in progress.
//!
//! A request registers its part of the transfer's memory for the server, names it in a message, and is done when the
//! server has answered and its access has ended: by the server's Send with Invalidate, or by an invalidation of the
//! client's own. Only then may the memory be used otherwise.

use alloc::vec::Vec;

use driver_support::status::{Result, no_memory};
use fallible::{Arc, vec};
use ndk_abi::ndk::NDK_LOGICAL_ADDRESS;
use ndk_abi::nt::{NTSTATUS, STATUS_INTERNAL_ERROR, STATUS_INVALID_PARAMETER};
use nt::Event;

use crate::connection::{Kind, Message, Protocol, Queue, REQUESTS, Work};
use crate::ndk::{Pd, Region, Target};

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    /// The server has the request.
    Sent,
    /// The server has answered; its access has not ended, and the invalidation is not posted yet.
    Answered,
    /// The invalidation is posted.
    Invalidating,
    /// The server's access has ended.
    Invalid,
}

#[derive(Clone, Copy)]
struct Request {
    stage: Stage,
    /// Work on the initiator queue that has not come back.
    outstanding: usize,
}

/// A part of a transfer.
pub struct Part<'a> {
    pub kind: Kind,
    /// The pages of the part, and the offset of its first byte in the first one.
    pub pages: &'a [NDK_LOGICAL_ADDRESS],
    pub first_byte: usize,
    /// Rights of the server.
    pub rights: u32,
    /// Address for the server, and length.
    pub address: u64,
    pub length: u32,
    /// Position in the server's store.
    pub offset: u64,
}

/// The requests of a connection.
pub struct Requests {
    slots: Vec<Request>,
    /// The memory region of each request.
    regions: Vec<Region>,
    /// The requests that are not free.
    active: usize,
    /// The first failure that the server has reported since the last transfer began.
    refused: Option<NTSTATUS>,
    progress: Arc<Event>,
    invalidates: bool,
}

impl Requests {
    /// Creates a region for each request. `PASSIVE_LEVEL`.
    pub fn new(pd: &Pd, pages: u32, progress: Arc<Event>, invalidates: bool) -> Result<Self> {
        let free = Request { stage: Stage::Free, outstanding: 0 };
        let requests = vec::filled(REQUESTS, free).map_err(no_memory)?;
        let mut regions = vec::with_capacity(REQUESTS).map_err(no_memory)?;
        for _ in 0..REQUESTS {
            vec::push(&mut regions, Region::new(pd, pages)?).map_err(no_memory)?;
        }
        Ok(Self { slots: requests, regions, active: 0, refused: None, progress, invalidates })
    }

    /// Forgets the failures of earlier transfers.
    pub fn begin(&mut self) {
        self.refused = None;
    }

    /// Returns the failure that the server has reported, if any.
    pub fn refused(&self) -> Option<NTSTATUS> {
        self.refused
    }

    pub fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// Posts a request for a part of a transfer, if there is a free one, and credit and room for it. Returns whether it
    /// was posted.
    pub fn post(&mut self, queue: &mut Queue, part: &Part<'_>) -> Result<bool> {
        // Registration, message, and an invalidation later on.
        if !queue.can_send() || queue.room() < 3 {
            return Ok(false);
        }
        let mut requests = self.slots.iter_mut().zip(&self.regions).enumerate();
        let free = requests.find(|(_, (request, _))| request.stage == Stage::Free);
        let Some((number, (request, region))) = free else { return Ok(false) };
        let token = region.remote_token();
        let target = Target { address: part.address, token, length: part.length };
        let (pages, first_byte) = (part.pages, part.first_byte);
        // SAFETY: the region is closed after the connection is idle.
        unsafe { queue.register(number, region, pages, first_byte, target, part.rights) }?;
        request.outstanding += 1;
        request.stage = Stage::Sent;
        self.active += 1;
        let message = Message {
            request: number as u16,
            invalidate: !self.invalidates,
            address: part.address,
            token,
            length: part.length,
            offset: part.offset,
            ..Message::empty(part.kind)
        };
        // The message starts the registration, and the peer gets it after the registration is done.
        queue.send(message, None)?;
        Ok(true)
    }

    fn invalidate_answered(&mut self, queue: &mut Queue) -> Result {
        for (number, (request, region)) in self.slots.iter_mut().zip(&self.regions).enumerate() {
            if request.stage == Stage::Answered && queue.room() != 0 {
                // SAFETY: the region is closed after the connection is idle.
                unsafe { queue.invalidate(number, region) }?;
                request.stage = Stage::Invalidating;
                request.outstanding += 1;
            }
        }
        Ok(())
    }

    /// Frees a request that is done.
    fn settle(&mut self, number: usize) {
        let Some(request) = self.slots.get_mut(number) else { return };
        if request.stage == Stage::Invalid && request.outstanding == 0 {
            request.stage = Stage::Free;
            self.active -= 1;
        }
    }
}

impl Protocol for Requests {
    fn received(&mut self, queue: &mut Queue, message: Message, invalidated: Option<u32>) -> Result {
        let number = usize::from(message.request);
        let request = self.slots.get_mut(number).ok_or(STATUS_INVALID_PARAMETER)?;
        let region = self.regions.get(number).ok_or(STATUS_INVALID_PARAMETER)?;
        if message.kind != Kind::Response || request.stage != Stage::Sent {
            return Err(STATUS_INVALID_PARAMETER);
        }
        request.stage = match invalidated {
            Some(token) if token == region.remote_token() => Stage::Invalid,
            // The server has invalidated what this response is not about.
            Some(_) => return Err(STATUS_INVALID_PARAMETER),
            None => Stage::Answered,
        };
        if message.status < 0 {
            self.refused.get_or_insert(message.status);
        }
        self.invalidate_answered(queue)?;
        self.settle(number);
        Ok(())
    }

    fn completed(&mut self, _queue: &mut Queue, work: Work) -> Result {
        let number = match work {
            Work::Register(number) | Work::Invalidate(number) => number,
            Work::Send(_) => return Ok(()),
            Work::Transfer(_) => return Err(STATUS_INTERNAL_ERROR),
        };
        let request = self.slots.get_mut(number).ok_or(STATUS_INTERNAL_ERROR)?;
        request.outstanding = request.outstanding.checked_sub(1).ok_or(STATUS_INTERNAL_ERROR)?;
        if matches!(work, Work::Invalidate(_)) {
            request.stage = Stage::Invalid;
        }
        self.settle(number);
        Ok(())
    }

    fn proceed(&mut self, queue: &mut Queue) -> Result {
        self.invalidate_answered(queue)?;
        self.progress.set();
        Ok(())
    }

    fn ended(&mut self, _status: NTSTATUS) {
        self.progress.set();
    }

    fn take_regions(&mut self) -> Vec<Region> {
        core::mem::take(&mut self.regions)
    }
}
