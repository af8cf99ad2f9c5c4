// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transport of client and server: a [`Session`] of SMB Direct, or a [`MessageStream`], on which data are in the
//! messages.

use alloc::vec;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::time::Duration;

use ndk_consumer::{Access, Error, Memory, Os};
use smb_direct::{BufferDescriptor, Token};

use crate::request_memory::RequestMemory;
use crate::transfer::RDMA_THRESHOLD;
use crate::{Event, Session};

/// A connection that carries messages in order and without loss, such as one of TCP.
pub trait MessageStream {
    /// Returns the time since any fixed moment.
    fn now(&self) -> Duration;

    /// Sends a message.
    ///
    /// # Errors
    /// [`Error::PeerDisconnected`] or [`Error::PeerSilent`].
    fn send(&mut self, message: &[u8]) -> Result<(), Error>;

    /// Waits for the next message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn receive(&mut self) -> Result<Vec<u8>, Error>;
}

/// Sends and receives messages.
pub trait Transport {
    fn now(&self) -> Duration;

    /// Sends a message, and invalidates the peer's token with it.
    fn send(&mut self, message: Vec<u8>, invalidate: Option<Token>) -> Result<(), Error>;

    fn next_event(&mut self) -> Result<Event, Error>;
}

/// The transport of a client.
pub trait ClientTransport: Transport {
    /// Memory for the data of one request at a time.
    type Memory;

    /// Returns memory of `length` bytes.
    fn memory(&self, length: usize) -> Result<Self::Memory, Error>;

    /// Copies `from` to the first bytes.
    fn store(memory: &mut Self::Memory, from: &[u8]);

    /// Copies the first bytes into `into`.
    fn load(memory: &Self::Memory, into: &mut [u8]);

    /// Registers the first `length` bytes for the peer. Returns the channel information, or `None` if data of this length are to be in
    /// the message. Each request that is posted completes with `tag`.
    fn register(
        &mut self,
        memory: &Self::Memory,
        length: usize,
        access: Access,
        tag: u64,
    ) -> Result<Option<Vec<u8>>, Error>;

    /// Returns whether data of this length are to be in the message.
    fn is_in_message(length: usize) -> bool;

    /// Invalidates registrations of the first `length` bytes; see [`RequestMemory::invalidate`].
    fn invalidate(
        &mut self,
        memory: &Self::Memory,
        length: usize,
        invalidated: Option<Token>,
        tag: u64,
    ) -> Result<usize, Error>;
}

/// The transport of a server.
pub trait ServerTransport: Transport {
    /// Memory that data pass on the way from or to the peer's.
    type Staging;

    fn store(staging: &Self::Staging, at: usize, from: &[u8]);

    fn load(staging: &Self::Staging, at: usize, into: &mut [u8]);

    /// Reads the peer's memory; see [`Session::read`].
    fn read(
        &mut self,
        staging: &Self::Staging,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error>;

    /// Writes the peer's memory; see [`Session::write`].
    fn write(
        &mut self,
        staging: &Self::Staging,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error>;
}

impl<O: Os> Transport for Session<O> {
    fn now(&self) -> Duration {
        self.pd().adapter().os().now()
    }

    fn send(&mut self, message: Vec<u8>, invalidate: Option<Token>) -> Result<(), Error> {
        Self::send(self, message, invalidate)
    }

    fn next_event(&mut self) -> Result<Event, Error> {
        Self::next_event(self)
    }
}

impl<O: Os> ClientTransport for Session<O> {
    type Memory = RequestMemory<O>;

    fn memory(&self, length: usize) -> Result<RequestMemory<O>, Error> {
        RequestMemory::new(self.pd(), length)
    }

    fn store(memory: &mut RequestMemory<O>, from: &[u8]) {
        memory.store(from);
    }

    fn load(memory: &RequestMemory<O>, into: &mut [u8]) {
        memory.load(into);
    }

    fn register(
        &mut self,
        memory: &RequestMemory<O>,
        length: usize,
        access: Access,
        tag: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        if Self::is_in_message(length) {
            return Ok(None);
        }
        memory.register(self, length, access, tag).map(Some)
    }

    fn is_in_message(length: usize) -> bool {
        length < RDMA_THRESHOLD
    }

    fn invalidate(
        &mut self,
        memory: &RequestMemory<O>,
        length: usize,
        invalidated: Option<Token>,
        tag: u64,
    ) -> Result<usize, Error> {
        memory.invalidate(self, length, invalidated, tag)
    }
}

impl<O: Os> ServerTransport for Session<O> {
    type Staging = Memory<O>;

    fn store(staging: &Memory<O>, at: usize, from: &[u8]) {
        staging.store(at, from);
    }

    fn load(staging: &Memory<O>, at: usize, into: &mut [u8]) {
        staging.load(at, into);
    }

    fn read(
        &mut self,
        staging: &Memory<O>,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error> {
        Self::read(self, staging, at, segments, tag)
    }

    fn write(
        &mut self,
        staging: &Memory<O>,
        at: usize,
        segments: impl Iterator<Item = BufferDescriptor>,
        tag: u64,
    ) -> Result<usize, Error> {
        Self::write(self, staging, at, segments, tag)
    }
}

/// A stream as a transport.
pub struct Stream<'a, S>(pub &'a mut S);

impl<S: MessageStream> Transport for Stream<'_, S> {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn send(&mut self, message: Vec<u8>, _invalidate: Option<Token>) -> Result<(), Error> {
        self.0.send(&message)
    }

    fn next_event(&mut self) -> Result<Event, Error> {
        self.0.receive().map(|bytes| Event::Message { bytes, invalidated: None })
    }
}

impl<S: MessageStream> ClientTransport for Stream<'_, S> {
    type Memory = Vec<u8>;

    fn memory(&self, length: usize) -> Result<Vec<u8>, Error> {
        Ok(vec![0; length])
    }

    fn store(memory: &mut Vec<u8>, from: &[u8]) {
        memory[..from.len()].copy_from_slice(from);
    }

    fn load(memory: &Vec<u8>, into: &mut [u8]) {
        into.copy_from_slice(&memory[..into.len()]);
    }

    fn register(&mut self, _: &Vec<u8>, _: usize, _: Access, _: u64) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }

    fn is_in_message(_length: usize) -> bool {
        true
    }

    fn invalidate(&mut self, _: &Vec<u8>, _: usize, _: Option<Token>, _: u64) -> Result<usize, Error> {
        Ok(0)
    }
}

impl<S: MessageStream> ServerTransport for Stream<'_, S> {
    /// There is none.
    type Staging = Infallible;

    fn store(staging: &Infallible, _at: usize, _from: &[u8]) {
        match *staging {}
    }

    fn load(staging: &Infallible, _at: usize, _into: &mut [u8]) {
        match *staging {}
    }

    fn read(
        &mut self,
        staging: &Infallible,
        _at: usize,
        _segments: impl Iterator<Item = BufferDescriptor>,
        _tag: u64,
    ) -> Result<usize, Error> {
        match *staging {}
    }

    fn write(
        &mut self,
        staging: &Infallible,
        _at: usize,
        _segments: impl Iterator<Item = BufferDescriptor>,
        _tag: u64,
    ) -> Result<usize, Error> {
        match *staging {}
    }
}
