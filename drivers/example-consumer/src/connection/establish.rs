// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection as its owner sees it: made, established, closed in order.

use core::ffi::c_void;
use core::time::Duration;

use driver_support::status::Result;
use fallible::Arc;
use ndk_abi::netio::SOCKADDR_INET;
use ndk_abi::nt::{STATUS_INSUFFICIENT_RESOURCES, STATUS_LOCAL_DISCONNECT};

use super::channel::{Channel, Protocol, disconnected, receives_arrived, requests_completed};
use super::limits::Limits;
use super::message::Hello;
use super::messages::Messages;
use super::queue::{Queue, SENDS};
use crate::ndk::{Adapter, Connector, Cq, Pd, Qp, ReadLimits};
use crate::statistics::{STATISTICS, Statistics};

/// Time for the client to complete what the server has accepted.
const ACCEPT_LIMIT: Duration = Duration::from_secs(10);

/// A connection and all its NDK objects. Dropping it ends it and closes them, at `PASSIVE_LEVEL`.
pub struct Connection<P: Protocol> {
    // In the order in which they are closed.
    connector: Connector,
    qp: Qp,
    initiator_cq: Cq,
    receive_cq: Cq,
    pd: Pd,
    // Dropped last: the callbacks of all objects above enter it.
    channel: Arc<Channel<P>>,
    limits: Limits,
    is_established: bool,
}

impl<P: Protocol> Connection<P> {
    /// Creates the objects of a connection, posts its receives, and arms its completion queues. `protocol` makes the
    /// protocol on the connection's protection domain. `PASSIVE_LEVEL`.
    pub fn new(
        adapter: &Arc<Adapter>,
        limits: Limits,
        connector: Connector,
        protocol: impl FnOnce(&Pd) -> Result<P>,
    ) -> Result<Self> {
        let statistics: &'static Statistics = &STATISTICS;
        let channel = Channel::<P>::new()?;
        let context = Arc::as_ptr(&channel).cast_mut().cast::<c_void>();
        let (receives, initiator) = (limits.qp.receives, limits.qp.initiator);
        let pd = Pd::new(adapter)?;
        // SAFETY: the channel is dropped after the completion queue.
        let receive_cq =
            unsafe { Cq::new(adapter, receives, limits.moderated, receives_arrived::<P>, context) }?;
        // SAFETY: `context` is the channel, which is dropped after this queue, too.
        let initiator_cq =
            unsafe { Cq::new(adapter, initiator, limits.moderated, requests_completed::<P>, context) }?;
        let qp = Qp::new(&pd, &receive_cq, &initiator_cq, limits.qp)?;
        let slots = receives as usize + SENDS;
        let messages = Messages::new(adapter, pd.privileged_token(), slots)?;
        let protocol = protocol(&pd)?;
        // SAFETY: nothing is posted after the connection is idle, and the queue pair is closed after that.
        let poster = unsafe { qp.poster() }.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        // SAFETY: as above; a connection that flushes is not idle.
        let flusher = unsafe { qp.poster() }.ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let queue = Queue::new(poster, messages, receives as usize, initiator as usize, statistics);
        let connection =
            Self { connector, qp, initiator_cq, receive_cq, pd, channel, limits, is_established: false };
        // SAFETY: both queues were made with this channel as context, and are closed by `close`.
        unsafe {
            connection.channel.attach(
                connection.receive_cq.raw(),
                connection.initiator_cq.raw(),
                flusher,
                queue,
                protocol,
            )
        }?;
        for slot in 0..receives as usize {
            connection.channel.with(|_, queue| queue.post_receive(slot))?;
        }
        Ok(connection)
    }

    /// Connects to a server, and returns its private data. `PASSIVE_LEVEL`.
    pub fn connect(
        &mut self,
        addresses: (&SOCKADDR_INET, &SOCKADDR_INET),
        hello: Hello,
        limit: Option<Duration>,
    ) -> Result<Hello> {
        self.connector.connect(&self.qp, addresses, self.limits.reads, &hello.to_bytes(), limit)?;
        let theirs = Hello::parse(&self.connector.data()?.private_data)?;
        self.channel.with(|_, queue| {
            queue.set_credits(theirs.credits);
            Ok(())
        })?;
        let context = Arc::as_ptr(&self.channel).cast_mut().cast();
        // SAFETY: the channel is dropped after the connector is closed.
        unsafe { self.connector.complete(disconnected::<P>, context) }?;
        self.established()?;
        Ok(theirs)
    }

    /// Accepts an incoming connection of a client with these credits. `PASSIVE_LEVEL`.
    pub fn accept(&mut self, hello: Hello, credits: u16) -> Result {
        self.channel.with(|_, queue| {
            queue.set_credits(credits);
            Ok(())
        })?;
        let theirs = self.connector.data()?.limits;
        // The peer's wishes, lowered to this side's.
        let limits = ReadLimits {
            inbound: theirs.inbound.min(self.limits.reads.inbound),
            outbound: theirs.outbound.min(self.limits.reads.outbound),
        };
        let context = Arc::as_ptr(&self.channel).cast_mut().cast();
        let (qp, data) = (&self.qp, hello.to_bytes());
        // SAFETY: the channel is dropped after the connector is closed.
        unsafe { self.connector.accept(qp, limits, &data, disconnected::<P>, context, ACCEPT_LIMIT) }?;
        self.established()
    }

    fn established(&mut self) -> Result {
        self.is_established = true;
        STATISTICS.connections.add(1);
        // The peer may have sent messages already, which could not be answered.
        self.channel.with(|protocol, queue| {
            queue.establish();
            protocol.proceed(queue)
        })
    }

    pub fn channel(&self) -> &Channel<P> {
        &self.channel
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn adapter(&self) -> &Arc<Adapter> {
        self.pd.adapter()
    }

    /// Ends the connection and closes its objects, each after those that use it.
    fn close(&self) {
        if self.is_established && self.channel.ended().is_none() {
            // Whether the peer answers or not, the connection is gone afterwards.
            let _ = self.connector.disconnect();
        }
        self.channel.end(STATUS_LOCAL_DISCONNECT);
        // No disconnect event afterwards.
        self.connector.close();
        // Cancelled receives and requests come back through the completion queues, which are armed.
        self.channel.wait_idle();
        self.qp.close();
        // No notification afterwards.
        self.initiator_cq.close();
        self.receive_cq.close();
        // The protection domain's close waits for them.
        //= R-CLOSE-22
        for region in self.channel.take_regions() {
            region.close_unwaited();
        }
    }
}

impl<P: Protocol> Drop for Connection<P> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Refuses an incoming connection, with this side's private data. IRQL <= `DISPATCH_LEVEL`.
pub fn refuse(connector: Connector) {
    STATISTICS.refused.add(1);
    let reason = Hello { credits: 0, store: 0, part: 0 };
    // If the provider cannot send it, the close refuses the connection.
    let _ = connector.reject(&reason.to_bytes());
    connector.close_unwaited();
}
