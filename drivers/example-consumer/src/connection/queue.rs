// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a connection's queues: credits, room, and what is posted.

use driver_support::status::Result;
use ndk_abi::ndk::{NDK_LOGICAL_ADDRESS, NDK_OP_FLAG_DEFER, NDK_SGE};
use ndk_abi::nt::{NTSTATUS, STATUS_INTERNAL_ERROR};

use super::message::{Kind, Message};
use super::messages::Messages;
use crate::ndk::{Poster, Region, Target};
use crate::statistics::Statistics;

/// A request on the initiator queue, as its context names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A message from this slot.
    Send(usize),
    /// Of request number n: the registration of its memory, its invalidation, an RDMA read or write.
    Register(usize),
    Invalidate(usize),
    Transfer(usize),
}

impl Work {
    fn context(self) -> usize {
        let (kind, number) = match self {
            Self::Send(number) => (0, number),
            Self::Register(number) => (1, number),
            Self::Invalidate(number) => (2, number),
            Self::Transfer(number) => (3, number),
        };
        number << 2 | kind
    }

    pub fn of(context: usize) -> Self {
        let number = context >> 2;
        match context & 3 {
            0 => Self::Send(number),
            1 => Self::Register(number),
            2 => Self::Invalidate(number),
            _ => Self::Transfer(number),
        }
    }
}

/// Posts of a connection to its queue pair. Its functions are called with the connection's lock held.
pub struct Queue {
    poster: Poster,
    messages: Messages,
    statistics: &'static Statistics,
    /// Slots below are receives, slots from here on are sends.
    receives: usize,
    /// Bit n: the n-th send slot is free.
    free_sends: u64,
    /// Receives posted, and places of the initiator queue in use.
    posted_receives: usize,
    posted_work: usize,
    depth: usize,
    /// Messages that the peer can receive.
    credits: usize,
    /// Receives posted that the peer does not know of.
    to_grant: usize,
    /// The connection is established. Messages can arrive before the accepting side knows it, requests cannot be posted.
    is_established: bool,
    /// Why the connection has failed or ended. Nothing is posted afterwards.
    ended: Option<NTSTATUS>,
}

/// Send slots of a connection.
pub const SENDS: usize = 32;

impl Queue {
    pub fn new(
        poster: Poster,
        messages: Messages,
        receives: usize,
        depth: usize,
        statistics: &'static Statistics,
    ) -> Self {
        Self {
            poster,
            messages,
            statistics,
            receives,
            free_sends: u64::MAX >> (64 - SENDS),
            posted_receives: 0,
            posted_work: 0,
            depth,
            credits: 0,
            to_grant: 0,
            is_established: false,
            ended: None,
        }
    }

    /// Posts the receive of a slot. Called for all slots at first, then for each that has received.
    pub fn post_receive(&mut self, slot: usize) -> Result {
        let entry = self.messages.entry(slot)?;
        self.admit()?;
        self.poster.receive(slot, &[entry])?;
        self.posted_receives += 1;
        Ok(())
    }

    /// The receive of `slot` has completed with a message of `length` bytes: returns it, and posts the receive again.
    pub fn received(&mut self, slot: usize, length: usize) -> Result<Message> {
        let message = self.messages.load(slot, length)?;
        self.credits += usize::from(message.granted);
        self.post_receive(slot)?;
        self.to_grant += 1;
        Ok(message)
    }

    /// Sets the credits that the connection begins with.
    pub fn set_credits(&mut self, credits: u16) {
        self.credits = credits.into();
    }

    /// The connection is established: requests can be posted from now on.
    //= R-CONN-33, R-CONN-34, R-CONN-35
    pub fn establish(&mut self) {
        self.is_established = true;
    }

    /// Returns the requests that can be posted to the initiator queue now.
    pub fn room(&self) -> usize {
        if self.is_established { self.depth - self.posted_work } else { 0 }
    }

    /// Returns whether a message can be posted. The last credit is for messages that grant some: otherwise both sides
    /// could wait for credits that the other cannot send.
    pub fn can_send(&self) -> bool {
        (self.credits > 1 || (self.credits == 1 && self.to_grant != 0))
            && self.free_sends != 0
            && self.room() != 0
            && self.ended.is_none()
    }

    /// Posts a message, with all credits that are to be granted. With a token, the message invalidates it at the peer.
    /// [`can_send`](Self::can_send) must hold.
    pub fn send(&mut self, message: Message, invalidate: Option<u32>) -> Result {
        let slot = self.free_sends.trailing_zeros() as usize;
        if !self.can_send() || slot >= SENDS {
            return Err(STATUS_INTERNAL_ERROR);
        }
        let granted = u16::try_from(self.to_grant).unwrap_or(u16::MAX);
        self.messages.store(self.receives + slot, Message { granted, ..message })?;
        let entries = [self.messages.entry(self.receives + slot)?];
        let context = Work::Send(slot).context();
        match invalidate {
            Some(token) => self.poster.send_and_invalidate(context, &entries, 0, token)?,
            None => self.poster.send(context, &entries, 0)?,
        }
        self.free_sends &= !(1 << slot);
        self.to_grant -= usize::from(granted);
        self.credits -= 1;
        self.posted_work += 1;
        self.statistics.messages_sent.add(1);
        Ok(())
    }

    /// Grants credits by a message of their own if the peer may be left with less than half of them. The message itself
    /// takes a credit, so it must not be due again for it: hence more than half, and [`LEAST_CREDITS`](super::message).
    pub fn grant_if_due(&mut self) -> Result {
        if self.to_grant * 2 > self.receives && self.can_send() {
            self.statistics.grants_sent.add(1);
            self.send(Message::empty(Kind::Grant), None)?;
        }
        Ok(())
    }

    /// Posts the registration of `length` bytes that begin `offset` bytes into the first page. It begins with the next
    /// request that is posted.
    ///
    /// # Safety
    /// The region is open until the connection is closed.
    pub unsafe fn register(
        &mut self,
        request: usize,
        region: &Region,
        pages: &[NDK_LOGICAL_ADDRESS],
        offset: usize,
        target: Target,
        flags: u32,
    ) -> Result {
        self.admit()?;
        let (context, length) = (Work::Register(request).context(), target.length as usize);
        let flags = flags | NDK_OP_FLAG_DEFER;
        // SAFETY: the caller keeps the pages of the region in memory until it is invalidated; the queue pair is open.
        unsafe {
            self.poster.fast_register(
                context,
                region.raw(),
                pages,
                offset as u32,
                length,
                target.address,
                flags,
            )
        }?;
        self.posted_work += 1;
        self.statistics.registrations.add(1);
        Ok(())
    }

    /// Posts the invalidation of a region.
    ///
    /// # Safety
    /// The region is open until the connection is closed.
    pub unsafe fn invalidate(&mut self, request: usize, region: &Region) -> Result {
        self.admit()?;
        // SAFETY: the caller passes a registered region that no request uses; it stays open until this one completes.
        unsafe { self.poster.invalidate(Work::Invalidate(request).context(), region.header(), 0) }?;
        self.posted_work += 1;
        self.statistics.local_invalidations.add(1);
        Ok(())
    }

    /// Posts an RDMA read of the peer's memory.
    pub fn read(&mut self, request: usize, entries: &[NDK_SGE], from: Target) -> Result {
        self.admit()?;
        self.poster.read(Work::Transfer(request).context(), entries, from, 0)?;
        self.posted_work += 1;
        self.statistics.rdma_reads.add(1);
        Ok(())
    }

    /// Posts an RDMA write to the peer's memory.
    pub fn write(&mut self, request: usize, entries: &[NDK_SGE], to: Target) -> Result {
        self.admit()?;
        self.poster.write(Work::Transfer(request).context(), entries, to, 0)?;
        self.posted_work += 1;
        self.statistics.rdma_writes.add(1);
        Ok(())
    }

    /// A receive has come back, with a message or without.
    pub fn receive_done(&mut self) {
        self.posted_receives = self.posted_receives.saturating_sub(1);
    }

    /// A request of the initiator queue has come back.
    pub fn work_done(&mut self, work: Work) {
        self.posted_work = self.posted_work.saturating_sub(1);
        if let Work::Send(slot) = work
            && slot < SENDS
        {
            self.free_sends |= 1 << slot;
        }
    }

    pub fn statistics(&self) -> &'static Statistics {
        self.statistics
    }

    pub fn ended(&self) -> Option<NTSTATUS> {
        self.ended
    }

    /// Ends the connection for `status`; returns whether it had not ended before.
    pub fn end(&mut self, status: NTSTATUS) -> bool {
        self.ended.replace(self.ended.unwrap_or(status)).is_none()
    }

    /// Returns whether all that was posted has come back.
    pub fn is_idle(&self) -> bool {
        self.posted_receives == 0 && self.posted_work == 0
    }

    fn admit(&self) -> Result {
        self.ended.map_or(Ok(()), Err)
    }
}
