// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows.

use core::ffi::c_int;

use verbs_core::memory::MemoryWindow;
use verbs_core::{Access, Binding, Error, SendData, SendOperation, SendRequest, WindowType};

use crate::abi::flags::{IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ZERO_BASED};
use crate::abi::objects::{IbvMw, IbvMwBind, IbvMwBindInfo, IbvPd, IbvQp};
use crate::elements::flags;
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::{errno, mr, tables};

const TYPE_1: c_int = 1;
const TYPE_2: c_int = 2;

/// Lower bits of a key, which each bind changes.
const KEY_BITS: u32 = 8;
const KEY_MASK: u32 = (1 << KEY_BITS) - 1;

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

/// Creates a window. Fails as `EINVAL` if it is of neither type.
pub unsafe extern "C" fn alloc_mw(pd: *mut IbvPd, mw_type: c_int) -> *mut IbvMw {
    errno::pointer(handles::get::<Pd>(pd).and_then(|domain| {
        let window_type = match mw_type {
            TYPE_1 => WindowType::Type1,
            TYPE_2 => WindowType::Type2,
            _ => return Err(Error::Invalid),
        };
        let core = MemoryWindow::new(&domain.core, window_type)?;
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

/// Returns what a request binds to a window.
///
/// # Errors
/// [`Error::Invalid`] if there is no such region, it takes no windows, or the flags are unknown; [`Error::Unsupported`] for a window that
/// counts from 0.
fn binding(info: &IbvMwBindInfo) -> Result<Binding, Error> {
    let region = mr::bindable(info.mr)?;
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Error::Unsupported);
    }
    // A window is for peers: local access is that of the region.
    let access = tables::access(info.mw_access_flags & !IBV_ACCESS_LOCAL_WRITE)?;
    Ok(Binding { region, address: info.addr, length: info.length, access })
}

/// Returns what a work request binds to a window of type 2, which has the key.
///
/// # Errors
/// [`Error::Invalid`] if there is no such window, it is of type 1, or the key is of another one; else those of [`binding`].
pub fn binding_of_request(mw: *mut IbvMw, key: u32, info: &IbvMwBindInfo) -> Result<Binding, Error> {
    let mw = &handles::get::<Mw>(mw)?.base;
    if mw.mw_type != TYPE_2 || (mw.rkey ^ key) >> KEY_BITS != 0 {
        return Err(Error::Invalid);
    }
    binding(info)
}

/// Returns what a call binds to a window of type 1.
fn binding_of_call(info: &IbvMwBindInfo) -> Result<Binding, Error> {
    if info.length > 0 {
        return binding(info);
    }
    Ok(Binding { region: 0, address: 0, length: 0, access: Access::empty() })
}

/// Binds a window of type 1 to a region, in place of the one that it is bound to, or with a length of 0 to none. The window has another key
/// afterwards, as soon as the call returns.
pub unsafe extern "C" fn bind_mw(qp: *mut IbvQp, mw: *mut IbvMw, bind: *mut IbvMwBind) -> c_int {
    // SAFETY: the program passes a structure.
    let bind = unsafe { &*bind };
    let posted = handles::get::<Mw>(mw).and_then(|window| {
        let qp = handles::get::<Qp>(qp)?;
        if window.base.mw_type != TYPE_1 {
            return Err(Error::Invalid);
        }
        let binding = binding_of_call(&bind.bind_info)?;
        // The key that this call returns, and programs read it there.
        // SAFETY: the window was found above. The program does not bind it on two threads at a time.
        let rkey = unsafe { &mut (*mw).rkey };
        let key = *rkey & !KEY_MASK | rkey.wrapping_add(1) & KEY_MASK;
        let operation = SendOperation::Bind { key };
        let (context, flags) = (bind.wr_id, flags(bind.send_flags)?);
        let request = SendRequest { context, operation, flags, data: SendData::Binding(&binding) };
        qp.core.post_send(&request, None)?;
        *rkey = key;
        qp.core.start();
        Ok(())
    });
    errno::status(posted)
}
