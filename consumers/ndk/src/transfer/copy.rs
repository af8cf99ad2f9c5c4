// SPDX-License-Identifier: MIT OR Apache-2.0

//! The copying side: connects, writes the file to the peer, and reads it back.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use sha2::{Digest as _, Sha256};

use super::message::{MAX_MESSAGE, MAX_NAME, Message, SegmentProposal};
use super::{Digest, Failure, Options, Phase, Progress, Report, Source};
use crate::endpoint::{Endpoint, EndpointConfig, EndpointEvent};
use crate::os::Os;
use crate::stats::Operation;
use crate::{Access, Adapter, Error, Memory, RemoteMemory};

/// Connects from `local`, port 0 for any, to `remote`, and copies `source` there and back. All objects are closed on return.
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
    let mut report = Report { name: truncated(name).to_owned(), ..Report::default() };
    let config = EndpointConfig { requests: options.outstanding.max(2), receives: 8, message: MAX_MESSAGE };
    let outcome = Endpoint::new(adapter, config).and_then(|mut endpoint| {
        // Declared here to be closed after the connection that uses it.
        let mut memory = None;
        let outcome = staging(&endpoint, options).and_then(|staging| {
            let staging = memory.insert(staging);
            let mut copying =
                Copying { endpoint: &mut endpoint, staging, options, source, progress, report: &mut report };
            copying.run(local, remote)
        });
        let (outcome, stats) = endpoint.close(outcome);
        report.stats = stats;
        drop(memory);
        outcome
    });
    report.of(outcome)
}

/// Registered memory of this side.
struct Staging<O: Os> {
    /// One slot of `options.chunk` bytes per outstanding request.
    slots: Memory<O>,
    /// Destination of the peer's digest.
    receipt: Memory<O>,
}

struct Copying<'a, O: Os, S: ?Sized> {
    endpoint: &'a mut Endpoint<O>,
    staging: &'a Staging<O>,
    options: &'a Options,
    source: &'a S,
    progress: &'a dyn Fn(Progress),
    report: &'a mut Report,
}

/// A part of a segment.
#[derive(Clone, Copy)]
struct Chunk {
    slot: usize,
    /// Offset in the segment.
    at: u64,
    length: usize,
}

fn staging<O: Os>(endpoint: &Endpoint<O>, options: &Options) -> Result<Staging<O>, Error> {
    let register = |length, access| {
        Memory::new(endpoint.pd(), length, access).map_err(|status| Error::Call("NdkRegisterMr", status))
    };
    Ok(Staging {
        slots: register(options.chunk * options.outstanding as usize, Access::LocalWrite)?,
        receipt: register(size_of::<Digest>(), Access::RemoteWrite)?,
    })
}

impl<O: Os, S: Source + ?Sized> Copying<'_, O, S> {
    fn run(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), Error> {
        let proposal = SegmentProposal { segment: self.options.segment as u64 };
        let reply = self.endpoint.connect(local, remote, &proposal.encode())?;
        SegmentProposal::decode(&reply.private_data).ok_or(Error::Protocol("invalid private data"))?;

        let size = self.source.len();
        let receipt = self.staging.receipt.remote(size_of::<Digest>());
        self.send_message(&Message::Announce { size, receipt, name: self.report.name.clone() })?;
        let Message::Window(window) = self.receive_message()? else {
            return Err(Error::Protocol("the peer announced no memory"));
        };
        if window.length == 0 && size != 0 {
            return Err(Error::Protocol("the peer announced no memory"));
        }

        let (mut written, mut read_back) = (Sha256::new(), Sha256::new());
        let mut offset = 0;
        while offset < size {
            let length = window.length.min(size - offset);
            self.write(&window, offset, length, &mut written)?;
            self.send_message(&Message::Written { offset, length })?;
            if self.receive_message()? != (Message::Verified { offset }) {
                return Err(Error::Protocol("the peer verified another segment"));
            }
            self.read(&window, offset, length, &mut read_back)?;
            offset += length;
        }

        let digest: Digest = written.finalize().into();
        let returned: Digest = read_back.finalize().into();
        self.report.digest = Some(digest);
        self.report.returned = Some(returned);
        self.send_message(&Message::Finish { digest })?;
        if self.receive_message()? != Message::Receipt {
            return Err(Error::Protocol("expected a receipt"));
        }
        let mut peer_digest = Digest::default();
        self.staging.receipt.load(0, &mut peer_digest);
        if peer_digest != digest {
            return Err(Error::Digest("SHA-256 of the serving side"));
        }
        if returned != digest {
            return Err(Error::Digest("SHA-256 of the data read back"));
        }
        // A disconnect would flush requests that the peer has not acknowledged yet.
        self.endpoint.complete_requests()
    }

    /// Writes a segment with up to `options.outstanding` chunks at once.
    fn write(
        &mut self,
        window: &RemoteMemory,
        offset: u64,
        length: u64,
        hash: &mut Sha256,
    ) -> Result<(), Error> {
        let started = self.now();
        let mut buffer = vec![0; self.options.chunk];
        let (mut done, total) = (offset, self.source.len());
        for chunk in self.chunks(length) {
            while self.endpoint.outstanding_requests() >= u64::from(self.options.outstanding) {
                done += self.next_chunk(Operation::Write)?.length as u64;
                (self.progress)(Progress { phase: Phase::Write, done, total });
            }
            let bytes = &mut buffer[..chunk.length];
            self.source.read_at(offset + chunk.at, bytes).map_err(Error::ReadSource)?;
            hash.update(&*bytes);
            let slot = chunk.slot * self.options.chunk;
            self.staging.slots.store(slot, bytes);
            let sge = self.staging.slots.sge(slot, chunk.length);
            self.endpoint.write(sge, window, chunk.at, chunk.length as u64)?;
        }
        while self.endpoint.outstanding_requests() != 0 {
            done += self.next_chunk(Operation::Write)?.length as u64;
            (self.progress)(Progress { phase: Phase::Write, done, total });
        }
        self.report.write += self.now().saturating_sub(started);
        Ok(())
    }

    /// Reads a segment back. Requests of one queue pair complete in the order of their posts.
    //= R-CQ-21
    fn read(
        &mut self,
        window: &RemoteMemory,
        offset: u64,
        length: u64,
        hash: &mut Sha256,
    ) -> Result<(), Error> {
        let started = self.now();
        let mut buffer = vec![0; self.options.chunk];
        let mut posted = VecDeque::new();
        let mut chunks = self.chunks(length);
        let total = self.source.len();
        loop {
            while posted.len() < self.options.outstanding as usize {
                let Some(chunk) = chunks.next() else { break };
                let sge = self.staging.slots.sge(chunk.slot * self.options.chunk, chunk.length);
                self.endpoint.read(sge, window, chunk.at, chunk.length as u64)?;
                posted.push_back(chunk);
            }
            let Some(chunk) = posted.pop_front() else { break };
            self.next_chunk(Operation::Read)?;
            let bytes = &mut buffer[..chunk.length];
            self.staging.slots.load(chunk.slot * self.options.chunk, bytes);
            hash.update(&*bytes);
            self.report.bytes = offset + chunk.at + chunk.length as u64;
            (self.progress)(Progress { phase: Phase::Read, done: self.report.bytes, total });
        }
        self.report.read += self.now().saturating_sub(started);
        Ok(())
    }

    /// Waits for the next completed chunk; ignores completed sends.
    fn next_chunk(&mut self, operation: Operation) -> Result<Chunk, Error> {
        loop {
            match self.endpoint.wait()? {
                EndpointEvent::Done(done, length) if done == operation => {
                    return Ok(Chunk { slot: 0, at: 0, length: length as usize });
                }
                EndpointEvent::Done(Operation::Send, _) => {}
                EndpointEvent::Done(..) => return Err(Error::Mismatch("another operation")),
                EndpointEvent::Message(_) => return Err(Error::Protocol("unexpected message")),
            }
        }
    }

    /// Divides a segment into chunks, which use the slots in turn.
    fn chunks(&self, length: u64) -> impl Iterator<Item = Chunk> + use<O, S> {
        let (size, slots) = (self.options.chunk as u64, self.options.outstanding as usize);
        (0..length.div_ceil(size)).map(move |index| Chunk {
            slot: index as usize % slots,
            at: index * size,
            length: size.min(length - index * size) as usize,
        })
    }

    fn send_message(&mut self, message: &Message) -> Result<(), Error> {
        self.endpoint.send(&message.encode(), 0)
    }

    fn receive_message(&mut self) -> Result<Message, Error> {
        let received = self.endpoint.next_message()?;
        let mut bytes = Vec::new();
        self.endpoint.take(received, &mut bytes)?;
        Message::decode(&bytes).ok_or(Error::Protocol("invalid message"))
    }

    fn now(&self) -> core::time::Duration {
        self.endpoint.pd().adapter().os().now()
    }
}

/// Truncates `name` to the length that an announcement can carry.
fn truncated(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}
