// SPDX-License-Identifier: MIT OR Apache-2.0

//! IRPs that the I/O manager builds for drivers, and frees when all drivers have completed them: synchronous requests.

use ndk_abi::nt::{
    DEVICE_OBJECT, DO_BUFFERED_IO, DO_DIRECT_IO, IO_STACK_LOCATION, IO_STATUS_BLOCK, IRP,
    IRP_MJ_DEVICE_CONTROL, IRP_MJ_INTERNAL_DEVICE_CONTROL, IRP_MJ_READ, IRP_MJ_WRITE, KEVENT, LARGE_INTEGER,
    METHOD_BUFFERED, METHOD_NEITHER, METHOD_OUT_DIRECT, MODE,
};

use super::{
    irp::{self, Buffers, GuestIrp, RequestMemory},
    request::{IoRequest, Memory, Requestor},
};
use crate::{guest::Guest, imports, thread::current};

const CONTROL: &str = "IoBuildDeviceIoControlRequest";
const TRANSFER: &str = "IoBuildSynchronousFsdRequest";

/// The buffer of a driver.
#[derive(Clone, Copy)]
struct Buffer {
    at: Guest<u8>,
    length: u32,
}

impl Buffer {
    fn contents(self) -> Vec<u8> {
        let mut bytes = vec![0; if self.at.is_null() { 0 } else { self.length as usize }];
        self.at.read_bytes(&mut bytes);
        bytes
    }
}

/// Makes a request for the driver of a device, whose buffers a driver has. `input` and `output` are its addresses for `METHOD_NEITHER`.
/// Returns null when memory is exhausted.
fn build(
    device: Guest<DEVICE_OBJECT>,
    location: IO_STACK_LOCATION,
    buffers: Buffers,
    [input, output]: [Guest<u8>; 2],
    requestor: Requestor,
) -> Guest<IRP> {
    let me = current();
    let host = me.host();
    if host.low_resources.fails() {
        return Guest::null();
    }
    let is_neither = buffers.method == METHOD_NEITHER;
    let mut location = location;
    location.DeviceObject = device.as_ptr();
    let locations = device.read().StackSize;
    let Some(memory) = RequestMemory::new(host, buffers, location, irp::thread_pointer(me.id()), locations)
    else {
        return Guest::null();
    };
    let irp = memory.irp;
    let mut header = irp.read();
    header.RequestorMode = i8::try_from(MODE::KernelMode.0).unwrap_or(0);
    if is_neither {
        header.UserBuffer = output.cast().as_ptr();
    }
    irp.write(header);
    if is_neither && location.MajorFunction != IRP_MJ_READ && location.MajorFunction != IRP_MJ_WRITE {
        GuestIrp(irp).set_type_3_input(input.address());
    }
    host.objects.add(requestor.kind, irp.address());
    IoRequest::new(host, irp, Memory::Program(memory)).set_requestor(requestor);
    irp
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Makes a control request, which the I/O manager frees when it is completed; null when memory is exhausted.
    [<= APC_LEVEL]
    fn IoBuildDeviceIoControlRequest(
        code: u32,
        device: Guest<DEVICE_OBJECT>,
        input: Guest<u8>,
        input_length: u32,
        output: Guest<u8>,
        output_length: u32,
        is_internal: u8,
        event: Guest<KEVENT>,
        status: Guest<IO_STATUS_BLOCK>,
    ) -> Guest<IRP> {
        let mut location = IO_STACK_LOCATION::zeroed();
        location.MajorFunction =
            if is_internal == 0 { IRP_MJ_DEVICE_CONTROL } else { IRP_MJ_INTERNAL_DEVICE_CONTROL };
        location.Parameters.DeviceIoControl.OutputBufferLength = output_length;
        location.Parameters.DeviceIoControl.InputBufferLength = input_length;
        location.Parameters.DeviceIoControl.IoControlCode = code;
        let method = code & 3;
        let buffers = if method == METHOD_NEITHER {
            Buffers { method, ..Buffers::default() }
        } else {
            let [input, output] = [(input, input_length), (output, output_length)].map(|(at, length)| Buffer { at, length });
            Buffers { input: input.contents(), output: output.contents(), method }
        };
        let copied = if method == METHOD_NEITHER { Guest::null() } else { output };
        let requestor = Requestor { kind: CONTROL, event, status, output: copied };
        build(device, location, buffers, [input, output], requestor)
    }

    /// Makes a request to read, write, flush, shut down, or for Plug and Play, which the I/O manager frees when it is completed; null when
    /// memory is exhausted.
    [<= APC_LEVEL]
    fn IoBuildSynchronousFsdRequest(
        major: u32,
        device: Guest<DEVICE_OBJECT>,
        buffer: Guest<u8>,
        length: u32,
        offset: Guest<LARGE_INTEGER>,
        event: Guest<KEVENT>,
        status: Guest<IO_STATUS_BLOCK>,
    ) -> Guest<IRP> {
        let mut location = IO_STACK_LOCATION::zeroed();
        location.MajorFunction = major as u8;
        let (is_read, is_write) = (location.MajorFunction == IRP_MJ_READ, location.MajorFunction == IRP_MJ_WRITE);
        if is_read || is_write {
            // Those of writes have the same layout.
            location.Parameters.Read.Length = length;
            location.Parameters.Read.ByteOffset =
                if offset.is_null() { LARGE_INTEGER { QuadPart: 0 } } else { offset.read() };
        }
        let data = Buffer { at: buffer, length };
        let flags = device.read().Flags;
        let buffers = match (flags & DO_BUFFERED_IO != 0, flags & DO_DIRECT_IO != 0) {
            _ if buffer.is_null() => Buffers::default(),
            (true, _) if is_read => Buffers { output: data.contents(), method: METHOD_BUFFERED, ..Buffers::default() },
            (true, _) => Buffers { input: data.contents(), method: METHOD_BUFFERED, ..Buffers::default() },
            (_, true) => Buffers { output: data.contents(), method: METHOD_OUT_DIRECT, ..Buffers::default() },
            _ => Buffers { method: METHOD_NEITHER, ..Buffers::default() },
        };
        let copied = if is_read && buffers.method != METHOD_NEITHER { buffer } else { Guest::null() };
        build(device, location, buffers, [Guest::null(), buffer], Requestor { kind: TRANSFER, event, status, output: copied })
    }
}
