// SPDX-License-Identifier: MIT OR Apache-2.0

//! The serving side: holds one file in memory, and reads and writes the peer's memory for its requests.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use ndk_consumer::endpoint::listen_for_one;
use ndk_consumer::transfer::{Failure, Phase, Progress, Report};
use ndk_consumer::{Access, Adapter, Error, Memory, Os};
use sha2::{Digest as _, Sha256};
use smb_direct::{Channel, Descriptors, Token};

use crate::smb2::{Command, FileId, Request, RequestBody, Response, ResponseBody, WriteData, status};
use crate::transfer::Options;
use crate::{Event, Session};

/// Descriptors of one request. Windows' and Linux's clients send one.
const MAX_DESCRIPTORS: usize = 16;
/// Requests that wait for staging memory.
const MAX_WAITING: usize = 1024;
/// Bytes behind the end of the file at which a WRITE may begin.
const MAX_GAP: usize = 64 << 20;
/// The only file.
const FILE: FileId = [1; 16];

/// Accepts one connection at `local` and serves it until the peer disconnects. Calls `ready` with the address when it listens.
/// All objects are closed on return.
///
/// # Errors
/// See [`Error`].
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    ready: impl FnOnce(SocketAddr),
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    let outcome = listen_for_one(adapter, local, options.timeout, ready).and_then(|connector| {
        let mut session = Session::passive(adapter, &options.config)?;
        // Declared here to be closed after the connection that uses it.
        let mut staging = None;
        let outcome = session.accept(connector).and_then(|parameters| {
            let size = options.chunk.min(parameters.max_read_write_size as usize);
            let memory = Memory::new(session.pd(), size * options.outstanding, Access::LocalWrite)
                .map_err(|status| Error::Call("NdkRegisterMr", status))?;
            let server = Server {
                session: &mut session,
                staging: staging.insert(memory),
                size,
                slots: (0..options.outstanding).map(|_| None).collect(),
                waiting: VecDeque::new(),
                content: Vec::new(),
                is_complete: false,
                report: &mut report,
                progress,
            };
            server.run()
        });
        let (outcome, stats) = session.close(outcome);
        report.stats = stats;
        drop(staging);
        outcome
    });
    report.of(outcome)
}

struct Server<'a, O: Os> {
    session: &'a mut Session<O>,
    /// Slots of `size` bytes each, for one transfer each.
    staging: &'a Memory<O>,
    size: usize,
    slots: Vec<Option<Transfer>>,
    /// Requests without a slot, oldest first.
    waiting: VecDeque<Vec<u8>>,
    content: Vec<u8>,
    /// The peer has closed the file.
    is_complete: bool,
    report: &'a mut Report,
    progress: &'a dyn Fn(Progress),
}

/// A transfer between staging memory and the peer.
struct Transfer {
    /// RDMA requests that have not completed.
    pending: usize,
    /// What is to be done when they have.
    write: Option<PendingWrite>,
}

/// A WRITE whose data are being read from the peer.
struct PendingWrite {
    message_id: u64,
    offset: usize,
    length: usize,
    invalidate: Option<Token>,
}

impl<O: Os> Server<'_, O> {
    fn run(mut self) -> Result<(), Error> {
        loop {
            match self.session.next_event() {
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
            Some(slot) if self.waiting.is_empty() => self.handle(request, slot),
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
                self.content.clear();
                Ok(Some(ResponseBody::Create { file: FILE }))
            }
            RequestBody::Close { file } if file == FILE => {
                self.report.digest = Some(Sha256::digest(&self.content).into());
                self.is_complete = true;
                Ok(Some(ResponseBody::Close))
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
        self.session.send(Response { message_id, body }.emit(), invalidate)
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
        let place = if file == FILE {
            usize::try_from(offset)
                .ok()
                .and_then(|from| self.content.get(from..)?.get(..length as usize))
                .ok_or(status::END_OF_FILE)
        } else {
            Err(status::FILE_CLOSED)
        };
        let refused = |status| ResponseBody::Error { command: Command::Read, status };
        let data = match place {
            Ok(data) => data,
            Err(status) => return self.respond(message_id, refused(status), None),
        };
        if channel == Channel::None {
            let data = data.to_vec();
            return self.respond(message_id, ResponseBody::Read { data: &data, transferred: 0 }, None);
        }
        let descriptors = Descriptors::parse(channel_info, MAX_DESCRIPTORS).ok();
        let segments = descriptors.filter(|_| data.len() <= self.size).and_then(|descriptors| {
            Some((descriptors.segments(0, length).ok()?, channel.invalidated_token(&descriptors)))
        });
        let Some((segments, invalidate)) = segments else {
            return self.respond(message_id, refused(status::INVALID_PARAMETER), None);
        };
        let at = slot * self.size;
        self.staging.store(at, data);
        let pending = self.session.write(self.staging, at, segments, slot as u64)?;
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
        let offset = usize::try_from(offset).map_err(|_| status::INVALID_PARAMETER)?;
        let end = offset.checked_add(length).ok_or(status::INVALID_PARAMETER)?;
        // A peer does not make this side allocate more than it writes.
        if offset > self.content.len() + MAX_GAP {
            return Err(status::INVALID_PARAMETER);
        }
        if end > self.content.len() {
            let more = end - self.content.len();
            self.content.try_reserve(more).map_err(|_| status::INSUFFICIENT_RESOURCES)?;
            self.content.resize(end, 0);
        }
        match *data {
            WriteData::Message(data) => {
                self.content[offset..end].copy_from_slice(data);
                self.written(length);
                Ok(Some(ResponseBody::Write { count: length as u32 }))
            }
            WriteData::Channel { channel, channel_info, length } => {
                let descriptors = Descriptors::parse(channel_info, MAX_DESCRIPTORS)
                    .ok()
                    .filter(|_| (1..=self.size).contains(&(length as usize)))
                    .ok_or(status::INVALID_PARAMETER)?;
                let segments = descriptors.segments(0, length).map_err(|_| status::INVALID_PARAMETER)?;
                let pending = self
                    .session
                    .read(self.staging, slot * self.size, segments, slot as u64)
                    .map_err(|_| status::INSUFFICIENT_RESOURCES)?;
                let invalidate = channel.invalidated_token(&descriptors);
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
            self.staging.load(slot * self.size, &mut self.content[offset..offset + length]);
            self.written(length);
            self.respond(message_id, ResponseBody::Write { count: length as u32 }, invalidate)?;
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
        let total = self.content.len() as u64;
        (self.progress)(Progress { phase: Phase::Write, done: self.report.bytes, total });
    }
}
