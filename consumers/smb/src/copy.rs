// SPDX-License-Identifier: MIT OR Apache-2.0

//! The copying side: writes a file to the peer and reads it back, with several requests in flight.
//!
//! [`copy()`] transfers a [`Source`] and compares digests; [`measure()`] transfers the same requests without looking at the data.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use ndk_consumer::transfer::{Digest, Failure, Phase, Progress, Report, Source};
use ndk_consumer::{Access, Adapter, Cause, Error, Os};
use sha2::{Digest as _, Sha256};
use smb_direct::{Channel, Token};

use crate::smb2::{FileId, Request, RequestBody, Response, ResponseBody, WriteData};
use crate::transfer::Options;
use crate::transport::{ClientTransport, MessageStream, Stream};
use crate::{Event, Session};

/// Connects from `local`, port 0 for any, to `remote`, port 0 for those of SMB Direct, and copies `source` there and back. All objects
/// are closed on return.
///
/// # Errors
/// See [`Error`].
pub fn copy<O: Os, S: Source + ?Sized>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    remote: SocketAddr,
    name: &str,
    source: &S,
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut content = Hashed::new(source);
    let (outcome, report) = run(adapter, options, local, remote, name, &mut content, progress);
    content.compare(outcome, report)
}

/// Copies a file over a stream that is connected, otherwise as [`copy()`].
///
/// # Errors
/// See [`Error`].
pub fn copy_over<M: MessageStream, S: Source + ?Sized>(
    stream: &mut M,
    options: &Options,
    name: &str,
    source: &S,
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut content = Hashed::new(source);
    let mut report = Report { name: name.to_owned(), ..Report::default() };
    let outcome = run_over(stream, options, &mut content, progress, &mut report);
    content.compare(outcome, report)
}

/// Measures a copy of `bytes` bytes of no meaning, which are neither produced nor looked at.
///
/// # Errors
/// See [`Error`].
pub fn measure<O: Os>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    remote: SocketAddr,
    bytes: u64,
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let (outcome, report) = run(adapter, options, local, remote, "", &mut Untouched(bytes), progress);
    report.of(outcome)
}

/// Measures a copy over a stream that is connected, otherwise as [`measure()`].
///
/// # Errors
/// See [`Error`].
pub fn measure_over<M: MessageStream>(
    stream: &mut M,
    options: &Options,
    bytes: u64,
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    let outcome = run_over(stream, options, &mut Untouched(bytes), progress, &mut report);
    report.of(outcome)
}

/// The bytes that are transferred.
trait Content {
    fn len(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on. In order of the offsets.
    fn fill(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Cause>;

    /// Takes bytes that were read back, in order.
    fn take(&mut self, bytes: &[u8]);

    /// The bytes are looked at: registered memory has them.
    fn is_real(&self) -> bool;
}

/// A source, hashed as it is read and as it comes back.
struct Hashed<'a, S: ?Sized> {
    source: &'a S,
    written: Sha256,
    read_back: Sha256,
}

/// A number of bytes.
struct Untouched(u64);

impl<'a, S: ?Sized> Hashed<'a, S> {
    fn new(source: &'a S) -> Self {
        Self { source, written: Sha256::new(), read_back: Sha256::new() }
    }

    /// Compares the digests, if all was transferred.
    fn compare(self, outcome: Result<(), Error>, mut report: Report) -> Result<Report, Box<Failure>> {
        let outcome = outcome.and_then(|()| {
            let [digest, returned]: [Digest; 2] =
                [self.written, self.read_back].map(|hash| hash.finalize().into());
            (report.digest, report.returned) = (Some(digest), Some(returned));
            if returned == digest { Ok(()) } else { Err(Error::Digest("SHA-256 of the data read back")) }
        });
        report.of(outcome)
    }
}

impl<S: Source + ?Sized> Content for Hashed<'_, S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn fill(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        self.source.read_at(offset, into)?;
        self.written.update(into);
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        self.read_back.update(bytes);
    }

    fn is_real(&self) -> bool {
        true
    }
}

impl Content for Untouched {
    fn len(&self) -> u64 {
        self.0
    }

    fn fill(&mut self, _offset: u64, _into: &mut [u8]) -> Result<(), Cause> {
        Ok(())
    }

    fn take(&mut self, _bytes: &[u8]) {}

    fn is_real(&self) -> bool {
        false
    }
}

/// Transfers `content` there and back over a stream.
fn run_over<M: MessageStream>(
    stream: &mut M,
    options: &Options,
    content: &mut dyn Content,
    progress: &dyn Fn(Progress),
    report: &mut Report,
) -> Result<(), Error> {
    let mut slots = Vec::new();
    transfer(&mut Stream(stream), &mut slots, options, options.chunk, content, progress, report)
}

/// Transfers `content` there and back by SMB Direct.
fn run<O: Os>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    remote: SocketAddr,
    name: &str,
    content: &mut dyn Content,
    progress: &dyn Fn(Progress),
) -> (Result<(), Error>, Report) {
    let mut report = Report { name: name.to_owned(), ..Report::default() };
    let outcome = Session::reach(adapter, options, local, remote).and_then(|(mut session, parameters)| {
        let chunk = options.chunk.min(parameters.max_read_write_size as usize);
        // Declared here to be closed after the connection that uses it.
        let mut slots = Vec::new();
        let outcome = transfer(&mut session, &mut slots, options, chunk, content, progress, &mut report);
        let (outcome, stats) = session.close(outcome);
        report.stats = stats;
        drop(slots);
        outcome
    });
    (outcome, report)
}

/// Transfers `content` in requests of `chunk` bytes, whose memory is left in `slots`.
fn transfer<T: ClientTransport>(
    transport: &mut T,
    slots: &mut Vec<Slot<T::Memory>>,
    options: &Options,
    chunk: usize,
    content: &mut dyn Content,
    progress: &dyn Fn(Progress),
    report: &mut Report,
) -> Result<(), Error> {
    for _ in 0..options.outstanding {
        slots.push(Slot { memory: transport.memory(chunk)?, state: SlotState::Free });
    }
    let order = VecDeque::new();
    let file = FileId::default();
    let mut copying =
        Copying { transport, slots, order, chunk, next_message: 1, file, content, progress, report };
    copying.run()
}

/// Memory for one request.
struct Slot<M> {
    memory: M,
    state: SlotState,
}

/// Progress of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    /// The response is awaited.
    Sent {
        message_id: u64,
        /// The memory is registered for the peer.
        is_registered: bool,
    },
    /// The peer left this number of registrations to this side, which invalidates them.
    Invalidating(usize),
    /// The data are complete, and the peer has no access.
    Complete,
}

/// A part of the file.
#[derive(Clone, Copy)]
struct Chunk {
    slot: usize,
    offset: u64,
    length: usize,
}

struct Copying<'a, T: ClientTransport> {
    transport: &'a mut T,
    slots: &'a mut [Slot<T::Memory>],
    /// Chunks in flight, oldest first.
    order: VecDeque<Chunk>,
    chunk: usize,
    next_message: u64,
    file: FileId,
    content: &'a mut dyn Content,
    progress: &'a dyn Fn(Progress),
    report: &'a mut Report,
}

impl<T: ClientTransport> Copying<'_, T> {
    fn run(&mut self) -> Result<(), Error> {
        let name = self.report.name.clone();
        let Answer::Created(file) = self.command(RequestBody::Create { name })? else {
            return Err(Error::Protocol("the file was not created"));
        };
        self.file = file;
        let started = self.now();
        self.transfer(Phase::Write)?;
        self.report.write = self.now().saturating_sub(started);
        let started = self.now();
        self.transfer(Phase::Read)?;
        self.report.read = self.now().saturating_sub(started);
        let file = self.file;
        match self.command(RequestBody::Close { file })? {
            Answer::Closed => Ok(()),
            Answer::Created(_) => Err(Error::Protocol("the file was not closed")),
        }
    }

    /// Transfers the whole file with a request per slot in flight.
    fn transfer(&mut self, phase: Phase) -> Result<(), Error> {
        let total = self.content.len();
        let (mut begun, mut done) = (0, 0);
        while done < total {
            while begun < total
                && let Some(slot) = self.slots.iter().position(|slot| slot.state == SlotState::Free)
            {
                let length = (total - begun).min(self.chunk as u64) as usize;
                let chunk = Chunk { slot, offset: begun, length };
                match phase {
                    Phase::Write => self.write(chunk)?,
                    Phase::Read => self.read(chunk)?,
                }
                self.order.push_back(chunk);
                begun += length as u64;
            }
            let Some(&chunk) = self.order.front() else { break };
            let slot = &mut self.slots[chunk.slot];
            if slot.state != SlotState::Complete {
                self.wait()?;
                continue;
            }
            slot.state = SlotState::Free;
            self.order.pop_front();
            done += chunk.length as u64;
            if phase == Phase::Read {
                if self.content.is_real() {
                    let mut bytes = vec![0; chunk.length];
                    T::load(&slot.memory, &mut bytes);
                    self.content.take(&bytes);
                }
                self.report.bytes = done;
            }
            (self.progress)(Progress { phase, done, total });
        }
        Ok(())
    }

    fn write(&mut self, chunk: Chunk) -> Result<(), Error> {
        let is_message = T::is_in_message(chunk.length);
        let copied = if is_message || self.content.is_real() { chunk.length } else { 0 };
        let mut bytes = vec![0; copied];
        self.content.fill(chunk.offset, &mut bytes).map_err(Error::ReadSource)?;
        let (file, offset) = (self.file, chunk.offset);
        if !is_message {
            T::store(&mut self.slots[chunk.slot].memory, &bytes);
        }
        let channel_info = self.register(chunk, Access::RemoteRead)?;
        let data = match &channel_info {
            None => WriteData::Message(&bytes),
            Some(channel_info) => {
                let (channel, length) = (Channel::RdmaV1Invalidate, chunk.length as u32);
                WriteData::Channel { channel, channel_info, length }
            }
        };
        self.send(chunk.slot, channel_info.is_some(), RequestBody::Write { file, offset, data })
    }

    fn read(&mut self, chunk: Chunk) -> Result<(), Error> {
        let (file, offset, length) = (self.file, chunk.offset, chunk.length as u32);
        let registered = self.register(chunk, Access::RemoteWrite)?;
        let channel = registered.as_ref().map_or(Channel::None, |_| Channel::RdmaV1Invalidate);
        let channel_info = registered.as_deref().unwrap_or_default();
        let body = RequestBody::Read { file, offset, length, channel, channel_info };
        self.send(chunk.slot, registered.is_some(), body)
    }

    /// Registers the memory of `chunk` for the peer; returns the channel information, or `None` if the data are to be in the message.
    fn register(&mut self, chunk: Chunk, access: Access) -> Result<Option<Vec<u8>>, Error> {
        let memory = &self.slots[chunk.slot].memory;
        self.transport.register(memory, chunk.length, access, tag(chunk.slot, Purpose::Register))
    }

    fn send(&mut self, slot: usize, is_registered: bool, body: RequestBody<'_>) -> Result<(), Error> {
        let message_id = self.message_id();
        self.slots[slot].state = SlotState::Sent { message_id, is_registered };
        self.transport.send(Request { message_id, body }.emit(), None)
    }

    fn message_id(&mut self) -> u64 {
        let message_id = self.next_message;
        self.next_message += 1;
        message_id
    }

    /// Waits for the next event and handles it.
    fn wait(&mut self) -> Result<(), Error> {
        match self.transport.next_event()? {
            Event::Done(done) => self.done(done),
            Event::Message { bytes, invalidated } => self.response(&bytes, invalidated),
        }
    }

    fn done(&mut self, done: u64) -> Result<(), Error> {
        let (slot, Purpose::Invalidate) = purpose(done) else { return Ok(()) };
        let state = &mut self.slots[slot].state;
        *state = match *state {
            SlotState::Invalidating(1) => SlotState::Complete,
            SlotState::Invalidating(left) => SlotState::Invalidating(left - 1),
            _ => return Err(Error::Mismatch("no registration was to be invalidated")),
        };
        Ok(())
    }

    fn response(&mut self, bytes: &[u8], invalidated: Option<Token>) -> Result<(), Error> {
        let response = Response::parse(bytes).ok_or(Error::Protocol("unknown SMB2 response"))?;
        let of_slot = |slot: &Slot<T::Memory>| match slot.state {
            SlotState::Sent { message_id, is_registered } if message_id == response.message_id => {
                Some(is_registered)
            }
            _ => None,
        };
        let found = self.slots.iter().enumerate().find_map(|(at, slot)| Some((at, of_slot(slot)?)));
        let (at, is_registered) = found.ok_or(Error::Protocol("response to no request"))?;
        let chunk = self.order.iter().find(|chunk| chunk.slot == at);
        let length = chunk.map_or(0, |chunk| chunk.length);
        let slot = &mut self.slots[at];
        match response.body {
            ResponseBody::Write { count } if count as usize == length => {}
            ResponseBody::Read { data: [], transferred } if transferred as usize == length => {}
            ResponseBody::Read { data, .. } if !is_registered && data.len() == length => {
                T::store(&mut slot.memory, data);
            }
            ResponseBody::Error { .. } => return Err(Error::Protocol("the peer refused a request")),
            _ => return Err(Error::Protocol("unexpected SMB2 response")),
        }
        let left = if is_registered {
            self.transport.invalidate(&slot.memory, length, invalidated, tag(at, Purpose::Invalidate))?
        } else {
            0
        };
        slot.state = if left == 0 { SlotState::Complete } else { SlotState::Invalidating(left) };
        Ok(())
    }

    /// Sends a command that transfers no data, while none is in flight, and waits for its response.
    fn command(&mut self, body: RequestBody<'_>) -> Result<Answer, Error> {
        let message_id = self.message_id();
        self.transport.send(Request { message_id, body }.emit(), None)?;
        loop {
            let bytes = match self.transport.next_event()? {
                Event::Message { bytes, .. } => bytes,
                Event::Done(_) => continue,
            };
            return match Response::parse(&bytes) {
                Some(response) if response.message_id != message_id => {
                    Err(Error::Protocol("response to no request"))
                }
                Some(Response { body: ResponseBody::Create { file }, .. }) => Ok(Answer::Created(file)),
                Some(Response { body: ResponseBody::Close, .. }) => Ok(Answer::Closed),
                _ => Err(Error::Protocol("unexpected SMB2 response")),
            };
        }
    }

    fn now(&self) -> core::time::Duration {
        self.transport.now()
    }
}

/// The response to a command without data.
enum Answer {
    Created(FileId),
    Closed,
}

/// The purpose of a request of NDKPI.
#[derive(Clone, Copy)]
enum Purpose {
    Register,
    Invalidate,
}

/// Returns the tag of a request for the memory of `slot`.
fn tag(slot: usize, purpose: Purpose) -> u64 {
    slot as u64 * 2 + purpose as u64
}

/// Returns the slot and the purpose of a tag.
fn purpose(tag: u64) -> (usize, Purpose) {
    ((tag / 2) as usize, if tag.is_multiple_of(2) { Purpose::Register } else { Purpose::Invalidate })
}
