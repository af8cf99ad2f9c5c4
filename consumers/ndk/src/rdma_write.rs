// SPDX-License-Identifier: MIT OR Apache-2.0

//! One RDMA WRITE, both sides of it: the calls that an NDK consumer makes, in order.

use alloc::{sync::Arc, vec, vec::Vec};
use core::net::SocketAddr;
use core::time::Duration;

use crate::{
    Access, Adapter, Completions, Connector, Cq, Listener, Memory, Os, Pd, Qp, QpDepths, ReadLimits,
    RemoteMemory, Status,
};
use ndk_abi::ndk::NDK_RESULT_EX;

const DEPTHS: QpDepths = QpDepths { receives: 4, requests: 4, receive_sges: 1, request_sges: 1, inline: 0 };
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
const TIMEOUT: Duration = Duration::from_secs(10);
const SIZE: usize = 4096;

/// Accepts one connection, announces memory, and returns the bytes that the client wrote there. Calls `ready` with the
/// address when it listens.
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    ready: impl FnOnce(SocketAddr),
) -> Result<Vec<u8>, Status> {
    // Objects are closed in reverse order, as NDKPI requires.
    let (cq, mut completions) = Cq::new(adapter, 16)?;
    let pd = Pd::new(adapter)?;
    let memory = Memory::new(&pd, SIZE, Access::RemoteWrite)?;
    let qp = Qp::new(&pd, &cq, &cq, 0, &DEPTHS)?;
    let listener = Listener::new(adapter, local)?;
    ready(listener.local_address()?);
    let mut connector = listener.next(Some(TIMEOUT)).ok_or(Status::IO_TIMEOUT)?;

    // The client sends an empty message behind its WRITE: when the message arrives, the data is in memory.
    qp.receive(1, &[])?;
    let RemoteMemory { address, token, length } = memory.remote(SIZE);
    let mut announcement = Vec::new();
    announcement.extend(address.to_be_bytes());
    announcement.extend(token.to_be_bytes());
    announcement.extend((length as u32).to_be_bytes());
    connector.accept(&qp, LIMITS, &announcement, completions.waker())?;
    next_completion(&mut completions)?;

    let mut bytes = vec![0; SIZE];
    memory.load(0, &mut bytes);
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(SIZE));
    Ok(bytes)
}

/// Connects to a server and writes `text`, at most 4096 bytes, to its memory.
pub fn write<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    text: &[u8],
) -> Result<(), Status> {
    let (cq, mut completions) = Cq::new(adapter, 16)?;
    let pd = Pd::new(adapter)?;
    let source = Memory::new(&pd, SIZE, Access::LocalRead)?;
    let qp = Qp::new(&pd, &cq, &cq, 0, &DEPTHS)?;
    let mut connector = Connector::new(adapter)?;

    connector.connect(&qp, local, remote, LIMITS, &[])?;
    let target = announced(&connector.data()?.private_data).ok_or(Status::INVALID_PARAMETER)?;
    connector.complete(completions.waker())?;

    source.store(0, text);
    qp.write(1, &[source.sge(0, text.len())], &target, 0, 0)?;
    qp.send(2, &[], 0)?;
    next_completion(&mut completions)?;
    next_completion(&mut completions)?;
    connector.disconnect()
}

/// Decodes the memory that the server announced in the private data of its reply.
fn announced(private_data: &[u8]) -> Option<RemoteMemory> {
    let (address, rest) = private_data.split_first_chunk()?;
    let (token, rest) = rest.split_first_chunk()?;
    Some(RemoteMemory {
        address: u64::from_be_bytes(*address),
        token: u32::from_be_bytes(*token),
        length: u32::from_be_bytes(*rest.first_chunk()?).into(),
    })
}

/// Waits for the next completion, which must be successful.
fn next_completion<O: Os>(completions: &mut Completions<O>) -> Result<(), Status> {
    let mut results = [NDK_RESULT_EX::zeroed()];
    // The first wait may end without a completion: a disconnect of the peer wakes the reader.
    for _ in 0..2 {
        if completions.wait(&mut results, TIMEOUT)? == 1 {
            return Status(results[0].Status).check();
        }
    }
    Err(Status::IO_TIMEOUT)
}
