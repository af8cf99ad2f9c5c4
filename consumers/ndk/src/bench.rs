// SPDX-License-Identifier: MIT OR Apache-2.0

//! Benchmarks: many small sends, and large writes.
//!
//! One side runs [`serve`]: it accepts one connection, registers memory for the writes, and receives messages. It grants
//! credits for a number of messages at a time, so that every message finds a posted receive, as in SMB Direct. The other
//! side measures with [`sends`], [`writes`] or [`reads`].

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use crate::endpoint::{Endpoint, EndpointConfig, EndpointEvent, listen_for_one};
use crate::os::Os;
use crate::stats::{Operation, RequestStats};
use crate::{Access, Adapter, Error, Memory, RemoteMemory};

/// Receives that the serving side posts.
const RECEIVES: u32 = 512;
/// Messages per credit grant.
const GRANT: u64 = 128;
/// A credit grant. Wireshark dissects shorter messages as malformed RPC over RDMA.
const GRANT_MESSAGE: [u8; 32] = [0; 32];
/// Maximum number of outstanding sends.
const SENDS: u32 = 256;
/// Length of the largest message in bytes.
const MAX_MESSAGE: usize = 256;

/// Results of a measurement.
#[derive(Clone, Default, Debug)]
pub struct BenchResult {
    pub operations: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// From the first post to the last completion.
    pub elapsed: Duration,
    pub stats: RequestStats,
}

impl BenchResult {
    /// Returns operations per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for a report")]
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns payload bytes per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate for a report")]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Accepts one connection at `local` and serves it until the peer disconnects. Calls `ready` with the address when it
/// listens. `window` is the size of the memory for writes in bytes, at least 1.
///
/// # Errors
/// See [`Error`].
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    window: usize,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<RequestStats, Error> {
    let connector = listen_for_one(adapter, local, timeout, ready)?;
    let config = EndpointConfig { requests: 16, receives: RECEIVES, message: MAX_MESSAGE };
    let mut endpoint = Endpoint::new(adapter, config)?;
    endpoint.ignore_latency();
    let mut memory = None;
    let outcome = Memory::new(endpoint.pd(), window, Access::RemoteReadWrite)
        .map_err(|status| Error::Call("NdkRegisterMr", status))
        .and_then(|registered| {
            let registered = memory.insert(registered).remote(window);
            endpoint.accept(connector, &encode_memory(&registered))?;
            receive_until_disconnect(&mut endpoint)
        });
    let (outcome, stats) = endpoint.close(outcome);
    drop(memory);
    outcome.map(|()| stats)
}

/// Sends `count` messages of `size` bytes, at most 256, as fast as credits allow.
///
/// # Errors
/// See [`Error`].
pub fn sends<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    count: u64,
    size: usize,
) -> Result<BenchResult, Error> {
    let config = EndpointConfig { requests: SENDS, receives: 16, message: MAX_MESSAGE };
    measure(adapter, local, remote, config, |endpoint, _| {
        let message = vec![0x5a; size.min(MAX_MESSAGE)];
        let (mut sent, mut granted, mut bytes) = (0, u64::from(RECEIVES), Vec::new());
        while sent < count || endpoint.outstanding_requests() != 0 {
            if sent < count.min(granted) && endpoint.outstanding_requests() < u64::from(SENDS) {
                endpoint.send(&message, 0)?;
                sent += 1;
            } else if let EndpointEvent::Message(grant) = endpoint.wait()? {
                endpoint.take(grant, &mut bytes)?;
                granted += GRANT;
            }
        }
        Ok((count, count * message.len() as u64))
    })
}

/// RDMA Reads or Writes between the memory of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfers {
    pub count: u64,
    /// Bytes of each.
    pub size: usize,
    /// Most transfers at once.
    pub outstanding: u32,
    /// Buffers of `size` bytes, at least 1, that take turns on this side. The peer has as many as its window holds.
    pub buffers: u32,
}

/// Writes to the memory of the peer.
///
/// # Errors
/// See [`Error`].
pub fn writes<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    work: Transfers,
) -> Result<BenchResult, Error> {
    transfers(adapter, local, remote, Operation::Write, work)
}

/// Reads from the memory of the peer.
///
/// # Errors
/// See [`Error`].
pub fn reads<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    work: Transfers,
) -> Result<BenchResult, Error> {
    transfers(adapter, local, remote, Operation::Read, work)
}

/// RDMA Reads or Writes.
fn transfers<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    operation: Operation,
    work: Transfers,
) -> Result<BenchResult, Error> {
    let Transfers { count, size, outstanding, buffers } = work;
    let config = EndpointConfig { requests: outstanding, receives: 16, message: MAX_MESSAGE };
    // Declared here to be closed after the connection that uses it.
    let mut memory = None;
    measure(adapter, local, remote, config, |endpoint, peer_memory| {
        let access = if operation == Operation::Read { Access::LocalWrite } else { Access::LocalRead };
        let own = Memory::new(endpoint.pd(), size * buffers as usize, access)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let own = memory.insert(own);
        let slots = peer_memory.length / size as u64;
        if slots == 0 {
            return Err(Error::Protocol("the memory of the peer is too small"));
        }
        let mut posted = 0;
        while posted < count || endpoint.outstanding_requests() != 0 {
            if posted < count && endpoint.outstanding_requests() < u64::from(outstanding) {
                let offset = posted % slots * size as u64;
                let sge = own.sge((posted % u64::from(buffers)) as usize * size, size);
                match operation {
                    Operation::Read => endpoint.read(sge, peer_memory, offset, 0)?,
                    _ => endpoint.write(sge, peer_memory, offset, 0)?,
                }
                posted += 1;
            } else if !matches!(endpoint.wait()?, EndpointEvent::Done(done, _) if done == operation) {
                return Err(Error::Protocol("unexpected message"));
            }
        }
        Ok((count, count * size as u64))
    })
}

/// Connects, measures `work`, which returns operations and bytes, and closes.
fn measure<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    config: EndpointConfig,
    work: impl FnOnce(&mut Endpoint<O>, &RemoteMemory) -> Result<(u64, u64), Error>,
) -> Result<BenchResult, Error> {
    let mut endpoint = Endpoint::new(adapter, config)?;
    endpoint.ignore_latency();
    let outcome = endpoint.connect(local, remote, &[]).and_then(|reply| {
        let peer_memory =
            decode_memory(&reply.private_data).ok_or(Error::Protocol("the peer announced no memory"))?;
        let started = adapter.os().now();
        let (operations, bytes) = work(&mut endpoint, &peer_memory)?;
        let elapsed = adapter.os().now().saturating_sub(started);
        Ok(BenchResult { operations, bytes, elapsed, stats: RequestStats::default() })
    });
    let (outcome, stats) = endpoint.close(outcome);
    outcome.map(|result| BenchResult { stats, ..result })
}

fn receive_until_disconnect<O: Os>(endpoint: &mut Endpoint<O>) -> Result<(), Error> {
    let (mut taken, mut bytes) = (0, Vec::new());
    loop {
        match endpoint.wait() {
            Ok(EndpointEvent::Message(received)) => {
                endpoint.take(received, &mut bytes)?;
                taken += 1;
                if taken % GRANT == 0 {
                    endpoint.send(&GRANT_MESSAGE, 0)?;
                }
            }
            Ok(EndpointEvent::Done(..)) => {}
            Err(Error::PeerDisconnected) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the private data that announces memory.
fn encode_memory(memory: &RemoteMemory) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&memory.address.to_le_bytes());
    bytes[8..16].copy_from_slice(&memory.length.to_le_bytes());
    bytes[16..].copy_from_slice(&memory.token.to_le_bytes());
    bytes
}

fn decode_memory(private_data: &[u8]) -> Option<RemoteMemory> {
    let (address, rest) = private_data.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let token = rest.first_chunk()?;
    Some(RemoteMemory {
        address: u64::from_le_bytes(*address),
        length: u64::from_le_bytes(*length),
        token: u32::from_le_bytes(*token),
    })
}
