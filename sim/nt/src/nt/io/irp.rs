// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of one request: its IRP with a stack location for each device of the stack, its buffers.
//!
//! Each is a pool block of its own, so that the verifier's special pool finds accesses beyond its end and after
//! completion.

use std::mem::offset_of;

use ndk_abi::nt::{
    IO_STACK_LOCATION, IO_STACK_LOCATION_Parameters_DeviceIoControl, IO_STATUS_BLOCK, IO_TYPE_IRP, IRP, MDL,
    METHOD_BUFFERED, METHOD_NEITHER, MODE, SL_PENDING_RETURNED,
};

use crate::{
    Host,
    guest::Guest,
    memory::pool::{Misuse, Request, Tag},
    nt::mdl::GuestMdl,
    thread::ThreadId,
};

const IRP_TAG: Tag = Tag(u32::from_le_bytes(*b"Irp "));
const BUFFER_TAG: Tag = Tag(u32::from_le_bytes(*b"IoSB"));

/// Returns the size of an IRP with `locations` stack locations.
fn size(locations: i8) -> usize {
    size_of::<IRP>() + usize::try_from(locations).unwrap_or(0) * size_of::<IO_STACK_LOCATION>()
}

/// Allocates an IRP with `locations` stack locations, none of which a driver has; returns `None` when memory is exhausted.
pub(super) fn allocate_irp(host: &Host, locations: i8) -> Option<GuestIrp> {
    let irp = GuestIrp(allocate(host, size(locations), IRP_TAG)?.cast());
    irp.initialize(locations);
    Some(irp)
}

/// Frees what [`allocate_irp`] has returned.
///
/// # Errors
/// [`Misuse`] when something wrote outside of the IRP.
pub(super) fn free_irp(host: &Host, irp: Guest<IRP>) -> Result<(), Misuse> {
    free(host, irp.cast(), IRP_TAG)
}

/// Returns the pointer that stands for a thread in an IRP.
pub(super) fn thread_pointer(thread: ThreadId) -> usize {
    const FIRST: usize = 0x00fe_0000_0000_0000;
    FIRST + thread.0 as usize * 0x40
}

/// An IRP as the image sees it.
#[derive(Clone, Copy)]
pub struct GuestIrp(pub Guest<IRP>);

impl GuestIrp {
    fn field<T: Copy>(self, offset: usize) -> Guest<T> {
        self.0.field(offset)
    }

    /// Makes the IRP one that no driver has.
    pub(super) fn initialize(self, locations: i8) {
        self.0.cast::<u8>().fill(0, size(locations));
        self.field(offset_of!(IRP, Type)).write(IO_TYPE_IRP);
        self.field(offset_of!(IRP, Size)).write(u16::try_from(size(locations)).unwrap_or(u16::MAX));
        self.field(offset_of!(IRP, StackCount)).write(locations);
        self.set_current(locations.saturating_add(1));
    }

    /// Returns the number of stack locations.
    pub(super) fn locations(self) -> i8 {
        self.field(offset_of!(IRP, StackCount)).read()
    }

    /// Returns the number of the stack location of the driver that has the request: 1 is the lowest driver's, and one more than
    /// [`Self::locations`] means that no driver has it.
    pub(super) fn current(self) -> i8 {
        self.field(offset_of!(IRP, CurrentLocation)).read()
    }

    pub(super) fn set_current(self, location: i8) {
        self.field(offset_of!(IRP, CurrentLocation)).write(location);
        let pointer = self.location_at(location).address();
        self.field(offset_of!(IRP, Tail.Overlay.CurrentStackLocation)).write(pointer);
    }

    /// Returns the stack location with a number of at least 1.
    pub(super) fn location_at(self, location: i8) -> Guest<IO_STACK_LOCATION> {
        let first: Guest<IO_STACK_LOCATION> = self.0.add(1).cast();
        first.add(usize::try_from(location.saturating_sub(1)).unwrap_or(0))
    }

    pub(super) fn is_pending_at(self, location: i8) -> bool {
        control(self.location_at(location)).read() & SL_PENDING_RETURNED != 0
    }

    /// Does what `IoMarkIrpPending` does in the current location.
    pub(super) fn mark_pending(self) {
        let control = control(self.location());
        control.write(control.read() | SL_PENDING_RETURNED);
    }

    pub(super) fn pending_returned(self) -> Guest<u8> {
        self.field(offset_of!(IRP, PendingReturned))
    }

    /// Returns the stack location of the driver that has the request.
    #[must_use]
    pub fn location(self) -> Guest<IO_STACK_LOCATION> {
        let current = self.field::<usize>(offset_of!(IRP, Tail.Overlay.CurrentStackLocation)).read();
        Guest::from_address(current)
    }

    #[must_use]
    pub fn status(self) -> (i32, usize) {
        let status = offset_of!(IRP, IoStatus) + offset_of!(IO_STATUS_BLOCK, Anonymous.Status);
        let information = offset_of!(IRP, IoStatus) + offset_of!(IO_STATUS_BLOCK, Information);
        (self.field::<i32>(status).read(), self.field::<usize>(information).read())
    }

    pub fn set_status(self, status: i32, information: usize) {
        let block = offset_of!(IRP, IoStatus);
        self.field::<i32>(block + offset_of!(IO_STATUS_BLOCK, Anonymous.Status)).write(status);
        self.field::<usize>(block + offset_of!(IO_STATUS_BLOCK, Information)).write(information);
    }

    /// Sets the input buffer of a control request without a method, in the location of its first driver.
    pub(super) fn set_type_3_input(self, input: usize) {
        let offset = offset_of!(IO_STACK_LOCATION, Parameters)
            + offset_of!(IO_STACK_LOCATION_Parameters_DeviceIoControl, Type3InputBuffer);
        self.location_at(self.locations()).field::<usize>(offset).write(input);
    }

    pub(super) fn cancel_routine(self) -> Guest<usize> {
        self.field(offset_of!(IRP, CancelRoutine))
    }

    pub(super) fn cancel(self) -> Guest<u8> {
        self.field(offset_of!(IRP, Cancel))
    }

    pub(super) fn cancel_irql(self) -> Guest<u8> {
        self.field(offset_of!(IRP, CancelIrql))
    }

    /// Returns the device whose driver has the request, or 0.
    pub(super) fn device(self) -> usize {
        if self.current() > self.locations() { 0 } else { device(self.location()).read() }
    }
}

pub(super) fn control(location: Guest<IO_STACK_LOCATION>) -> Guest<u8> {
    location.field(offset_of!(IO_STACK_LOCATION, Control))
}

pub(super) fn device(location: Guest<IO_STACK_LOCATION>) -> Guest<usize> {
    location.field(offset_of!(IO_STACK_LOCATION, DeviceObject))
}

/// The buffers of a request, as its program passes them.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    pub input: Vec<u8>,
    /// Contents of the output buffer before the request; its length is the output length.
    pub output: Vec<u8>,
    /// `METHOD_*`.
    pub method: u32,
}

/// The memory of a request.
pub struct RequestMemory {
    pub irp: Guest<IRP>,
    buffers: Buffers,
    /// Input and output of buffered requests, input of others.
    system: Option<Guest<u8>>,
    /// Output buffer of direct requests and of those without a method.
    output: Option<Guest<u8>>,
    mdl: Option<Guest<MDL>>,
}

fn allocate(host: &Host, size: usize, tag: Tag) -> Option<Guest<u8>> {
    let request = Request { size, tag, zeroed: true, cache_aligned: false };
    host.memory.pool.allocate(&host.memory.physical, &host.memory.space, request)
}

fn free(host: &Host, block: Guest<u8>, tag: Tag) -> Result<(), Misuse> {
    host.memory.pool.free(&host.memory.physical, &host.memory.space, block, Some(tag))
}

/// Memory is exhausted.
struct Exhausted;

/// Allocates a block with these contents, at least `size` bytes; none for none.
fn block_with(host: &Host, contents: &[u8], size: usize) -> Result<Option<Guest<u8>>, Exhausted> {
    let size = size.max(contents.len());
    if size == 0 {
        return Ok(None);
    }
    let block = allocate(host, size, BUFFER_TAG).ok_or(Exhausted)?;
    block.write_bytes(contents);
    Ok(Some(block))
}

impl RequestMemory {
    /// Allocates a request whose first driver gets `location`; returns `None` when memory is exhausted.
    pub fn new(
        host: &Host,
        buffers: Buffers,
        location: IO_STACK_LOCATION,
        thread: usize,
        locations: i8,
    ) -> Option<Self> {
        let guest = allocate_irp(host, locations)?;
        let irp = guest.0;
        let buffered = buffers.method == METHOD_BUFFERED;
        let neither = buffers.method == METHOD_NEITHER;
        let system_size = if buffered { buffers.output.len() } else { 0 };
        let system = block_with(host, &buffers.input, system_size).ok()?;
        let output = if buffered { None } else { block_with(host, &buffers.output, 0).ok()? };
        let mdl = match output {
            Some(output) if !neither => Some(locked(host, output, buffers.output.len())?),
            _ => None,
        };
        let mut header = irp.read();
        // Buffers without a method are passed as they are: only a requestor in the kernel can do that here.
        let mode = if neither { MODE::KernelMode } else { MODE::UserMode };
        header.RequestorMode = i8::try_from(mode.0).unwrap_or(0);
        header.AssociatedIrp.SystemBuffer = pointer(if neither { None } else { system });
        header.UserBuffer = pointer(output);
        header.MdlAddress = mdl.unwrap_or(Guest::null()).as_ptr();
        header.Tail.Overlay.Thread = Guest::from_address(thread).as_ptr();
        header.Tail.Overlay.OriginalFileObject = location.FileObject;
        irp.write(header);
        let mut location = location;
        if neither {
            location.Parameters.DeviceIoControl.Type3InputBuffer = pointer(system);
        }
        guest.location_at(locations).write(location);
        Some(Self { irp, buffers, system, output, mdl })
    }

    /// Returns the output, of which the driver says that `information` bytes are valid.
    #[must_use]
    pub fn output(&self, information: usize) -> Vec<u8> {
        let mut output = self.buffers.output.clone();
        match (self.buffers.method, self.system, self.output) {
            (METHOD_BUFFERED, Some(system), _) => {
                output.truncate(information);
                system.read_bytes(&mut output);
            }
            (_, _, Some(buffer)) => buffer.read_bytes(&mut output),
            _ => output.clear(),
        }
        output
    }

    /// Returns the length of the output buffer in bytes.
    #[must_use]
    pub fn output_length(&self) -> usize {
        self.buffers.output.len()
    }

    #[must_use]
    pub fn is_buffered(&self) -> bool {
        self.buffers.method == METHOD_BUFFERED
    }

    /// Returns the MDL of the output buffer, which its caller frees.
    pub fn take_mdl(&mut self) -> Option<Guest<MDL>> {
        self.mdl.take()
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// [`Misuse`] when something wrote outside of a block.
    pub fn free(self, host: &Host) -> Result<(), Misuse> {
        let blocks = [self.system, self.output]
            .map(|block| block.map_or(Ok(()), |block| free(host, block, BUFFER_TAG)));
        blocks.into_iter().collect::<Result<(), _>>()?;
        free_irp(host, self.irp)
    }
}

fn pointer<T>(block: Option<Guest<u8>>) -> *mut T {
    block.unwrap_or(Guest::null()).cast().as_ptr()
}

/// Makes an MDL of the block with its pages locked.
fn locked(host: &Host, block: Guest<u8>, length: usize) -> Option<Guest<MDL>> {
    let size = GuestMdl::size_for(block.address(), length);
    let mdl: Guest<MDL> = allocate(host, size, Tag(u32::from_le_bytes(*b"Mdl ")))?.cast();
    let guest = GuestMdl(mdl);
    guest.initialize(block.address(), u32::try_from(length).unwrap_or(u32::MAX));
    if !guest.fill(host) {
        return None;
    }
    guest.set_flags(ndk_abi::nt::MDL_PAGES_LOCKED);
    Some(mdl)
}
