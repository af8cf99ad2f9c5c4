// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handing a request to its driver, with the checks of what the dispatch routine returns.

use std::sync::Arc;

use ndk_abi::nt::{DRIVER_DISPATCH, STATUS_PENDING};

use super::{
    device::{self, DEFAULT_DISPATCH},
    request::IoRequest,
};
use crate::{
    Host,
    guest::Guest,
    image,
    thread::current,
    verifier::{BugCheck, violation},
};

fn name(major: u8) -> &'static str {
    const NAMES: [&str; 28] = [
        "IRP_MJ_CREATE",
        "IRP_MJ_CREATE_NAMED_PIPE",
        "IRP_MJ_CLOSE",
        "IRP_MJ_READ",
        "IRP_MJ_WRITE",
        "IRP_MJ_QUERY_INFORMATION",
        "IRP_MJ_SET_INFORMATION",
        "IRP_MJ_QUERY_EA",
        "IRP_MJ_SET_EA",
        "IRP_MJ_FLUSH_BUFFERS",
        "IRP_MJ_QUERY_VOLUME_INFORMATION",
        "IRP_MJ_SET_VOLUME_INFORMATION",
        "IRP_MJ_DIRECTORY_CONTROL",
        "IRP_MJ_FILE_SYSTEM_CONTROL",
        "IRP_MJ_DEVICE_CONTROL",
        "IRP_MJ_INTERNAL_DEVICE_CONTROL",
        "IRP_MJ_SHUTDOWN",
        "IRP_MJ_LOCK_CONTROL",
        "IRP_MJ_CLEANUP",
        "IRP_MJ_CREATE_MAILSLOT",
        "IRP_MJ_QUERY_SECURITY",
        "IRP_MJ_SET_SECURITY",
        "IRP_MJ_POWER",
        "IRP_MJ_SYSTEM_CONTROL",
        "IRP_MJ_DEVICE_CHANGE",
        "IRP_MJ_QUERY_QUOTA",
        "IRP_MJ_SET_QUOTA",
        "IRP_MJ_PNP",
    ];
    NAMES.get(usize::from(major)).copied().unwrap_or("an IRP")
}

/// Calls the dispatch routine of `driver` with a request to `device`.
pub(super) fn dispatch(host: &Host, (driver, device): (usize, usize), major: u8, request: &Arc<IoRequest>) {
    let entry = device::major_function(driver, major).read();
    let (device, irp) = (Guest::from_address(device), request.irp());
    let returned = if entry == host.state(&DEFAULT_DISPATCH).address("IopInvalidDeviceRequest") {
        device::IopInvalidDeviceRequest(device, irp)
    } else {
        // SAFETY: the driver stored its dispatch routine there.
        let routine: DRIVER_DISPATCH = unsafe { image::function(name(major), entry) };
        // SAFETY: the arguments of a dispatch routine.
        image::call(name(major), || unsafe { routine(device.as_ptr(), irp.as_ptr()) })
    };
    if current().verifies()
        && let Some(text) = objection(request, returned)
    {
        violation(
            BugCheck::DRIVER_VERIFIER_IOMANAGER_VIOLATION,
            format!("the dispatch routine of {} {text}", name(major)),
        );
    }
}

/// Returns what is wrong with the status that a dispatch routine returned.
fn objection(request: &IoRequest, returned: i32) -> Option<String> {
    let marked = request.with_irp(super::irp::GuestIrp::is_marked_pending);
    let unmarked = || Some("returned STATUS_PENDING without a call of IoMarkIrpPending".to_owned());
    match (marked, request.completion()) {
        (Some(true), _) if returned == STATUS_PENDING => None,
        (Some(false), _) if returned == STATUS_PENDING => unmarked(),
        (Some(true), _) => {
            Some(format!("called IoMarkIrpPending and returned {returned:#x} instead of STATUS_PENDING"))
        }
        (Some(false), _) => {
            Some(format!("returned {returned:#x}, but neither completed the request nor made it pending"))
        }
        (None, Some(completion)) if completion.marked_pending != (returned == STATUS_PENDING) => {
            if completion.marked_pending {
                Some(format!("called IoMarkIrpPending and returned {returned:#x} instead of STATUS_PENDING"))
            } else {
                unmarked()
            }
        }
        (None, Some(completion)) if returned != STATUS_PENDING && completion.status != returned => Some(
            format!("returned {returned:#x} for a request that it completed with {:#x}", completion.status),
        ),
        // Completed, or just being completed by another thread.
        (None, _) => None,
    }
}
