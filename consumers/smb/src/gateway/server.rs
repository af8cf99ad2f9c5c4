// SPDX-License-Identifier: MIT OR Apache-2.0

//! The gateway of a server without RDMA: reads and writes the memory of a client of SMB Direct.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use ndk_consumer::stats::RequestStats;
use ndk_consumer::{Access, Adapter, Connector, Error, Memory, Os};
use smb_direct::{Channel, Descriptors, Token};

use super::plain::{Counts, MORE_THAN_ASKED, Next, POLL, Plain, next};
use crate::smb2::{Request, RequestBody, Response, ResponseBody, WriteData, rewrite, status};
use crate::transfer::Options;
use crate::{Event, Session};

/// Descriptors of one request. Windows' and Linux's clients send one.
const MAX_DESCRIPTORS: usize = 16;
/// READs and WRITEs by channel that have not ended.
const MAX_REQUESTS: usize = 1024;

/// Accepts the client of `connector`, and passes its requests to the server behind `plain` until one of them disconnects. All
/// objects are closed on return.
pub fn server<O: Os, P: Plain>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    connector: Connector<O>,
    plain: &mut P,
) -> (Result<Counts, Error>, RequestStats) {
    let mut session = match Session::passive(adapter, options) {
        Ok(session) => session,
        Err(error) => return (Err(error), RequestStats::default()),
    };
    // Declared here to be closed after the connection that uses it.
    let mut staging = None;
    let outcome = session.accept(connector).and_then(|parameters| {
        let size = options.chunk.min(parameters.max_read_write_size as usize);
        let memory = Memory::new(session.pd(), size * options.outstanding, Access::LocalWrite)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let gateway = Gateway {
            session: &mut session,
            plain,
            staging: staging.insert(memory),
            size,
            slots: (0..options.outstanding).map(|_| None).collect(),
            waiting: VecDeque::new(),
            requests: BTreeMap::new(),
            counts: Counts::default(),
        };
        gateway.run()
    });
    let closed = session.close(outcome);
    drop(staging);
    closed
}

struct Gateway<'a, O: Os, P> {
    session: &'a mut Session<O>,
    plain: &'a mut P,
    /// Slots of `size` bytes each, for one transfer each.
    staging: &'a Memory<O>,
    size: usize,
    slots: Vec<Option<Transfer>>,
    /// Transfers without a slot, oldest first.
    waiting: VecDeque<Waiting>,
    /// Requests by channel that the server has, by `MessageId`.
    requests: BTreeMap<u64, Pending>,
    counts: Counts,
}

/// A request whose response is awaited.
struct Pending {
    channel_info: Vec<u8>,
    /// Bytes to transfer, up to the size of a slot.
    length: u32,
    /// The token that the response invalidates.
    invalidate: Option<Token>,
    is_read: bool,
}

enum Waiting {
    /// A WRITE of the client.
    Request(Vec<u8>),
    /// The response to a READ.
    Response(Vec<u8>, Pending),
}

/// A transfer between staging memory and the client.
struct Transfer {
    /// RDMA requests that have not completed.
    pending: usize,
    /// The WRITE whose data are being read, and their length.
    write: Option<(Vec<u8>, usize)>,
}

impl<O: Os, P: Plain> Gateway<'_, O, P> {
    fn run(mut self) -> Result<Counts, Error> {
        loop {
            let timeout = match next(self.plain)? {
                Next::Message(message) => {
                    self.response(message)?;
                    Duration::ZERO
                }
                Next::Nothing => POLL,
                Next::Closed => return Ok(self.counts),
            };
            match self.session.next_event_within(timeout) {
                Ok(Some(Event::Message { bytes, .. })) => self.request(bytes)?,
                Ok(Some(Event::Done(slot))) => self.done(slot as usize)?,
                Ok(None) => {}
                Err(Error::PeerDisconnected) => return Ok(self.counts),
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles a request of the client.
    fn request(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.counts.messages += 1;
        let Some((id, pending)) = by_channel(&message)? else { return self.pass_to_server(&message) };
        if pending.length as usize > self.size {
            return Err(Error::Protocol("a transfer longer than MaxReadWriteSize"));
        }
        if self.requests.len() + self.waiting.len() >= MAX_REQUESTS {
            return Err(Error::Protocol("too many requests"));
        }
        let is_read = pending.is_read;
        if self.requests.insert(id, pending).is_some() {
            return Err(Error::Protocol("two requests of one MessageId"));
        }
        self.counts.outstanding(self.requests.len());
        if is_read {
            return self.pass_to_server(&rewrite::read_without_channel(&message));
        }
        self.with_slot(Waiting::Request(message))
    }

    /// Handles a response of the server.
    fn response(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.counts.messages += 1;
        let pending = match rewrite::transfer_response(&message) {
            Some((id, status)) if status != status::PENDING => self.requests.remove(&id),
            _ => None,
        };
        match pending {
            Some(pending) if pending.is_read => self.with_slot(Waiting::Response(message, pending)),
            Some(pending) => self.session.send(message, pending.invalidate),
            None => self.session.send(message, None),
        }
    }

    /// Starts a transfer, or queues it behind others if no slot is free.
    fn with_slot(&mut self, transfer: Waiting) -> Result<(), Error> {
        match self.slots.iter().position(Option::is_none) {
            Some(slot) if self.waiting.is_empty() => self.start(slot, transfer),
            _ => {
                self.waiting.push_back(transfer);
                Ok(())
            }
        }
    }

    fn start(&mut self, slot: usize, transfer: Waiting) -> Result<(), Error> {
        let at = slot * self.size;
        match transfer {
            Waiting::Request(message) => {
                let Some((_, Pending { channel_info, length, .. })) = by_channel(&message)? else {
                    return Ok(());
                };
                let segments = segments(&channel_info, length)?;
                let pending = self.session.read(self.staging, at, segments, slot as u64)?;
                self.slots[slot] = Some(Transfer { pending, write: Some((message, length as usize)) });
                self.counts.write(length);
                Ok(())
            }
            Waiting::Response(message, request) => {
                let body = Response::parse(&message).map(|response| response.body);
                let Some(ResponseBody::Read { data, .. }) = body else {
                    // The server has refused it.
                    return self.session.send(message, request.invalidate);
                };
                let length = data.len() as u32;
                if length > request.length {
                    return Err(Error::Protocol(MORE_THAN_ASKED));
                }
                let segments = segments(&request.channel_info, length)?;
                self.staging.store(at, data);
                let pending = self.session.write(self.staging, at, segments, slot as u64)?;
                self.slots[slot] = (pending != 0).then_some(Transfer { pending, write: None });
                self.counts.read(length);
                // The response follows the data on the same queue pair.
                let response = rewrite::read_response_without_data(&message, length);
                self.session.send(response, request.invalidate)
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
        if let Some((message, length)) = self.slots[slot].take().and_then(|transfer| transfer.write) {
            let mut data = vec![0; length];
            self.staging.load(slot * self.size, &mut data);
            self.pass_to_server(&rewrite::write_without_channel(&message, &data))?;
        }
        // A response without data leaves the slot to the next one.
        while self.slots[slot].is_none()
            && let Some(next) = self.waiting.pop_front()
        {
            self.start(slot, next)?;
        }
        Ok(())
    }

    fn pass_to_server(&mut self, message: &[u8]) -> Result<(), Error> {
        self.plain.send(message).map_err(|error| Error::Gateway(error.into()))
    }
}

/// Returns `MessageId` and transfer of a request by channel.
fn by_channel(message: &[u8]) -> Result<Option<(u64, Pending)>, Error> {
    let Some(request) = Request::parse(message) else { return Ok(None) };
    let (channel, info, length, is_read) = match request.body {
        RequestBody::Read { channel, channel_info, length, .. } if channel != Channel::None => {
            (channel, channel_info, length, true)
        }
        RequestBody::Write { data: WriteData::Channel { channel, channel_info, length }, .. } => {
            (channel, channel_info, length, false)
        }
        _ => return Ok(None),
    };
    if rewrite::is_signed(message) {
        return Err(Error::Protocol("a signed request by channel"));
    }
    drop(segments(info, length)?);
    if length == 0 {
        return Err(Error::Protocol("a request by channel for no data"));
    }
    let invalidate = Descriptors::parse(info, MAX_DESCRIPTORS)
        .ok()
        .and_then(|descriptors| channel.invalidated_token(&descriptors));
    let pending = Pending { channel_info: info.to_vec(), length, invalidate, is_read };
    Ok(Some((request.message_id, pending)))
}

/// Returns the pieces of memory that `length` bytes take.
fn segments(
    channel_info: &[u8],
    length: u32,
) -> Result<impl Iterator<Item = smb_direct::BufferDescriptor> + use<'_>, Error> {
    Descriptors::parse(channel_info, MAX_DESCRIPTORS)
        .and_then(|descriptors| descriptors.segments(0, length))
        .map_err(|_| Error::Protocol("descriptors that do not hold the data"))
}
