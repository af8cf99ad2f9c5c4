// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions.

use core::ffi::{c_int, c_uint, c_void};

use verbs_core::Error;
use verbs_core::memory::{MemoryRegion, Range};

use crate::abi::flags::{IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_ZERO_BASED};
use crate::abi::objects::{IbvMr, IbvPd};
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::{errno, tables};

/// A memory region.
#[repr(C)]
pub struct Mr {
    base: IbvMr,
    pub core: MemoryRegion,
}

// SAFETY: it is `repr(C)` and begins with an `IbvMr`.
unsafe impl Handle for Mr {
    type C = IbvMr;
}

fn register(
    pd: *mut IbvPd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<*mut IbvMr, Error> {
    let domain = handles::get::<Pd>(pd)?;
    let base = if flags & IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    let range = Range { address: addr.expose_provenance(), length, base, access: tables::access(flags)? };
    // SAFETY: a program that registers memory leaves it mapped until it deregisters it: `ibv_reg_mr` has this contract, and a page that
    // is unmapped nevertheless ends the process. No Rust code of the program refers to it while peers access it.
    let core = unsafe { MemoryRegion::register(&domain.core, &range) }?;
    let key = core.key();
    // SAFETY: the domain was found above.
    let context = unsafe { (*pd).context };
    let base = IbvMr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
    Ok(handles::create(Mr { base, core }))
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
    errno::status(handles::destroy::<Mr>(mr, |mr| mr.core.destroy()))
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
