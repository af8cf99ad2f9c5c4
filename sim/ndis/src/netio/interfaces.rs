// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interfaces as IP knows them: those of adapters that are started.

use std::sync::Arc;

use ndk_abi::{
    netio::{ADDRESS_FAMILY, AF_INET, AF_INET6, AF_UNSPEC},
    nt::{STATUS_INVALID_PARAMETER, STATUS_NOT_FOUND},
};
use nt_sim::Host;

use crate::adapter::{Adapter, adapters};

/// Returns the interface that a row or a call names by LUID, or by index if the LUID is 0.
///
/// # Errors
/// `STATUS_INVALID_PARAMETER` when it names none, `STATUS_NOT_FOUND` when there is no such interface.
pub(super) fn named(host: &Host, luid: u64, index: u32) -> Result<Arc<Adapter>, i32> {
    if luid == 0 && index == 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let is_named = |adapter: &Arc<Adapter>| match luid {
        0 => adapter.if_index == index,
        luid => adapter.interface.luid == luid,
    };
    adapters(host).into_iter().find(is_named).ok_or(STATUS_NOT_FOUND)
}

/// Returns the adapter of the interface with this LUID.
pub(super) fn of_luid(host: &Host, luid: u64) -> Option<Arc<Adapter>> {
    named(host, luid, 0).ok()
}

/// Checks the address family of a call that takes all of them.
///
/// # Errors
/// `STATUS_INVALID_PARAMETER` for families other than IPv4, IPv6 and the unspecified one.
pub(super) fn require_family(family: ADDRESS_FAMILY) -> Result<(), i32> {
    match family {
        AF_UNSPEC | AF_INET | AF_INET6 => Ok(()),
        _ => Err(STATUS_INVALID_PARAMETER),
    }
}
