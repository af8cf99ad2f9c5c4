// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_core::Error;
use verbs_core::memory::ProtectionDomain;

use crate::abi::context::IbvContext;
use crate::abi::objects::IbvPd;
use crate::handles::{self, Handle};
use crate::{context, errno};

/// A protection domain.
#[repr(C)]
pub struct Pd {
    base: IbvPd,
    pub core: Arc<ProtectionDomain>,
}

// SAFETY: it is `repr(C)` and begins with an `IbvPd`.
unsafe impl Handle for Pd {
    type C = IbvPd;
}

/// Creates a protection domain.
pub fn create(context: *mut IbvContext) -> Result<*mut IbvPd, Error> {
    let core = ProtectionDomain::new(context::find(context)?);
    Ok(handles::create(Pd { base: IbvPd { context, handle: 0 }, core }))
}

/// Creates a protection domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd {
    errno::pointer(create(context))
}

/// Destroys a protection domain. Fails as `EBUSY` if other objects use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int {
    errno::status(handles::destroy::<Pd>(pd, |pd| pd.core.destroy()))
}
