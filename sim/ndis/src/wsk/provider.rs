// SPDX-License-Identifier: MIT OR Apache-2.0

//! The provider's functions.

use ndk_abi::{
    nt::{
        IO_STATUS_BLOCK, IO_STATUS_BLOCK_Anonymous, IRP, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER,
        STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
    },
    wsk::{WSK_PROVIDER_NDK_DISPATCH, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH},
};
use nt_sim::{current, guest::Guest, imports, nt::io::complete::complete_next};

use super::{client::require_client, tables::TABLES};

/// The documented control codes, `WSK_TRANSPORT_LIST_QUERY` to `WSK_SET_STATIC_EVENT_CALLBACKS`. They concern sockets
/// and transports.
const SOCKET_CONTROL_CODES: std::ops::RangeInclusive<u32> = 2..=8;

fn control(code: u32, size: usize, buffer: Guest<u8>) -> Result<usize, i32> {
    match code {
        WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH => {
            const SIZE: usize = size_of::<WSK_PROVIDER_NDK_DISPATCH>();
            if buffer.is_null() {
                return Err(STATUS_INVALID_PARAMETER);
            }
            if size < SIZE {
                return Err(STATUS_BUFFER_TOO_SMALL);
            }
            current().host().state(&TABLES).copy_ndk(buffer.cast());
            Ok(SIZE)
        }
        code if SOCKET_CONTROL_CODES.contains(&code) => Err(STATUS_NOT_SUPPORTED),
        _ => Err(STATUS_INVALID_PARAMETER),
    }
}

/// Completes the client's IRP, if there is one; returns `status`.
fn finish(irp: Guest<IRP>, status: i32, information: usize) -> i32 {
    if !irp.is_null() {
        let block = IO_STATUS_BLOCK {
            Anonymous: IO_STATUS_BLOCK_Anonymous { Status: status },
            Information: information,
        };
        irp.field(std::mem::offset_of!(IRP, IoStatus)).write(block);
        complete_next(irp);
    }
    status
}

imports! { FUNCTIONS: "wsk" =>
    /// Creates a socket: not supported.
    [<= DISPATCH_LEVEL]
    fn WskSocket(
        client: usize,
        _family: u16,
        _kind: u16,
        _protocol: u32,
        _flags: u32,
        _context: usize,
        _dispatch: usize,
        _process: usize,
        _thread: usize,
        _security: usize,
        irp: Guest<IRP>,
    ) -> i32 {
        require_client("WskSocket", client);
        finish(irp, STATUS_NOT_SUPPORTED, 0)
    }

    /// Creates, binds and connects a socket: not supported.
    [<= DISPATCH_LEVEL]
    fn WskSocketConnect(
        client: usize,
        _kind: u16,
        _protocol: u32,
        _local: usize,
        _remote: usize,
        _flags: u32,
        _context: usize,
        _dispatch: usize,
        _process: usize,
        _thread: usize,
        _security: usize,
        irp: Guest<IRP>,
    ) -> i32 {
        require_client("WskSocketConnect", client);
        finish(irp, STATUS_NOT_SUPPORTED, 0)
    }

    /// Returns the NDK functions; other control codes concern sockets and are not supported.
    [<= DISPATCH_LEVEL]
    fn WskControlClient(
        client: usize,
        code: u32,
        _input_size: usize,
        _input: Guest<u8>,
        output_size: usize,
        output: Guest<u8>,
        returned: Guest<usize>,
        irp: Guest<IRP>,
    ) -> i32 {
        require_client("WskControlClient", client);
        match control(code, output_size, output) {
            Ok(size) => {
                if irp.is_null() && !returned.is_null() {
                    returned.write(size);
                }
                finish(irp, STATUS_SUCCESS, size)
            }
            Err(status) => finish(irp, status, 0),
        }
    }

    /// Resolves a name: not supported.
    [== PASSIVE_LEVEL]
    fn WskGetAddressInfo(
        client: usize,
        _node: usize,
        _service: usize,
        _name_space: u32,
        _provider: usize,
        _hints: usize,
        _result: Guest<usize>,
        _process: usize,
        _thread: usize,
        irp: Guest<IRP>,
    ) -> i32 {
        require_client("WskGetAddressInfo", client);
        finish(irp, STATUS_NOT_SUPPORTED, 0)
    }

    /// Frees what `WskGetAddressInfo` returned: nothing.
    [== PASSIVE_LEVEL]
    fn WskFreeAddressInfo(client: usize, _info: usize) {
        require_client("WskFreeAddressInfo", client);
    }

    /// Resolves an address: not supported.
    [== PASSIVE_LEVEL]
    fn WskGetNameInfo(
        client: usize,
        _address: usize,
        _length: u32,
        _node: usize,
        _service: usize,
        _flags: u32,
        _process: usize,
        _thread: usize,
        irp: Guest<IRP>,
    ) -> i32 {
        require_client("WskGetNameInfo", client);
        finish(irp, STATUS_NOT_SUPPORTED, 0)
    }
}
