// SPDX-License-Identifier: MIT OR Apache-2.0

//! A TCP connection between the adapters of two simulated hosts. The TCP of both hosts is that of [`TcpStack`].

use std::{net::IpAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use ndis_sim::{Miniport, tcp_stack::TcpStack};
use nt_sim::world::World;

use crate::{machine::Machine, testbed::Testbed};

const PORT: u16 = 445;
/// Prefix length of the hosts' subnet.
const PREFIX: u8 = 24;
/// Longest time without bytes from the peer while something is awaited.
pub const SILENCE: Duration = Duration::from_secs(30);
/// Longest time to close a connection.
const CLOSING: Duration = Duration::from_secs(1);
/// Bytes that are queued, and taken, at a time.
const BLOCK: usize = 128 << 10;

/// One side of a connection.
pub struct Connection {
    stack: TcpStack,
    world: Arc<World>,
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
        Ok(Self { stack, world })
    }

    /// Waits until the connection is established, runs `body`, and closes it.
    fn used<T>(mut self, body: impl FnOnce(&mut Self) -> T) -> Result<T> {
        let deadline = self.now() + SILENCE;
        while !self.stack.is_connected() {
            ensure!(self.now() < deadline, "no connection");
            self.poll();
            if !self.stack.is_connected() {
                self.wait(deadline);
            }
        }
        let result = body(&mut self);
        self.stack.close();
        let deadline = self.now() + CLOSING;
        self.drain();
        while !self.stack.is_closed() && self.now() < deadline {
            self.wait(deadline);
            self.drain();
        }
        Ok(result)
    }

    /// Takes what is left of the peer's bytes.
    fn drain(&mut self) {
        self.poll();
        while !self.stack.receive().is_empty() {
            self.poll();
        }
    }

    /// Returns the time of the hosts.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    pub fn stack(&mut self) -> &mut TcpStack {
        &mut self.stack
    }

    /// Takes frames that have arrived, and sends what is due.
    pub fn poll(&mut self) {
        self.stack.poll(self.now());
    }

    /// Waits for a frame, or for the stack's own time, but not beyond `deadline`.
    pub fn wait(&mut self, deadline: Duration) {
        let now = self.now();
        self.stack.wait(now, deadline.saturating_sub(now));
    }

    /// Sends so many bytes of any value.
    ///
    /// # Errors
    /// The connection ends, or nothing can be sent for long.
    pub fn send_bytes(&mut self, count: u64) -> Result<()> {
        let block = vec![0x5a; BLOCK];
        let mut left = count;
        self.until(|stack| {
            let len = left.min(BLOCK as u64) as usize;
            let sent = stack.send(&block[..len]);
            left -= sent as u64;
            (sent != 0, left == 0)
        })
    }

    /// Receives so many bytes, and drops them.
    ///
    /// # Errors
    /// The connection ends, or nothing arrives for long.
    pub fn receive_bytes(&mut self, count: u64) -> Result<()> {
        let mut block = vec![0; BLOCK];
        let mut left = count;
        self.until(|stack| {
            let len = left.min(BLOCK as u64) as usize;
            let received = stack.receive_into(&mut block[..len]);
            left -= received as u64;
            (received != 0, left == 0)
        })
    }

    /// Polls until `step`, which returns whether it has moved bytes, and whether it has moved all.
    fn until(&mut self, mut step: impl FnMut(&mut TcpStack) -> (bool, bool)) -> Result<()> {
        let mut deadline = self.now() + SILENCE;
        loop {
            self.poll();
            let (moved, is_done) = step(&mut self.stack);
            if moved {
                // What was queued is to be sent; or the window has grown.
                self.poll();
                deadline = self.now() + SILENCE;
            }
            if is_done {
                return Ok(());
            }
            ensure!(self.stack.may_receive(), "the peer has disconnected");
            ensure!(self.now() < deadline, "the peer is silent");
            if !moved {
                self.wait(deadline);
            }
        }
    }
}
