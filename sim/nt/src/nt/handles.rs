// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles of the kernel, and closing them.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use ndk_abi::nt::{STATUS_INVALID_HANDLE, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS};
use parking_lot::Mutex;

use crate::{
    Host, imports,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

pub(super) static HANDLES: Slot<Handles> = Slot::new();

/// The first handle: those of the kernel have the upper half set.
const FIRST: usize = 0xffff_ffff_8000_0004;

/// An object that a handle refers to.
pub(super) trait Object: Any + Send + Sync {
    /// The function that makes such a handle, e.g. `"ZwCreateFile"`.
    fn kind(&self) -> &'static str;

    /// The handle is closed.
    fn close(&self, _host: &Host) {}
}

/// The handles of a host.
#[derive(Default)]
pub struct Handles(Mutex<Table>);

#[derive(Default)]
struct Table {
    opened: usize,
    objects: BTreeMap<usize, Arc<dyn Object>>,
}

/// Makes a handle. The driver that runs must close it.
pub(super) fn open(host: &Host, object: Arc<dyn Object>) -> usize {
    let kind = object.kind();
    let handle = {
        let mut table = host.state(&HANDLES).0.lock();
        let handle = FIRST + 4 * table.opened;
        table.opened += 1;
        table.objects.insert(handle, object);
        handle
    };
    host.objects.add(kind, handle);
    handle
}

/// Returns what a handle refers to.
///
/// # Errors
/// `STATUS_INVALID_HANDLE` when it is not open, `STATUS_OBJECT_TYPE_MISMATCH` when it refers to something else.
pub(super) fn find<T: Object>(host: &Host, handle: usize) -> Result<Arc<T>, i32> {
    let object = host.state(&HANDLES).0.lock().objects.get(&handle).cloned();
    let object = object.ok_or(STATUS_INVALID_HANDLE)?;
    (object as Arc<dyn Any + Send + Sync>).downcast().map_err(|_| STATUS_OBJECT_TYPE_MISMATCH)
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Closes a handle. One that is not open is a bug check when the verifier is on.
    [<= PASSIVE_LEVEL]
    fn ZwClose(handle: usize) -> i32 {
        let me = current();
        let host = me.host();
        let object = host.state(&HANDLES).0.lock().objects.remove(&handle);
        let Some(object) = object else {
            if me.verifies() {
                violation(
                    BugCheck::INVALID_KERNEL_HANDLE,
                    format!("ZwClose of {handle:#x}, which is no handle or is closed already"),
                );
            }
            return STATUS_INVALID_HANDLE;
        };
        let _ = host.objects.remove(object.kind(), handle);
        object.close(host);
        STATUS_SUCCESS
    }
}
