// SPDX-License-Identifier: MIT OR Apache-2.0

//! The gateway of a client without RDMA: offers memory to a server of SMB Direct.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use ndk_consumer::stats::RequestStats;
use ndk_consumer::{Access, Adapter, Error, Os};
use smb_direct::{Channel, Token};

use super::plain::{Counts, MORE_THAN_ASKED, Next, POLL, Plain, next};
use crate::request_memory::RequestMemory;
use crate::smb2::{Request, RequestBody, Response, ResponseBody, WriteData, rewrite, status};
use crate::transfer::{Options, RDMA_THRESHOLD};
use crate::{Event, Session};

/// Connects from `local`, port 0 for any, to the server at `remote`, port 0 for those of SMB Direct, and passes the requests of the client behind `plain` to it
/// until one of them disconnects. All objects are closed on return.
pub fn client<O: Os, P: Plain>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    remote: SocketAddr,
    plain: &mut P,
) -> (Result<Counts, Error>, RequestStats) {
    let (mut session, parameters) = match Session::reach(adapter, options, local, remote) {
        Ok(connected) => connected,
        Err(error) => return (Err(error), RequestStats::default()),
    };
    let size = options.chunk.min(parameters.max_read_write_size as usize);
    // Declared here to be closed after the connection that uses it.
    let mut slots = Vec::new();
    let memory = (0..options.outstanding).try_for_each(|_| {
        slots.push(Slot { memory: RequestMemory::new(session.pd(), size)?, state: SlotState::Free });
        Ok(())
    });
    let outcome = memory.and_then(|()| {
        let gateway = Gateway {
            session: &mut session,
            plain,
            slots: &mut slots,
            size,
            held: None,
            counts: Counts::default(),
        };
        gateway.run()
    });
    let closed = session.close(outcome);
    drop(slots);
    closed
}

struct Gateway<'a, O: Os, P> {
    session: &'a mut Session<O>,
    plain: &'a mut P,
    slots: &'a mut [Slot<O>],
    /// Bytes of a slot.
    size: usize,
    /// A request that waits for a slot. The client's next ones wait behind it.
    held: Option<Vec<u8>>,
    counts: Counts,
}

/// Memory for one request.
struct Slot<O: Os> {
    memory: RequestMemory<O>,
    state: SlotState,
}

enum SlotState {
    Free,
    /// The server has the request, which has this number of bytes registered.
    Sent {
        message_id: u64,
        length: usize,
    },
    /// The server has left this number of registrations to this side, which invalidates them before it passes the response on.
    Invalidating {
        left: usize,
        response: Vec<u8>,
        length: usize,
    },
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

impl<O: Os, P: Plain> Gateway<'_, O, P> {
    fn run(mut self) -> Result<Counts, Error> {
        loop {
            // No more requests are taken from the client than there is memory for.
            let message = match self.held.take() {
                Some(message) => Next::Message(message),
                None => next(self.plain)?,
            };
            let timeout = match message {
                Next::Message(message) => self.request(message)?,
                Next::Nothing => POLL,
                Next::Closed => return Ok(self.counts),
            };
            match self.session.next_event_within(timeout) {
                Ok(Some(Event::Message { bytes, invalidated })) => self.response(bytes, invalidated)?,
                Ok(Some(Event::Done(tag))) => self.done(tag)?,
                Ok(None) => {}
                Err(Error::PeerDisconnected) => return Ok(self.counts),
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes a request of the client on, or holds it. Returns the time to wait for the server.
    fn request(&mut self, message: Vec<u8>) -> Result<Duration, Error> {
        let transfer = Request::parse(&message).filter(|_| !rewrite::is_signed(&message));
        let Some((request, length)) = transfer.and_then(|request| {
            let length = large(&request.body).filter(|&length| length <= self.size)?;
            Some((request, length))
        }) else {
            self.counts.messages += 1;
            self.session.send(message, None)?;
            return Ok(Duration::ZERO);
        };
        let Some(at) = self.slots.iter().position(|slot| matches!(slot.state, SlotState::Free)) else {
            self.held = Some(message);
            return Ok(POLL);
        };
        self.counts.messages += 1;
        let slot = &mut self.slots[at];
        let register = tag(at, Purpose::Register);
        let by = Channel::RdmaV1Invalidate;
        let by_channel = if let RequestBody::Write { data: WriteData::Message(data), .. } = request.body {
            slot.memory.store(data);
            let info = slot.memory.register(self.session, length, Access::RemoteRead, register)?;
            self.counts.write(length as u32);
            rewrite::write_with_channel(&message, by, &info, length as u32)
        } else {
            let info = slot.memory.register(self.session, length, Access::RemoteWrite, register)?;
            rewrite::read_with_channel(&message, by, &info)
        };
        slot.state = SlotState::Sent { message_id: request.message_id, length };
        let sent = self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Sent { .. }));
        self.counts.outstanding(sent.count());
        self.session.send(by_channel, None)?;
        Ok(Duration::ZERO)
    }

    /// Handles a response of the server.
    fn response(&mut self, message: Vec<u8>, invalidated: Option<Token>) -> Result<(), Error> {
        self.counts.messages += 1;
        let of = |state: &SlotState, id| match *state {
            SlotState::Sent { message_id, length } if message_id == id => Some(length),
            _ => None,
        };
        let found = rewrite::transfer_response(&message)
            .filter(|&(_, status)| status != status::PENDING)
            .and_then(|(id, _)| {
                self.slots.iter().enumerate().find_map(|(at, slot)| Some((at, of(&slot.state, id)?)))
            });
        let Some((at, length)) = found else { return self.pass_to_client(&message) };
        let slot = &mut self.slots[at];
        let invalidate = tag(at, Purpose::Invalidate);
        let left = slot.memory.invalidate(self.session, length, invalidated, invalidate)?;
        slot.state = SlotState::Invalidating { left, response: message, length };
        self.finish(at)
    }

    fn done(&mut self, tag: u64) -> Result<(), Error> {
        if tag % 2 == Purpose::Register as u64 {
            return Ok(());
        }
        let at = (tag / 2) as usize;
        match self.slots.get_mut(at).map(|slot| &mut slot.state) {
            Some(SlotState::Invalidating { left, .. }) if *left > 0 => *left -= 1,
            _ => return Err(Error::Mismatch("no registration was to be invalidated")),
        }
        self.finish(at)
    }

    /// Passes the response of a slot to the client if the server has no access any longer.
    fn finish(&mut self, at: usize) -> Result<(), Error> {
        let slot = &mut self.slots[at];
        if !matches!(slot.state, SlotState::Invalidating { left: 0, .. }) {
            return Ok(());
        }
        let state = core::mem::replace(&mut slot.state, SlotState::Free);
        let SlotState::Invalidating { response, length, .. } = state else { return Ok(()) };
        match Response::parse(&response).map(|response| response.body) {
            Some(ResponseBody::Read { data: [], transferred }) => {
                let transferred = transferred as usize;
                if transferred > length {
                    return Err(Error::Protocol(MORE_THAN_ASKED));
                }
                let mut data = vec![0; transferred];
                slot.memory.load(&mut data);
                self.counts.read(transferred as u32);
                self.pass_to_client(&rewrite::read_response_with_data(&response, &data))
            }
            _ => self.pass_to_client(&response),
        }
    }

    fn pass_to_client(&mut self, message: &[u8]) -> Result<(), Error> {
        self.plain.send(message).map_err(|error| Error::Gateway(error.into()))
    }
}

/// Returns the length of a READ or WRITE whose data are better transferred by RDMA.
fn large(body: &RequestBody<'_>) -> Option<usize> {
    let length = match *body {
        RequestBody::Read { length, channel: Channel::None, .. } => length as usize,
        RequestBody::Write { data: WriteData::Message(data), .. } => data.len(),
        _ => return None,
    };
    (length >= RDMA_THRESHOLD).then_some(length)
}
