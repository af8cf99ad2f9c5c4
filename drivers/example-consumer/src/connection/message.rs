// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages between the two sides, and the private data of the connection. Little endian.

use driver_support::status::Result;
use ndk_abi::nt::STATUS_INVALID_PARAMETER;

/// Requests of a client that may be in progress at the same time. A request is known by its number below this.
pub const REQUESTS: usize = 16;

/// Least receives of a side. With two, one of which the last-credit rule reserves, a message that only grants would
/// have to be answered by another one.
pub const LEAST_CREDITS: u16 = 3;

/// "NDKX": begins the private data of both sides.
const MAGIC: u32 = u32::from_le_bytes(*b"NDKX");
const VERSION: u16 = 1;

/// Private data of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Hello {
    /// Receives that the sender has posted: credits of the peer.
    pub credits: u16,
    /// The server's: bytes that its clients can store. A client's: 0.
    pub store: u32,
    /// Largest part of a transfer that one request may name, in bytes.
    pub part: u32,
}

impl Hello {
    pub const SIZE: usize = 16;

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut fields = bytes.as_mut_slice();
        put(&mut fields, MAGIC.to_le_bytes());
        put(&mut fields, VERSION.to_le_bytes());
        put(&mut fields, self.credits.to_le_bytes());
        put(&mut fields, self.store.to_le_bytes());
        put(&mut fields, self.part.to_le_bytes());
        bytes
    }

    /// Reads the peer's private data, which the transport may have padded with zeros.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut fields = bytes;
        let (magic, version) =
            (u32::from_le_bytes(take(&mut fields)?), u16::from_le_bytes(take(&mut fields)?));
        let hello = Self {
            credits: u16::from_le_bytes(take(&mut fields)?),
            store: u32::from_le_bytes(take(&mut fields)?),
            part: u32::from_le_bytes(take(&mut fields)?),
        };
        if magic != MAGIC || version != VERSION || hello.credits < LEAST_CREDITS || hello.part == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        Ok(hello)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Client: store the memory that the message names.
    Write,
    /// Client: fill the memory that the message names from the store.
    Read,
    /// Server: a request is done.
    Response,
    /// Either: nothing but credits.
    Grant,
}

/// A message. Its meaning depends on the kind; members that it does not use are 0.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub kind: Kind,
    /// Receives that the sender has posted since its last message.
    pub granted: u16,
    /// Number of the request, below [`REQUESTS`].
    pub request: u16,
    /// A request: the server invalidates the token with its response (Send with Invalidate). Otherwise the client does.
    pub invalidate: bool,
    /// A request: the client's memory.
    pub address: u64,
    pub token: u32,
    pub length: u32,
    /// A request: position in the store.
    pub offset: u64,
    /// A response: the status of the request.
    pub status: i32,
}

impl Message {
    pub const SIZE: usize = 40;

    /// A message of this kind with nothing in it.
    pub const fn empty(kind: Kind) -> Self {
        let (granted, request, invalidate) = (0, 0, false);
        Self { kind, granted, request, invalidate, address: 0, token: 0, length: 0, offset: 0, status: 0 }
    }

    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let kind: u16 = match self.kind {
            Kind::Write => 1,
            Kind::Read => 2,
            Kind::Response => 3,
            Kind::Grant => 4,
        };
        let mut bytes = [0; Self::SIZE];
        let mut fields = bytes.as_mut_slice();
        put(&mut fields, kind.to_le_bytes());
        put(&mut fields, self.granted.to_le_bytes());
        put(&mut fields, self.request.to_le_bytes());
        put(&mut fields, u16::from(self.invalidate).to_le_bytes());
        put(&mut fields, self.address.to_le_bytes());
        put(&mut fields, self.token.to_le_bytes());
        put(&mut fields, self.length.to_le_bytes());
        put(&mut fields, self.offset.to_le_bytes());
        put(&mut fields, self.status.to_le_bytes());
        bytes
    }

    /// Reads a message of the peer. What it names is not checked here.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != Self::SIZE {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let mut fields = bytes;
        let kind = match u16::from_le_bytes(take(&mut fields)?) {
            1 => Kind::Write,
            2 => Kind::Read,
            3 => Kind::Response,
            4 => Kind::Grant,
            _ => return Err(STATUS_INVALID_PARAMETER),
        };
        let message = Self {
            kind,
            granted: u16::from_le_bytes(take(&mut fields)?),
            request: u16::from_le_bytes(take(&mut fields)?),
            invalidate: u16::from_le_bytes(take(&mut fields)?) != 0,
            address: u64::from_le_bytes(take(&mut fields)?),
            token: u32::from_le_bytes(take(&mut fields)?),
            length: u32::from_le_bytes(take(&mut fields)?),
            offset: u64::from_le_bytes(take(&mut fields)?),
            status: i32::from_le_bytes(take(&mut fields)?),
        };
        if usize::from(message.request) >= REQUESTS {
            return Err(STATUS_INVALID_PARAMETER);
        }
        Ok(message)
    }
}

/// Writes `bytes` at the front of `into`, and moves `into` behind them.
#[allow(clippy::mut_mut, reason = "moves the slice forward")]
fn put<const N: usize>(into: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((front, rest)) = core::mem::take(into).split_first_chunk_mut::<N>() {
        *front = bytes;
        *into = rest;
    }
}

/// Takes bytes from the front of `from`.
fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N]> {
    let (front, rest) = from.split_first_chunk::<N>().ok_or(STATUS_INVALID_PARAMETER)?;
    *from = rest;
    Ok(*front)
}
