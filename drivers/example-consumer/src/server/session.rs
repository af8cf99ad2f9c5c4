// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server's side of a connection: requests of the client in progress.
//!
//! The server reads what a client writes by RDMA Read, and answers when all of it has arrived. It writes what a client
//! reads by RDMA Write, and posts the answer behind the last write: it cannot overtake it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use driver_support::status::{Result, no_memory};
use fallible::{Arc, try_box, vec};
use ndk_abi::ndk::{NDK_SGE, NDK_SGE_Anonymous};
use ndk_abi::nt::{LARGE_INTEGER, NTSTATUS, STATUS_INTERNAL_ERROR, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use super::store::Store;
use crate::connection::{Kind, Limits, Message, Protocol, Queue, REQUESTS, Work};
use crate::ndk::{Region, Target};
use crate::statistics::STATISTICS;

/// Entries of an RDMA operation, at most.
const ENTRIES: usize = 32;
/// Places of the initiator queue that transfers leave for answers.
const RESERVED: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Free,
    /// Its data is being transferred.
    Transferring,
    /// The answer waits for credit and room.
    Answering(NTSTATUS),
    /// The answer is posted; transfers may still be outstanding.
    Answered,
}

#[derive(Clone, Copy)]
struct Request {
    stage: Stage,
    message: Message,
    /// Bytes for which a transfer is posted.
    posted: usize,
    /// Transfers that have not come back.
    outstanding: usize,
}

/// The server's side of a connection.
pub struct Session {
    requests: Vec<Request>,
    store: Arc<Store>,
    token: u32,
    limits: Limits,
    /// Called once, when the connection has ended.
    close: Option<Box<dyn FnOnce() + Send>>,
}

impl Session {
    /// `token` is the privileged one of the connection's protection domain. `close` is called at `DISPATCH_LEVEL`.
    pub fn new(
        store: Arc<Store>,
        token: u32,
        limits: Limits,
        close: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let message = Message::empty(Kind::Grant);
        let free = Request { stage: Stage::Free, message, posted: 0, outstanding: 0 };
        let requests = vec::filled(REQUESTS, free).map_err(no_memory)?;
        let close: Box<dyn FnOnce() + Send> = try_box(close).map_err(no_memory)?;
        Ok(Self { requests, store, token, limits, close: Some(close) })
    }

    /// Returns the range of the store that a request names, if it is one.
    fn check(&self, message: &Message) -> Result {
        let end = message.offset.checked_add(message.length.into()).ok_or(STATUS_INVALID_PARAMETER)?;
        let is_valid = message.length != 0
            && message.length <= self.limits.part
            && end <= self.store.length() as u64
            && message.address.checked_add(message.length.into()).is_some();
        if is_valid { Ok(()) } else { Err(STATUS_INVALID_PARAMETER) }
    }
}

impl Request {
    /// Posts transfers as room allows.
    fn transfer(
        &mut self,
        number: usize,
        queue: &mut Queue,
        store: &Store,
        token: u32,
        limits: &Limits,
    ) -> Result {
        let length = self.message.length as usize;
        while self.posted < length && queue.room() > RESERVED {
            let nothing = NDK_SGE_Anonymous { LogicalAddress: LARGE_INTEGER { QuadPart: 0 } };
            let mut entries = [NDK_SGE { Anonymous: nothing, Length: 0, MemoryRegionToken: 0 }; ENTRIES];
            let usable = ENTRIES.min(limits.qp.initiator_entries as usize);
            let entries = entries.get_mut(..usable).unwrap_or_default();
            let offset = self.message.offset as usize + self.posted;
            let wanted = (length - self.posted).min(limits.transfer as usize);
            let (count, bytes) = store.entries(token, offset, wanted, entries)?;
            let entries = entries.get(..count).ok_or(STATUS_INTERNAL_ERROR)?;
            let address = self.message.address + self.posted as u64;
            let target = Target { address, token: self.message.token, length: bytes as u32 };
            if self.message.kind == Kind::Write {
                queue.read(number, entries, target)?;
            } else {
                queue.write(number, entries, target)?;
            }
            self.posted += bytes;
            self.outstanding += 1;
        }
        Ok(())
    }

    /// Takes the next step that is possible.
    fn advance(
        &mut self,
        number: usize,
        queue: &mut Queue,
        store: &Store,
        token: u32,
        limits: &Limits,
    ) -> Result {
        if self.stage == Stage::Transferring {
            self.transfer(number, queue, store, token, limits)?;
            let is_posted = self.posted == self.message.length as usize;
            // Data that is read must have arrived; data that is written arrives before the answer.
            if is_posted && (self.message.kind == Kind::Read || self.outstanding == 0) {
                self.stage = Stage::Answering(STATUS_SUCCESS);
            }
        }
        if let Stage::Answering(status) = self.stage
            && queue.can_send()
        {
            let answer = Message { request: number as u16, status, ..Message::empty(Kind::Response) };
            queue.send(answer, self.message.invalidate.then_some(self.message.token))?;
            self.stage = Stage::Answered;
            STATISTICS.requests.add(1);
        }
        if self.stage == Stage::Answered && self.outstanding == 0 {
            self.stage = Stage::Free;
        }
        Ok(())
    }
}

impl Protocol for Session {
    fn received(&mut self, _queue: &mut Queue, message: Message, invalidated: Option<u32>) -> Result {
        let stage = match self.check(&message) {
            Ok(()) => Stage::Transferring,
            Err(status) => Stage::Answering(status),
        };
        let request = self.requests.get_mut(usize::from(message.request)).ok_or(STATUS_INVALID_PARAMETER)?;
        // A client must not reuse a request's number before its answer, nor invalidate anything here.
        let is_request = matches!(message.kind, Kind::Write | Kind::Read);
        let is_free = matches!(request.stage, Stage::Free | Stage::Answered);
        if !is_request || !is_free || invalidated.is_some() {
            return Err(STATUS_INVALID_PARAMETER);
        }
        request.stage = stage;
        request.message = message;
        request.posted = 0;
        Ok(())
    }

    fn completed(&mut self, _queue: &mut Queue, work: Work) -> Result {
        match work {
            Work::Send(_) => Ok(()),
            Work::Transfer(number) => {
                let request = self.requests.get_mut(number).ok_or(STATUS_INTERNAL_ERROR)?;
                request.outstanding = request.outstanding.checked_sub(1).ok_or(STATUS_INTERNAL_ERROR)?;
                Ok(())
            }
            Work::Register(_) | Work::Invalidate(_) => Err(STATUS_INTERNAL_ERROR),
        }
    }

    fn proceed(&mut self, queue: &mut Queue) -> Result {
        for (number, request) in self.requests.iter_mut().enumerate() {
            if request.stage != Stage::Free {
                request.advance(number, queue, &self.store, self.token, &self.limits)?;
            }
        }
        Ok(())
    }

    fn ended(&mut self, _status: NTSTATUS) {
        STATISTICS.connections_lost.add(1);
        if let Some(close) = self.close.take() {
            close();
        }
    }

    fn take_regions(&mut self) -> Vec<Region> {
        Vec::new()
    }
}
