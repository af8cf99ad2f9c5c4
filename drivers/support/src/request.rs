// SPDX-License-Identifier: MIT OR Apache-2.0

//! A request of the I/O manager, with checked access to its buffers.
#![allow(unsafe_code, reason = "calls of Windows and its structures")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place behind two pointers is one access")]

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};

use ndk_abi::nt::{
    IO_STACK_LOCATION, IO_STATUS_BLOCK_Anonymous, IRP, IofCompleteRequest, MDL, NTSTATUS,
    STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_PENDING,
};

use crate::status::Result;

/// A request that this driver has to complete. `F` is the driver's context of an open file.
pub struct Request<F = ()> {
    irp: NonNull<IRP>,
    file: PhantomData<F>,
}

impl<F: Send + Sync> Request<F> {
    /// # Safety
    /// The request is this driver's until it is completed, and `Self` is not used afterwards. The driver accesses contexts of
    /// files only by this type.
    #[must_use]
    pub const unsafe fn new(irp: NonNull<IRP>) -> Self {
        Self { irp, file: PhantomData }
    }

    #[must_use]
    pub const fn irp(&self) -> NonNull<IRP> {
        self.irp
    }

    fn location(&self) -> &IO_STACK_LOCATION {
        // SAFETY: the request is this driver's; this alternative of the union is the one in use until it is completed.
        let location = unsafe { (*self.irp.as_ptr()).Tail.Overlay.CurrentStackLocation };
        // SAFETY: the current stack location of the request.
        unsafe { &*location }
    }

    /// Returns the major function code.
    #[must_use]
    pub fn major(&self) -> u8 {
        self.location().MajorFunction
    }

    /// Returns the IOCTL code.
    #[must_use]
    pub fn code(&self) -> u32 {
        // SAFETY: callers have found that the major function is IRP_MJ_DEVICE_CONTROL, so that this alternative is
        // the one in use.
        unsafe { self.location().Parameters.DeviceIoControl.IoControlCode }
    }

    fn input_length(&self) -> usize {
        // SAFETY: callers have found that the major function is IRP_MJ_DEVICE_CONTROL, so that this alternative is
        // the one in use.
        (unsafe { self.location().Parameters.DeviceIoControl.InputBufferLength }) as usize
    }

    /// Returns the length of the output buffer; of direct methods, of the locked buffer.
    #[must_use]
    pub fn output_length(&self) -> usize {
        // SAFETY: callers have found that the major function is IRP_MJ_DEVICE_CONTROL, so that this alternative is
        // the one in use.
        (unsafe { self.location().Parameters.DeviceIoControl.OutputBufferLength }) as usize
    }

    fn system_buffer(&self) -> *mut u8 {
        // SAFETY: the request is this driver's; the buffer of buffered and direct methods.
        unsafe { (*self.irp.as_ptr()).AssociatedIrp.SystemBuffer }.cast()
    }

    /// Copies the input, which must have exactly this length. The copy stays what was checked, and the output may
    /// overwrite the buffer.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER` for another length.
    pub fn input<const N: usize>(&self) -> Result<[u8; N]> {
        let buffer = self.system_buffer();
        if self.input_length() != N || (buffer.is_null() && N != 0) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let mut input = [0; N];
        if N != 0 {
            // SAFETY: the I/O manager has copied the input, whose length was checked, to the system buffer.
            unsafe { buffer.copy_to_nonoverlapping(input.as_mut_ptr(), N) };
        }
        Ok(input)
    }

    /// Checks that the output buffer holds `length` bytes.
    ///
    /// # Errors
    /// `STATUS_BUFFER_TOO_SMALL`.
    pub fn check_output(&self, length: usize) -> Result {
        if self.output_length() < length || self.system_buffer().is_null() {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        Ok(())
    }

    /// Writes the output of a buffered method; returns its length.
    ///
    /// # Errors
    /// `STATUS_BUFFER_TOO_SMALL`.
    pub fn output(&self, bytes: &[u8]) -> Result<usize> {
        self.check_output(bytes.len())?;
        // SAFETY: the system buffer has the length of the output buffer at least, which was compared with that of
        // `bytes`.
        unsafe { self.system_buffer().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(bytes.len())
    }

    /// Returns the locked buffer of a direct method and its length; `None` if it is empty.
    #[must_use]
    pub fn direct(&self) -> Option<(NonNull<MDL>, usize)> {
        // SAFETY: the request is this driver's.
        let mdl = NonNull::new(unsafe { (*self.irp.as_ptr()).MdlAddress })?;
        let length = self.output_length();
        (length != 0).then_some((mdl, length))
    }

    /// Returns what identifies the open file.
    #[must_use]
    pub fn file(&self) -> usize {
        self.location().FileObject.addr()
    }

    /// Returns the driver's context of the file, if it has one.
    #[must_use]
    pub fn file_context(&self) -> Option<&F> {
        // SAFETY: the file is open as long as there are requests for it; its context is this driver's.
        let context = unsafe { (*self.location().FileObject).FsContext }.cast::<F>();
        // SAFETY: set by `set_file_context`, freed when the file is closed.
        unsafe { context.as_ref() }
    }

    /// Sets the context of a file that is being opened.
    pub fn set_file_context(&self, file: Box<F>) {
        // SAFETY: as above; no other request for the file exists yet.
        unsafe { (*self.location().FileObject).FsContext = Box::into_raw(file).cast() };
    }

    /// Takes the context of a file that is being closed.
    #[must_use]
    pub fn take_file_context(&self) -> Option<Box<F>> {
        let object = self.location().FileObject;
        // SAFETY: as above; the last request for the file.
        let context = unsafe { (*object).FsContext }.cast::<F>();
        // SAFETY: the file object is alive during its last request, which is the only one that uses the context.
        unsafe { (*object).FsContext = null_mut() };
        // SAFETY: from `Box::into_raw`, and taken once.
        NonNull::new(context).map(|context| unsafe { Box::from_raw(context.as_ptr()) })
    }

    /// Completes the request; returns the status for the I/O manager. Any IRQL <= `DISPATCH_LEVEL`.
    #[must_use]
    pub fn complete(self, status: NTSTATUS, information: usize) -> NTSTATUS {
        // SAFETY: the request is this driver's until the call below.
        let block = unsafe { &mut (*self.irp.as_ptr()).IoStatus };
        block.Anonymous = IO_STATUS_BLOCK_Anonymous { Status: status };
        block.Information = information;
        // SAFETY: completed once, because `self` is consumed. IO_NO_INCREMENT.
        unsafe { IofCompleteRequest(self.irp.as_ptr(), 0) };
        status
    }

    /// Leaves the request to the thread that will complete it.
    #[allow(clippy::unused_self, reason = "the caller gives the request away")]
    #[must_use]
    pub fn leave_pending(self) -> NTSTATUS {
        STATUS_PENDING
    }
}
