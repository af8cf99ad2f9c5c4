// SPDX-License-Identifier: MIT OR Apache-2.0

//! IOCTL codes, and the layouts of their inputs. `README.md` has the same tables.

use core::time::Duration;

use driver_support::status::Result;
use ndk_abi::netio::SOCKADDR_INET;
use ndk_abi::nt::{
    FILE_DEVICE_UNKNOWN, FILE_READ_ACCESS, FILE_WRITE_ACCESS, METHOD_BUFFERED, METHOD_IN_DIRECT,
    METHOD_OUT_DIRECT, STATUS_INVALID_PARAMETER,
};

use crate::client;
use crate::connection::LEAST_CREDITS;
use crate::server;

/// `CTL_CODE`: the caller's handle needs read and write access.
const fn code(function: u32, method: u32) -> u32 {
    FILE_DEVICE_UNKNOWN << 16 | (FILE_READ_ACCESS | FILE_WRITE_ACCESS) << 14 | function << 2 | method
}

pub const LISTEN: u32 = code(0x800, METHOD_BUFFERED);
pub const RUN: u32 = code(0x801, METHOD_BUFFERED);
pub const STOP: u32 = code(0x802, METHOD_BUFFERED);
pub const CONNECT: u32 = code(0x803, METHOD_BUFFERED);
pub const EXCHANGE: u32 = code(0x804, METHOD_BUFFERED);
pub const WRITE: u32 = code(0x805, METHOD_IN_DIRECT);
pub const READ: u32 = code(0x806, METHOD_OUT_DIRECT);
pub const DISCONNECT: u32 = code(0x807, METHOD_BUFFERED);
pub const STATISTICS: u32 = code(0x808, METHOD_BUFFERED);

/// Size of a socket address in inputs and outputs: `SOCKADDR_INET`.
pub const ADDRESS: usize = 28;
const _: () = assert!(size_of::<SOCKADDR_INET>() == ADDRESS);

/// Bytes of a transfer, and of a store.
pub const MAX_TRANSFER: usize = 8 << 20;
const MAX_STORE: u32 = 64 << 20;
const MAX_CONNECTIONS: u32 = 64;
/// Receives of a connection: by default, least, most.
const RECEIVES: u16 = 32;
const MIN_RECEIVES: u32 = LEAST_CREDITS as u32;
const MAX_RECEIVES: u32 = 255;

/// `CONNECT`'s flag: the client invalidates its memory.
const CLIENT_INVALIDATES: u32 = 1;

/// Input of `LISTEN`: address, interface index, connections, bytes of the store, receives.
pub fn listen(input: &[u8; ADDRESS + 16]) -> Result<server::Options> {
    let mut fields = Fields(input);
    let address = fields.address()?;
    let [interface, connections, store, receives] =
        [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    let is_valid = (1..=MAX_CONNECTIONS).contains(&connections) && (1..=MAX_STORE).contains(&store);
    if !is_valid {
        return Err(STATUS_INVALID_PARAMETER);
    }
    Ok(server::Options {
        address,
        interface,
        connections: connections as usize,
        store: store as usize,
        receives: checked_receives(receives)?,
    })
}

/// Input of `CONNECT`: own address, server's address, interface index, time limit in milliseconds (0: none), receives,
/// flags.
pub fn connect(input: &[u8; 2 * ADDRESS + 16]) -> Result<client::Options> {
    let mut fields = Fields(input);
    let (local, remote) = (fields.address()?, fields.address()?);
    let [interface, limit, receives, flags] = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
    if flags & !CLIENT_INVALIDATES != 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    Ok(client::Options {
        local,
        remote,
        interface,
        limit: (limit != 0).then(|| Duration::from_millis(limit.into())),
        receives: checked_receives(receives)?,
        invalidates: flags & CLIENT_INVALIDATES != 0,
    })
}

/// Input of `EXCHANGE`.
pub struct Exchange {
    /// Position in the server's store.
    pub offset: u64,
    pub length: usize,
    /// Seed of the data.
    pub seed: u32,
}

/// Input of `EXCHANGE`: position in the store (64 bits), length, seed.
pub fn exchange(input: &[u8; 16]) -> Result<Exchange> {
    let mut fields = Fields(input);
    let (offset, length, seed) = (fields.u64()?, fields.u32()? as usize, fields.u32()?);
    if length == 0 || length > MAX_TRANSFER {
        return Err(STATUS_INVALID_PARAMETER);
    }
    Ok(Exchange { offset, length, seed })
}

fn checked_receives(wanted: u32) -> Result<u16> {
    match wanted {
        0 => Ok(RECEIVES),
        MIN_RECEIVES..=MAX_RECEIVES => Ok(wanted as u16),
        _ => Err(STATUS_INVALID_PARAMETER),
    }
}

/// Reads an input field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(STATUS_INVALID_PARAMETER)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// The family is checked where the address is used.
    fn address(&mut self) -> Result<SOCKADDR_INET> {
        let bytes = self.take::<ADDRESS>()?;
        // SAFETY: every pattern of bytes is a SOCKADDR_INET, and the read is unaligned.
        Ok(unsafe { bytes.as_ptr().cast::<SOCKADDR_INET>().read_unaligned() })
    }
}
