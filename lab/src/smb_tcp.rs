// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB2 messages on TCP ([MS-SMB2] 2.1), each after a zero and its length, between the adapters of two simulated hosts. The TCP of
//! both hosts is that of [`TcpStack`].

use std::{collections::VecDeque, net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use ndis_sim::{Miniport, tcp_stack::TcpStack};
use ndk_consumer::Error;
use nt_sim::world::World;
use smb_consumer::MessageStream;

use crate::{machine::Machine, testbed::Testbed};

const PORT: u16 = 445;
/// Prefix length of the hosts' subnet.
const PREFIX: u8 = 24;
/// Longest time without bytes from the peer while something is awaited.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest time to close a connection.
const CLOSING: Duration = Duration::from_secs(1);
/// Room in the stack's buffer from which on more bytes are queued.
const ROOM: usize = 128 << 10;
const HEADER: usize = 4;

/// One side of a connection.
pub struct Connection {
    stack: TcpStack,
    world: Arc<World>,
    incoming: Incoming,
    received: VecDeque<Vec<u8>>,
}

/// The message that is arriving.
#[derive(Default)]
struct Incoming {
    header: [u8; HEADER],
    message: Vec<u8>,
    /// Bytes of both that have arrived.
    filled: usize,
}

/// Runs `client` and `server` on the two hosts of `bed`, which the driver runs on, with a connection between them. Returns their results.
///
/// # Errors
/// A stack cannot be created, the connection is not established, or a host dies.
pub fn run<C: Send + 'static, S: Send + 'static>(
    bed: &Testbed,
    client: impl FnOnce(&mut Connection) -> C + Send + 'static,
    server: impl FnOnce(&mut Connection) -> S + Send + 'static,
) -> Result<(C, S)> {
    let [alpha, beta] = bed.machines();
    let listening = bed.event();
    let adapters = [adapter(alpha)?, adapter(beta)?];
    let remote = adapters[1].1;
    let [for_client, for_server] = adapters;
    let serving = {
        let listening = listening.clone();
        beta.host().spawn("server", move || {
            let created = Connection::new(for_server);
            let created = created.map(|mut connection| {
                connection.stack.listen(PORT);
                connection
            });
            // Also if there is no stack: the client must not wait.
            listening.set();
            created?.used(server)
        })
    };
    let using = alpha.host().spawn("client", move || {
        let _ = listening.wait(SILENCE);
        let mut connection = Connection::new(for_client)?;
        connection.stack.connect(remote, PORT);
        connection.used(client)
    });
    let result = using.join()?.context("the client")?;
    Ok((result, serving.join()?.context("the server")?))
}

/// Returns the first adapter of a machine and its address.
fn adapter(machine: &Machine) -> Result<(Miniport, IpAddr)> {
    let miniport = machine.miniport().context("the adapter has not started")?;
    Ok((miniport.clone(), machine.address()))
}

impl Connection {
    fn new((miniport, address): (Miniport, IpAddr)) -> Result<Self> {
        let general = miniport.attributes().general.context("the adapter has no address")?;
        let mac = general.CurrentMacAddress.first_chunk().context("the adapter has no address")?;
        let stack = TcpStack::new(&miniport, *mac, (address, PREFIX))
            .map_err(|refused| anyhow!("a request of the TCP stack was refused: {refused:?}"))?;
        let world = nt_sim::current().world().clone();
        Ok(Self { stack, world, incoming: Incoming::default(), received: VecDeque::new() })
    }

    /// Waits until the connection is established, runs `body`, and closes it.
    fn used<T>(mut self, body: impl FnOnce(&mut Self) -> T) -> Result<T> {
        let deadline = self.now() + SILENCE;
        while !self.stack.is_connected() {
            anyhow::ensure!(self.now() < deadline, "no connection");
            self.process();
            if !self.stack.is_connected() {
                self.stack.wait(self.now(), deadline.saturating_sub(self.now()));
            }
        }
        let result = body(&mut self);
        self.stack.close();
        let deadline = self.now() + CLOSING;
        self.process();
        while !self.stack.is_closed() && self.now() < deadline {
            self.stack.wait(self.now(), deadline.saturating_sub(self.now()));
            self.process();
        }
        Ok(result)
    }

    /// Takes what has arrived and sends what is due. Returns whether bytes have arrived.
    fn process(&mut self) -> bool {
        self.stack.poll(self.now());
        let mut has_arrived = false;
        loop {
            let len = self.stack.receive_into(self.incoming.rest());
            if len == 0 {
                break;
            }
            has_arrived = true;
            self.received.extend(self.incoming.advance(len));
        }
        if has_arrived {
            // The window has grown.
            self.stack.poll(self.now());
        }
        has_arrived
    }

    /// Waits until `is_done`.
    fn until(&mut self, is_done: impl Fn(&mut Self) -> bool) -> Result<(), Error> {
        let mut deadline = self.now() + SILENCE;
        loop {
            if self.process() {
                deadline = self.now() + SILENCE;
            }
            if is_done(self) {
                return Ok(());
            }
            if !self.stack.may_receive() {
                return Err(Error::PeerDisconnected);
            }
            let now = self.now();
            if now >= deadline {
                return Err(Error::PeerSilent);
            }
            self.stack.wait(now, deadline.saturating_sub(now));
        }
    }
}

impl MessageStream for Connection {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length < 1 << 24);
        let header = length.ok_or(Error::Protocol("message longer than the peer accepts"))?.to_be_bytes();
        for mut rest in [&header[..], message] {
            loop {
                let queued = self.stack.send(rest);
                rest = &rest[queued..];
                if rest.is_empty() {
                    break;
                }
                let wanted = rest.len().min(ROOM);
                self.until(|this| this.stack.room() >= wanted)?;
            }
        }
        self.stack.poll(self.now());
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        if self.received.is_empty() {
            self.until(|this| !this.received.is_empty())?;
        }
        self.received.pop_front().ok_or(Error::PeerDisconnected)
    }
}

impl Incoming {
    /// Returns where the next bytes go.
    fn rest(&mut self) -> &mut [u8] {
        match self.filled.checked_sub(HEADER) {
            None => &mut self.header[self.filled..],
            Some(at) => &mut self.message[at..],
        }
    }

    /// Adds `len` bytes that are in [`rest`](Self::rest). Returns the message if it is complete.
    fn advance(&mut self, len: usize) -> Option<Vec<u8>> {
        self.filled += len;
        if self.filled == HEADER {
            let [_, a, b, c] = self.header.map(usize::from);
            self.message = vec![0; a << 16 | b << 8 | c];
        }
        let is_complete = self.filled >= HEADER && self.filled == HEADER + self.message.len();
        is_complete.then(|| std::mem::take(self).message)
    }
}
