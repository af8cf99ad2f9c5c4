// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows, of type 2.

use core::ffi::c_int;

use verbs_core::memory::MemoryWindow;
use verbs_core::{Binding, Error};

use crate::abi::flags::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ZERO_BASED};
use crate::abi::objects::{IbvMr, IbvMw, IbvMwBindInfo, IbvPd};
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::{errno, tables};

const TYPE_2: c_int = 2;

/// A memory window.
#[repr(C)]
pub struct Mw {
    base: IbvMw,
    core: MemoryWindow,
}

// SAFETY: it is `repr(C)` and begins with an `IbvMw`.
unsafe impl Handle for Mw {
    type C = IbvMw;
}

/// Creates a window. Fails as `EOPNOTSUPP` for type 1.
pub unsafe extern "C" fn alloc_mw(pd: *mut IbvPd, mw_type: c_int) -> *mut IbvMw {
    errno::pointer(handles::get::<Pd>(pd).and_then(|domain| {
        if mw_type != TYPE_2 {
            return Err(Error::Unsupported);
        }
        let core = MemoryWindow::new(&domain.core)?;
        let rkey = core.key();
        // SAFETY: the domain was found above.
        let context = unsafe { (*pd).context };
        Ok(handles::create(Mw { base: IbvMw { context, pd, rkey, handle: rkey, mw_type }, core }))
    }))
}

/// Destroys a window.
pub unsafe extern "C" fn dealloc_mw(mw: *mut IbvMw) -> c_int {
    errno::status(handles::destroy::<Mw>(mw, |mw| mw.core.destroy()))
}

/// Returns the binding of a work request.
///
/// # Errors
/// [`Error::Invalid`] if the region is none, or the flags are unknown; [`Error::Unsupported`] for a window that counts from 0.
pub fn binding(info: &IbvMwBindInfo) -> Result<Binding, Error> {
    let region: *mut IbvMr = info.mr;
    if region.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: the program passes a region.
    let region = unsafe { (*region).lkey };
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Error::Unsupported);
    }
    // A window is for peers: local access is that of the region.
    let access = tables::access(info.mw_access_flags & !IBV_ACCESS_LOCAL_WRITE)?;
    Ok(Binding { region, address: info.addr, length: info.length, access })
}
