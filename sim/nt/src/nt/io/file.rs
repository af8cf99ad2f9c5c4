// SPDX-License-Identifier: MIT OR Apache-2.0

//! Open devices, as programs use them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use ndk_abi::nt::{
    DEVICE_OBJECT, FILE_NON_DIRECTORY_FILE, FILE_OBJECT, FILE_OPEN, FILE_SYNCHRONOUS_IO_NONALERT,
    FO_SYNCHRONOUS_IO, GENERIC_READ, GENERIC_WRITE, IO_SECURITY_CONTEXT, IO_STACK_LOCATION, IO_TYPE_FILE,
    IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, STATUS_CANCELLED, STATUS_FILE_CLOSED,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_SUCH_DEVICE, SYNCHRONIZE, UNICODE_STRING,
};
use parking_lot::Mutex;

use super::{
    cancel,
    device::{self, DEVICES},
    dispatch,
    irp::{self, Buffers, RequestMemory},
    namespace::NAMESPACE,
    request::{Completion, IoRequest, Memory},
};
use crate::{
    Host,
    guest::Guest,
    memory::pool::{Request, Tag},
    thread::current,
    verifier::{BugCheck, broken, rules, violation},
};

const TAG: Tag = Tag(u32::from_le_bytes(*b"File"));

/// How long a driver may keep requests of a file that was closed.
const LONGEST_CLOSE: Duration = Duration::from_secs(30);

/// An open device: a handle of a program. Clones are the same handle. It stays open until [`File::close`].
#[derive(Clone)]
pub struct File {
    open: Arc<Open>,
}

struct Open {
    host: Weak<Host>,
    device: usize,
    object: Guest<FILE_OBJECT>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: bool,
    requests: Vec<Weak<IoRequest>>,
}

/// Outcome of an I/O control request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoResult {
    pub status: i32,
    pub information: usize,
    /// `METHOD_BUFFERED`: as many bytes of the output buffer as `information` says. Direct methods: the whole
    /// output buffer. Empty when `status` is an error.
    pub output: Vec<u8>,
}

impl From<Completion> for IoResult {
    fn from(completion: Completion) -> Self {
        let Completion { status, information, output, .. } = completion;
        Self { status, information, output }
    }
}

impl IoResult {
    fn failed(status: i32) -> Self {
        Self { status, information: 0, output: Vec::new() }
    }
}

/// An I/O control request that was handed to its driver.
pub struct Pending {
    outcome: Result<Arc<IoRequest>, i32>,
}

impl Pending {
    /// Returns whether the request is completed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome.as_ref().map_or(true, |request| request.completion().is_some())
    }

    /// Cancels the request as `CancelIoEx` does; returns `false` when its driver cannot cancel it, or when it is
    /// completed. On a thread of the host, at `PASSIVE_LEVEL`.
    #[allow(clippy::must_use_candidate)]
    pub fn cancel(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|request| cancel::cancel(request))
    }

    /// Waits for completion. On a thread of the host.
    #[must_use]
    pub fn wait(self) -> IoResult {
        match self.outcome {
            Ok(request) => finish(&request).into(),
            Err(status) => IoResult::failed(status),
        }
    }

    /// Waits for completion up to `timeout`; `None` when it has passed.
    #[must_use]
    pub fn wait_for(&self, timeout: Duration) -> Option<IoResult> {
        match &self.outcome {
            Ok(request) => {
                let _ = request.wait(timeout);
                request.completion().map(IoResult::from)
            }
            Err(status) => Some(IoResult::failed(*status)),
        }
    }
}

fn finish(request: &IoRequest) -> Completion {
    loop {
        if let Some(completion) = request.completion() {
            return completion;
        }
        if current().world().clock.is_stuck() {
            // The simulation ends; no driver will complete it.
            return Completion { status: STATUS_CANCELLED, ..Completion::default() };
        }
        request.block();
    }
}

impl Host {
    /// Opens a device as a program does: by a name such as `\\.\Name`, `\DosDevices\Name` or `\Device\Name`. On a
    /// thread of this host, at `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The status of the name look-up, of the I/O manager's checks, or of the driver's `IRP_MJ_CREATE`.
    pub fn open_device(self: &Arc<Self>, name: &str) -> Result<File, i32> {
        let found = self.state(&NAMESPACE).lock().find(name)?;
        self.state(&DEVICES).lock().open(found.device)?;
        let Some((object, security)) = file_object(self, found.device, &found.rest) else {
            device::close(self, found.device);
            return Err(STATUS_INSUFFICIENT_RESOURCES);
        };
        let open = Open { host: Arc::downgrade(self), device: found.device, object, state: Mutex::default() };
        let mut location = open.location(IRP_MJ_CREATE);
        location.Parameters.Create.SecurityContext = security.as_ptr();
        location.Parameters.Create.Options =
            FILE_OPEN << 24 | FILE_SYNCHRONOUS_IO_NONALERT | FILE_NON_DIRECTORY_FILE;
        let outcome = open.send(location, Buffers::default());
        let status = outcome.map_or_else(|status| status, |request| finish(&request).status);
        if status < 0 {
            open.release(self);
            return Err(status);
        }
        Ok(File { open: Arc::new(open) })
    }
}

/// Makes a file object, with its name and the security context of its creation.
fn file_object(
    host: &Host,
    device: usize,
    name: &str,
) -> Option<(Guest<FILE_OBJECT>, Guest<IO_SECURITY_CONTEXT>)> {
    let name: Vec<u16> = name.encode_utf16().collect();
    let size = size_of::<FILE_OBJECT>() + size_of::<IO_SECURITY_CONTEXT>() + 2 * name.len();
    let request = Request { size, tag: TAG, zeroed: true, cache_aligned: false };
    let block = host.memory.pool.allocate(&host.memory.physical, &host.memory.space, request)?;
    let object: Guest<FILE_OBJECT> = block.cast();
    let security: Guest<IO_SECURITY_CONTEXT> = object.add(1).cast();
    let characters: Guest<u16> = security.add(1).cast();
    for (index, &character) in name.iter().enumerate() {
        characters.add(index).write(character);
    }
    let access = GENERIC_READ | GENERIC_WRITE | SYNCHRONIZE;
    security.write(IO_SECURITY_CONTEXT {
        DesiredAccess: access,
        FullCreateOptions: FILE_SYNCHRONOUS_IO_NONALERT,
        ..IO_SECURITY_CONTEXT::zeroed()
    });
    let length = u16::try_from(2 * name.len()).unwrap_or(0);
    let mut file = FILE_OBJECT::zeroed();
    file.Type = IO_TYPE_FILE;
    file.Size = i16::try_from(size_of::<FILE_OBJECT>()).unwrap_or(0);
    file.DeviceObject = Guest::<DEVICE_OBJECT>::from_address(device).as_ptr();
    file.Flags = FO_SYNCHRONOUS_IO;
    file.FileName = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: characters.as_ptr() };
    object.write(file);
    Some((object, security))
}

impl Open {
    fn location(&self, major: u8) -> IO_STACK_LOCATION {
        let mut location = IO_STACK_LOCATION::zeroed();
        location.MajorFunction = major;
        location.DeviceObject = Guest::from_address(self.device).as_ptr();
        location.FileObject = self.object.as_ptr();
        location
    }

    /// Hands a request to the highest driver of the device's stack; returns when its dispatch routine has returned.
    ///
    /// # Errors
    /// `STATUS_NO_SUCH_DEVICE` when the device is gone, `STATUS_INSUFFICIENT_RESOURCES` when memory is exhausted.
    fn send(&self, location: IO_STACK_LOCATION, buffers: Buffers) -> Result<Arc<IoRequest>, i32> {
        let me = current();
        let host = me.host();
        assert!(std::ptr::eq(Arc::as_ptr(host), self.host.as_ptr()), "a thread of another host");
        let top = host.state(&DEVICES).lock().top(self.device);
        let (top, locations) = top.ok_or(STATUS_NO_SUCH_DEVICE)?;
        let memory = RequestMemory::new(host, buffers, location, irp::thread_pointer(me.id()), locations)
            .ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let request = IoRequest::new(host, memory.irp, Memory::Program(memory));
        {
            let mut state = self.state.lock();
            state.requests.retain(|request| request.upgrade().is_some_and(|one| one.completion().is_none()));
            state.requests.push(Arc::downgrade(&request));
        }
        dispatch::call_driver(&me, top, &request);
        Ok(request)
    }

    /// Sends a request without buffers and waits for its completion.
    fn send_and_wait(&self, major: u8) {
        if let Ok(request) = self.send(self.location(major), Buffers::default()) {
            finish(&request);
        }
    }

    /// Frees the file object, and the device or driver if that waited for it.
    fn release(&self, host: &Host) {
        let memory = &host.memory;
        if let Err(misuse) = memory.pool.free(&memory.physical, &memory.space, self.object.cast(), Some(TAG))
        {
            violation(misuse.code, misuse.text);
        }
        device::close(host, self.device);
    }

    fn requests(&self) -> Vec<Arc<IoRequest>> {
        self.state.lock().requests.iter().filter_map(Weak::upgrade).collect()
    }
}

impl File {
    /// Sends an I/O control request and waits for its completion, on the calling thread. The output buffer has
    /// `output_length` zeros.
    #[must_use]
    pub fn ioctl(&self, code: u32, input: &[u8], output_length: usize) -> IoResult {
        self.start_ioctl(code, input, vec![0; output_length]).wait()
    }

    /// Calls the driver's dispatch routine with an I/O control request on the calling thread, and returns when it has
    /// returned. `output` is the output buffer; for `METHOD_IN_DIRECT` it has data for the driver.
    ///
    /// Fails with `STATUS_FILE_CLOSED` when the file was closed, and with `STATUS_NO_SUCH_DEVICE` when the driver has
    /// gone.
    #[must_use]
    pub fn start_ioctl(&self, code: u32, input: &[u8], output: Vec<u8>) -> Pending {
        let mut location = self.open.location(IRP_MJ_DEVICE_CONTROL);
        let length = |buffer: &[u8]| u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        location.Parameters.DeviceIoControl.OutputBufferLength = length(&output);
        location.Parameters.DeviceIoControl.InputBufferLength = length(input);
        location.Parameters.DeviceIoControl.IoControlCode = code;
        let buffers = Buffers { input: input.to_vec(), output, method: code & 3 };
        if self.open.state.lock().closed {
            return Pending { outcome: Err(STATUS_FILE_CLOSED) };
        }
        Pending { outcome: self.open.send(location, buffers) }
    }

    /// Returns the file object.
    #[must_use]
    pub fn object(&self) -> Guest<FILE_OBJECT> {
        self.open.object
    }

    /// Closes the file as a program that ends does: the driver gets `IRP_MJ_CLEANUP`, the requests it still has are
    /// cancelled, and when they are completed it gets `IRP_MJ_CLOSE`. On a thread of the host. A file that is closed
    /// already stays so.
    pub fn close(&self) {
        let me = current();
        let host = me.host();
        if std::mem::replace(&mut self.open.state.lock().closed, true) {
            return;
        }
        self.open.send_and_wait(IRP_MJ_CLEANUP);
        for request in self.open.requests() {
            cancel::cancel(&request);
        }
        for request in self.open.requests() {
            if !request.wait(LONGEST_CLOSE) && request.completion().is_none() {
                broken(
                    rules::CANCELED,
                    BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
                    format!(
                        "a request was not completed within {} s after IRP_MJ_CLEANUP and its cancellation",
                        LONGEST_CLOSE.as_secs()
                    ),
                );
            }
        }
        self.open.send_and_wait(IRP_MJ_CLOSE);
        self.open.release(host);
    }
}
