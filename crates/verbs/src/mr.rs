// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions.

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use verbs_core::Error;
use verbs_core::memory::{MemoryRegion, Range};

use crate::abi::flags::{IBV_ACCESS_MW_BIND, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_ZERO_BASED};
use crate::abi::objects::{IbvMr, IbvPd};
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::{errno, tables};

/// A memory region.
#[repr(C)]
pub struct Mr {
    base: IbvMr,
    core: Mutex<MemoryRegion>,
    /// Windows can be bound to it.
    takes_windows: AtomicBool,
}

// SAFETY: it is `repr(C)` and begins with an `IbvMr`.
unsafe impl Handle for Mr {
    type C = IbvMr;
}

/// Parts of a region that a registration changes, `ibv_rereg_mr_flags`.
const CHANGE_TRANSLATION: c_int = 1;
const CHANGE_PD: c_int = 1 << 1;
const CHANGE_ACCESS: c_int = 1 << 2;

/// `IBV_REREG_MR_ERR_INPUT`: the region is as before.
const ERROR_OF_INPUT: c_int = -1;

fn register(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<*mut IbvMr, Error> {
    let base = if flags & IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    let range = Range { address: addr.expose_provenance(), length, base, access: tables::access(flags)? };
    let domain = handles::get::<Pd>(pd)?;
    // SAFETY: a program that registers memory leaves it mapped until it deregisters it: `ibv_reg_mr` has this contract, and a page that
    // is unmapped nevertheless ends the process. No Rust code of the program refers to it while peers access it.
    let core = unsafe { MemoryRegion::register(&domain.core, &range) }?;
    let key = core.key();
    // SAFETY: the domain was found when the memory was registered.
    let context = unsafe { (*pd).context };
    let base = IbvMr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
    let takes_windows = (flags & IBV_ACCESS_MW_BIND != 0).into();
    Ok(handles::create(Mr { base, core: Mutex::new(core), takes_windows }))
}

/// Returns the key of a region to which windows can be bound.
///
/// # Errors
/// [`Error::Invalid`] if there is no such region, or it was registered without `IBV_ACCESS_MW_BIND`.
pub fn bindable(mr: *mut IbvMr) -> Result<u32, Error> {
    let found = handles::get::<Mr>(mr)?;
    if found.takes_windows.load(Ordering::Relaxed) { Ok(found.base.lkey) } else { Err(Error::Invalid) }
}

fn register_again(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<(), Error> {
    let found = handles::get::<Mr>(mr)?;
    let moves = flags & CHANGE_TRANSLATION != 0;
    let is_known = flags != 0 && flags & !(CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS) == 0;
    if !is_known || moves && addr.is_null() || access != 0 && flags & CHANGE_ACCESS == 0 {
        return Err(Error::Invalid);
    }
    let mut core = found.core.lock();
    let mut range = *core.range();
    if moves {
        range.address = addr.expose_provenance();
        range.length = length;
        range.base = addr.addr() as u64;
    }
    if flags & CHANGE_ACCESS != 0 {
        range.access = tables::access(access.cast_unsigned())?;
    }
    let pd = if flags & CHANGE_PD == 0 { found.base.pd } else { pd };
    let domain = handles::get::<Pd>(pd)?;
    // SAFETY: the program keeps the memory of the range as long as the region, as at a registration.
    unsafe { core.register_again(&domain.core, &range) }?;
    drop(core);
    if flags & CHANGE_ACCESS != 0 {
        let takes_windows = access.cast_unsigned() & IBV_ACCESS_MW_BIND != 0;
        found.takes_windows.store(takes_windows, Ordering::Relaxed);
    }
    // SAFETY: the region was found above. The program uses none of its fields during the call.
    let shown = unsafe { &mut *mr };
    shown.pd = pd;
    if moves {
        (shown.addr, shown.length) = (addr, length);
    }
    Ok(())
}

/// Registers a region anew, with other memory, access or protection domain. Its keys stay. Returns 0, or
/// `IBV_REREG_MR_ERR_INPUT` with `errno`: each error is found before the region changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    match register_again(mr, flags, pd, addr, length, access) {
        Ok(()) => 0,
        Err(error) => {
            errno::set(errno::number(error));
            ERROR_OF_INPUT
        }
    }
}

/// Registers memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut IbvMr {
    errno::pointer(register(pd, addr, length, addr.addr() as u64, access.cast_unsigned()))
}

/// Registers memory under another address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut IbvMr {
    errno::pointer(register(pd, addr, length, iova, access.cast_unsigned()))
}

/// Registers memory under another address; flags of the optional range are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut IbvMr {
    errno::pointer(register(pd, addr, length, iova, access & !IBV_ACCESS_OPTIONAL_RANGE))
}

/// Deregisters memory. Fails as `EBUSY` if windows are bound to the region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int {
    errno::status(handles::destroy::<Mr>(mr, |mr| mr.core.lock().destroy()))
}

/// Does nothing: memory stays accessible to a child after `fork`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Does nothing: memory stays accessible to a child after `fork`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
