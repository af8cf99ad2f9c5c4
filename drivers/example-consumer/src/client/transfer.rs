// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers: memory of any size, cut into requests.

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::time::Duration;

use driver_support::status::Result;
use ndk_abi::ndk::{NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE};
use ndk_abi::nt::{MDL, STATUS_DEVICE_BUSY, STATUS_INVALID_PARAMETER, STATUS_IO_TIMEOUT};
use nt::PAGE_SIZE;

use super::connect::Client;
use super::pattern::{crc, fill};
use super::requests::Part;
use crate::connection::Kind;
use crate::ndk::Lam;
use crate::os::Buffer;
use crate::statistics::STATISTICS;

/// A connection on which nothing happens for this time is given up.
const STALL: Duration = Duration::from_secs(30);

/// Where the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the server, which reads it from the client's memory.
    Write,
    /// To the client, into whose memory the server writes it.
    Read,
}

/// The outcome of an exchange: bytes there and back, and their checksums.
#[derive(Clone, Copy)]
pub struct Exchange {
    pub written: u64,
    pub read: u64,
    pub crc_written: u32,
    pub crc_read: u32,
}

impl Client {
    /// Transfers `length` bytes between the memory of `mdl` and the server's store, from `offset` there on.
    /// `PASSIVE_LEVEL`. One transfer at a time.
    ///
    /// # Safety
    /// The MDL describes at least `length` bytes, whose pages are locked until this function returns.
    pub unsafe fn transfer(
        &self,
        direction: Direction,
        mdl: NonNull<MDL>,
        length: usize,
        offset: u64,
    ) -> Result {
        let end = u64::try_from(length).ok().and_then(|length| offset.checked_add(length));
        if length == 0 || end.is_none_or(|end| end > u64::from(self.store)) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(STATUS_DEVICE_BUSY);
        }
        // SAFETY: the caller passes a locked MDL of at least `length` bytes that outlives the call.
        let lam = unsafe { Lam::new(self.connection.adapter(), mdl, length) };
        let outcome = lam.and_then(|lam| {
            let outcome = self.run(direction, &lam, mdl, offset);
            if outcome.is_err() && self.connection.channel().ended().is_some() {
                // The mapping is in use until all requests have come back.
                self.connection.channel().wait_idle();
            }
            outcome
        });
        self.is_busy.store(false, Ordering::Release);
        outcome?;
        match direction {
            Direction::Write => STATISTICS.bytes_written.add(length as u64),
            Direction::Read => STATISTICS.bytes_read.add(length as u64),
        }
        Ok(())
    }

    /// Writes generated data to the server, reads it back into other memory, and returns the checksums of both.
    /// `PASSIVE_LEVEL`.
    pub fn exchange(&self, length: usize, offset: u64, seed: u32) -> Result<Exchange> {
        let source = Buffer::new(length)?;
        fill(&source, seed)?;
        // SAFETY: nonpaged memory that outlives the call.
        unsafe { self.transfer(Direction::Write, source.mdl(), length, offset) }?;
        let destination = Buffer::new(length)?;
        // SAFETY: the MDL describes nonpaged memory of `length` bytes that outlives the call.
        unsafe { self.transfer(Direction::Read, destination.mdl(), length, offset) }?;
        Ok(Exchange {
            written: length as u64,
            read: length as u64,
            crc_written: crc(&source)?,
            crc_read: crc(&destination)?,
        })
    }

    /// Posts the requests of a transfer as credits and room allow, and waits for the last one.
    fn run(&self, direction: Direction, lam: &Lam, mdl: NonNull<MDL>, offset: u64) -> Result {
        let channel = self.connection.channel();
        // SAFETY: a member of an MDL that outlives this call.
        let start = unsafe { (*mdl.as_ptr()).StartVa }.addr();
        let base = (start + lam.offset()) as u64;
        channel.with(|requests, _| {
            requests.begin();
            Ok(())
        })?;
        let mut posted = 0;
        loop {
            self.progress.clear();
            let is_done = channel.with(|requests, queue| {
                queue.ended().map_or(Ok(()), Err)?;
                while posted < lam.length() && requests.refused().is_none() {
                    let part = self.part_at(direction, lam, base, posted, offset)?;
                    if !requests.post(queue, &part)? {
                        break;
                    }
                    posted += part.length as usize;
                }
                let is_posted = posted == lam.length() || requests.refused().is_some();
                Ok(is_posted && requests.is_idle())
            })?;
            if is_done {
                return channel.with(|requests, _| Ok(requests.refused()))?.map_or(Ok(()), Err);
            }
            if !self.progress.wait_for(STALL) {
                channel.end(STATUS_IO_TIMEOUT);
                return Err(STATUS_IO_TIMEOUT);
            }
        }
    }

    /// Returns the part of a transfer that begins at byte `position` of it: as many bytes as a request may name, in as
    /// many pages as a region holds.
    fn part_at<'a>(
        &self,
        direction: Direction,
        lam: &'a Lam,
        base: u64,
        position: usize,
        offset: u64,
    ) -> Result<Part<'a>> {
        let begin = lam.offset() + position;
        let (first_page, first_byte) = (begin / PAGE_SIZE, begin % PAGE_SIZE);
        let region = self.connection.limits().region_pages as usize * PAGE_SIZE - first_byte;
        let length = (lam.length() - position).min(self.part).min(region);
        let pages = (first_byte + length).div_ceil(PAGE_SIZE);
        let pages = lam.pages().get(first_page..first_page + pages).ok_or(STATUS_INVALID_PARAMETER)?;
        let (kind, rights) = match direction {
            Direction::Write => (Kind::Write, NDK_OP_FLAG_ALLOW_REMOTE_READ),
            Direction::Read => (Kind::Read, NDK_OP_FLAG_ALLOW_REMOTE_WRITE),
        };
        Ok(Part {
            kind,
            pages,
            first_byte,
            rights,
            address: base + position as u64,
            length: length as u32,
            offset: offset + position as u64,
        })
    }
}
