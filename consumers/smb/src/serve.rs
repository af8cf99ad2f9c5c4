// SPDX-License-Identifier: MIT OR Apache-2.0

//! The serving side: keeps one file in a [`Store`], and reads and writes the peer's memory for its requests.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;

use ndk_consumer::endpoint::listen_for_one;
use ndk_consumer::transfer::{Failure, Phase, Progress, Report};
use ndk_consumer::{Access, Adapter, Error, Memory, Os};
use smb_direct::{Channel, Descriptors, Token};

use crate::smb2::{Command, FileId, Request, RequestBody, Response, ResponseBody, WriteData, status};
use crate::transfer::Options;
use crate::transport::{MessageStream, ServerTransport, Stream};
use crate::{Event, Session, Store};

/// Descriptors of one request. Windows' and Linux's clients send one.
const MAX_DESCRIPTORS: usize = 16;
/// Requests that wait for staging memory.
const MAX_WAITING: usize = 1024;
/// Bytes behind the end of the file at which a WRITE may begin.
const MAX_GAP: u64 = 64 << 20;
/// The only file.
const FILE: FileId = [1; 16];

/// Accepts one connection at `local` and serves it until the peer disconnects: one file, whose content is in `store`. Calls `ready` with
/// the address when it listens. All objects are closed on return.
///
/// # Errors
/// See [`Error`].
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    store: &mut dyn Store,
    ready: impl FnOnce(SocketAddr),
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    let outcome = listen_for_one(adapter, local, options.timeout, ready).and_then(|connector| {
        let mut session = Session::passive(adapter, options)?;
        // Declared here to be closed after the connection that uses it.
        let mut staging = None;
        let outcome = session.accept(connector).and_then(|parameters| {
            let size = options.chunk.min(parameters.max_read_write_size as usize);
            let memory = Memory::new(session.pd(), size * options.outstanding, Access::LocalWrite)
                .map_err(|status| Error::Call("NdkRegisterMr", status))?;
            let staging = staging.insert(memory);
            Server::new(&mut session, Some(staging), size, options, store, &mut report, progress).run()
        });
        let (outcome, stats) = session.close(outcome);
        report.stats = stats;
        drop(staging);
        outcome
    });
    report.of(outcome)
}

/// Serves a client over a stream that is connected, otherwise as [`serve()`]. Requests for memory of the peer are refused.
///
/// # Errors
/// See [`Error`].
pub fn serve_over<M: MessageStream>(
    stream: &mut M,
    options: &Options,
    store: &mut dyn Store,
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    let transport = &mut Stream(stream);
    let outcome = Server::new(transport, None, options.chunk, options, store, &mut report, progress).run();
    report.of(outcome)
}

struct Server<'a, T: ServerTransport> {
    transport: &'a mut T,
    /// Slots of `size` bytes each, for one transfer each. None if the transport cannot reach the peer's memory.
    staging: Option<&'a T::Staging>,
    size: usize,
    slots: Vec<Option<Transfer>>,
    /// Requests without a slot, oldest first.
    waiting: VecDeque<Vec<u8>>,
    store: &'a mut dyn Store,
    /// End of the content once the data of all WRITEs have arrived.
    end: u64,
    /// The peer has closed the file.
    is_complete: bool,
    report: &'a mut Report,
    progress: &'a dyn Fn(Progress),
}

/// A transfer between staging memory and the peer.
struct Transfer {
    /// RDMA requests that have not completed.
    pending: usize,
    /// The WRITE to be done when they have.
    write: Option<PendingWrite>,
}

/// A WRITE whose data are being read from the peer.
struct PendingWrite {
    message_id: u64,
    offset: u64,
    length: usize,
    invalidate: Option<Token>,
}

impl<'a, T: ServerTransport> Server<'a, T> {
    fn new(
        transport: &'a mut T,
        staging: Option<&'a T::Staging>,
        size: usize,
        options: &Options,
        store: &'a mut dyn Store,
        report: &'a mut Report,
        progress: &'a dyn Fn(Progress),
    ) -> Self {
        let slots = (0..options.outstanding).map(|_| None).collect();
        let (waiting, end) = (VecDeque::new(), store.len());
        Self { transport, staging, size, slots, waiting, store, end, is_complete: false, report, progress }
    }

    fn run(mut self) -> Result<(), Error> {
        loop {
            match self.transport.next_event() {
                Ok(Event::Message { bytes, .. }) => self.request(bytes)?,
                Ok(Event::Done(slot)) => self.done(slot as usize)?,
                Err(Error::PeerDisconnected) if self.is_complete => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles a request, or queues it behind others if it needs a slot and none is free.
    fn request(&mut self, message: Vec<u8>) -> Result<(), Error> {
        let request = Request::parse(&message).ok_or(Error::Protocol("unknown SMB2 request"))?;
        let needs_slot = matches!(
            request.body,
            RequestBody::Write { data: WriteData::Channel { .. }, .. }
                | RequestBody::Read { channel: Channel::RdmaV1 | Channel::RdmaV1Invalidate, .. }
        );
        match self.slots.iter().position(Option::is_none) {
            // Requests only wait while no slot is free.
            Some(slot) => self.handle(request, slot),
            _ if !needs_slot => self.handle(request, 0),
            _ if self.waiting.len() >= MAX_WAITING => Err(Error::Protocol("too many requests")),
            _ => {
                self.waiting.push_back(message);
                Ok(())
            }
        }
    }

    /// Handles a request, with `slot` if it needs one.
    fn handle(&mut self, request: Request<'_>, slot: usize) -> Result<(), Error> {
        let message_id = request.message_id;
        let response = match request.body {
            RequestBody::Create { name } => {
                self.report.name = name;
                self.end = 0;
                let cleared =
                    self.store.clear().map_err(|_| (Command::Create, status::INSUFFICIENT_RESOURCES));
                cleared.map(|()| Some(ResponseBody::Create { file: FILE }))
            }
            RequestBody::Close { file } if file == FILE => {
                self.is_complete = true;
                match self.store.digest() {
                    Ok(digest) => {
                        self.report.digest = digest;
                        Ok(Some(ResponseBody::Close))
                    }
                    Err(_) => Err((Command::Close, status::INSUFFICIENT_RESOURCES)),
                }
            }
            RequestBody::Close { .. } => Err((Command::Close, status::FILE_CLOSED)),
            RequestBody::Read { file, offset, length, channel, channel_info } => {
                return self.read(slot, message_id, file, (offset, length), channel, channel_info);
            }
            RequestBody::Write { file, offset, data } => {
                self.write(slot, message_id, file, offset, &data).map_err(|status| (Command::Write, status))
            }
        };
        match response {
            Ok(None) => Ok(()),
            Ok(Some(body)) => self.respond(message_id, body, None),
            Err((command, status)) => self.respond(message_id, ResponseBody::Error { command, status }, None),
        }
    }

    fn respond(
        &mut self,
        message_id: u64,
        body: ResponseBody<'_>,
        invalidate: Option<Token>,
    ) -> Result<(), Error> {
        self.transport.send(Response { message_id, body }.emit(), invalidate)
    }

    /// Handles a READ.
    fn read(
        &mut self,
        slot: usize,
        message_id: u64,
        file: FileId,
        (offset, length): (u64, u32),
        channel: Channel,
        channel_info: &[u8],
    ) -> Result<(), Error> {
        let refused = |status| ResponseBody::Error { command: Command::Read, status };
        let is_there = offset.checked_add(length.into()).is_some_and(|end| end <= self.store.len());
        let status = match () {
            () if file != FILE => Some(status::FILE_CLOSED),
            () if !is_there => Some(status::END_OF_FILE),
            () if length as usize > self.size => Some(status::INVALID_PARAMETER),
            () => None,
        };
        if let Some(status) = status {
            return self.respond(message_id, refused(status), None);
        }
        if channel == Channel::None {
            let data = RefCell::new(vec![0; length as usize]);
            let copied = self.store.read(offset, length as usize, &|at, from| {
                if let Some(into) = data.borrow_mut().get_mut(at..at + from.len()) {
                    into.copy_from_slice(from);
                }
            });
            let data = data.into_inner();
            let body = match copied {
                Ok(()) => ResponseBody::Read { data: &data, transferred: 0 },
                Err(_) => refused(status::INSUFFICIENT_RESOURCES),
            };
            return self.respond(message_id, body, None);
        }
        let descriptors = Descriptors::parse(channel_info, MAX_DESCRIPTORS).ok();
        let segments = descriptors.and_then(|descriptors| {
            Some((descriptors.segments(0, length).ok()?, channel.invalidated_token(&descriptors)))
        });
        let (Some((segments, invalidate)), Some(staging)) = (segments, self.staging) else {
            return self.respond(message_id, refused(status::INVALID_PARAMETER), None);
        };
        let at = slot * self.size;
        let store = |place, from: &[u8]| T::store(staging, at + place, from);
        let stored = self.store.read(offset, length as usize, &store);
        if stored.is_err() {
            return self.respond(message_id, refused(status::INSUFFICIENT_RESOURCES), None);
        }
        let pending = self.transport.write(staging, at, segments, slot as u64)?;
        if pending != 0 {
            self.slots[slot] = Some(Transfer { pending, write: None });
        }
        // The response follows the data on the same queue pair.
        self.respond(message_id, ResponseBody::Read { data: &[], transferred: length }, invalidate)
    }

    /// Handles a WRITE. Returns the response, unless the data are still to be read from the peer, or the status to refuse it.
    fn write(
        &mut self,
        slot: usize,
        message_id: u64,
        file: FileId,
        offset: u64,
        data: &WriteData<'_>,
    ) -> Result<Option<ResponseBody<'static>>, u32> {
        if file != FILE {
            return Err(status::FILE_CLOSED);
        }
        let length = match data {
            WriteData::Message(data) => data.len(),
            WriteData::Channel { length, .. } => *length as usize,
        };
        let end = offset.checked_add(length as u64).ok_or(status::INVALID_PARAMETER)?;
        // A peer does not make this side keep more than it writes.
        if offset > self.end.saturating_add(MAX_GAP) {
            return Err(status::INVALID_PARAMETER);
        }
        match *data {
            WriteData::Message(data) => {
                self.end = self.end.max(end);
                let stored = self.store.write(offset, length, &|at, into| {
                    if let Some(from) = data.get(at..at + into.len()) {
                        into.copy_from_slice(from);
                    }
                });
                stored.map_err(|_| status::INSUFFICIENT_RESOURCES)?;
                self.written(length);
                Ok(Some(ResponseBody::Write { count: length as u32 }))
            }
            WriteData::Channel { channel, channel_info, length } => {
                let staging = self.staging.ok_or(status::INVALID_PARAMETER)?;
                let descriptors = Descriptors::parse(channel_info, MAX_DESCRIPTORS)
                    .ok()
                    .filter(|_| (1..=self.size).contains(&(length as usize)))
                    .ok_or(status::INVALID_PARAMETER)?;
                let segments = descriptors.segments(0, length).map_err(|_| status::INVALID_PARAMETER)?;
                let pending = self
                    .transport
                    .read(staging, slot * self.size, segments, slot as u64)
                    .map_err(|_| status::INSUFFICIENT_RESOURCES)?;
                let invalidate = channel.invalidated_token(&descriptors);
                self.end = self.end.max(end);
                let length = length as usize;
                let write = PendingWrite { message_id, offset, length, invalidate };
                self.slots[slot] = Some(Transfer { pending, write: Some(write) });
                Ok(None)
            }
        }
    }

    /// An RDMA request of `slot` has completed.
    fn done(&mut self, slot: usize) -> Result<(), Error> {
        let transfer = self.slots.get_mut(slot).and_then(Option::as_mut);
        let transfer = transfer.ok_or(Error::Mismatch("no transfer uses this memory"))?;
        transfer.pending -= 1;
        if transfer.pending != 0 {
            return Ok(());
        }
        let write = self.slots[slot].take().and_then(|transfer| transfer.write);
        if let Some(PendingWrite { message_id, offset, length, invalidate }) = write {
            let staging = self.staging.ok_or(Error::Mismatch("no transfer uses this memory"))?;
            let from = slot * self.size;
            let load = |at, into: &mut [u8]| T::load(staging, from + at, into);
            let body = match self.store.write(offset, length, &load) {
                Ok(()) => {
                    self.written(length);
                    ResponseBody::Write { count: length as u32 }
                }
                Err(_) => {
                    ResponseBody::Error { command: Command::Write, status: status::INSUFFICIENT_RESOURCES }
                }
            };
            self.respond(message_id, body, invalidate)?;
        }
        // A request that is refused leaves the slot to the next one.
        while self.slots[slot].is_none()
            && let Some(message) = self.waiting.pop_front()
        {
            let request = Request::parse(&message).ok_or(Error::Protocol("unknown SMB2 request"))?;
            self.handle(request, slot)?;
        }
        Ok(())
    }

    fn written(&mut self, length: usize) {
        self.report.bytes += length as u64;
        let total = self.store.len();
        (self.progress)(Progress { phase: Phase::Write, done: self.report.bytes, total });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    /// A peer that sends requests and disconnects.
    struct Requests {
        requests: VecDeque<Vec<u8>>,
        responses: Vec<Vec<u8>>,
    }

    impl MessageStream for Requests {
        fn now(&self) -> core::time::Duration {
            core::time::Duration::ZERO
        }

        fn send(&mut self, message: &[u8]) -> Result<(), Error> {
            self.responses.push(message.to_vec());
            Ok(())
        }

        fn receive(&mut self) -> Result<Vec<u8>, Error> {
            self.requests.pop_front().ok_or(Error::PeerDisconnected)
        }
    }

    #[test]
    fn requests_for_memory_of_the_peer_are_refused_on_a_stream() {
        let (file, offset, channel, channel_info) = (FILE, 0, Channel::RdmaV1Invalidate, &[0; 16][..]);
        let by_channel = WriteData::Channel { channel, channel_info, length: 4 };
        let bodies = [
            RequestBody::Create { name: "file".into() },
            RequestBody::Write { file, offset, data: by_channel },
            RequestBody::Write { file, offset, data: WriteData::Message(b"data") },
            RequestBody::Read { file, offset, length: 4, channel, channel_info },
            RequestBody::Read { file, offset, length: 4, channel: Channel::None, channel_info: &[] },
            RequestBody::Close { file },
        ];
        let requests = (1..).zip(bodies).map(|(message_id, body)| Request { message_id, body }.emit());
        let mut peer = Requests { requests: requests.collect(), responses: Vec::new() };
        let mut store = MemoryStore::default();
        let report = serve_over(&mut peer, &Options::default(), &mut store, &|_| {}).unwrap();
        assert_eq!((report.bytes, store.len()), (4, 4));
        let refused = |command| ResponseBody::Error { command, status: status::INVALID_PARAMETER };
        let expected = [
            ResponseBody::Create { file },
            refused(Command::Write),
            ResponseBody::Write { count: 4 },
            refused(Command::Read),
            ResponseBody::Read { data: b"data", transferred: 0 },
            ResponseBody::Close,
        ];
        let bodies = peer.responses.iter().map(|response| Response::parse(response).unwrap().body);
        assert_eq!(bodies.collect::<Vec<_>>(), expected);
    }
}
