// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers of the interface and what they are in the core.

use core::ffi::{c_int, c_uint};

use verbs_core::{Access, CompletionKind, CompletionStatus, Error, PathMtu};

use crate::abi::flags::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED,
};

/// Copies the first `size` bytes of `all`, and fills what is left of them with zeros.
///
/// # Safety
/// `size` bytes at `to` are writable.
pub unsafe fn copy_prefix<T: Copy>(all: &T, to: *mut u8, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are within `all`, and writable at `to` by the contract of this function.
    unsafe { core::ptr::copy_nonoverlapping(core::ptr::from_ref(all).cast::<u8>(), to, known) };
    // SAFETY: `known` is at most `size`, so it is within or at the end of the memory at `to`.
    let rest = unsafe { to.add(known) };
    // SAFETY: the rest of the `size` bytes.
    unsafe { rest.write_bytes(0, size - known) };
}

/// Path MTUs, from code 1 on.
const MTUS: [PathMtu; 5] =
    [PathMtu::Bytes256, PathMtu::Bytes512, PathMtu::Bytes1024, PathMtu::Bytes2048, PathMtu::Bytes4096];

/// Returns the code of a path MTU.
pub fn mtu_code(mtu: PathMtu) -> u8 {
    MTUS.iter().position(|&known| known == mtu).map_or(1, |at| at as u8 + 1)
}

/// Returns the path MTU of a code.
pub fn mtu(code: c_int) -> Option<PathMtu> {
    MTUS.get(usize::try_from(code).ok()?.checked_sub(1)?).copied()
}

/// Access flags of regions and queue pairs.
const ACCESS: [(c_uint, Access); 4] = [
    (IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
    (IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
    (IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
    (IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
];

/// Flags without an effect on access.
const NO_ACCESS: c_uint =
    IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

/// Returns the access rights of flags.
pub fn access(flags: c_uint) -> Result<Access, Error> {
    if flags & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(Error::Unsupported);
    }
    let known = ACCESS.iter().fold(NO_ACCESS, |known, (flag, _)| known | flag);
    if flags & !known != 0 {
        return Err(Error::Invalid);
    }
    let set = ACCESS.iter().filter(|(flag, _)| flags & flag != 0).map(|&(_, access)| access);
    Ok(set.collect())
}

/// Returns the flags of access rights.
pub fn access_flags(access: Access) -> c_uint {
    ACCESS.iter().filter(|(_, right)| access.contains(*right)).fold(0, |flags, (flag, _)| flags | flag)
}

/// Returns the status of a completion, an `ibv_wc_status`.
pub const fn wc_status(status: CompletionStatus) -> c_int {
    match status {
        CompletionStatus::Success => 0,
        CompletionStatus::LocalLength => 1,
        CompletionStatus::LocalOperation => 2,
        CompletionStatus::LocalProtection => 4,
        CompletionStatus::Flushed => 5,
        // IBV_WC_MW_BIND_ERR: the verbs of memory management have no other.
        CompletionStatus::MemoryManagement => 6,
        CompletionStatus::BadResponse => 7,
        CompletionStatus::LocalAccess => 8,
        CompletionStatus::RemoteInvalidRequest => 9,
        CompletionStatus::RemoteAccess => 10,
        CompletionStatus::RemoteOperation => 11,
        CompletionStatus::RetryExceeded => 12,
        CompletionStatus::RnrRetryExceeded => 13,
    }
}

/// Returns the operation of a completion, an `ibv_wc_opcode`.
pub const fn wc_opcode(kind: CompletionKind) -> c_int {
    match kind {
        CompletionKind::Send => 0,
        CompletionKind::Write => 1,
        CompletionKind::Read => 2,
        CompletionKind::CompareSwap => 3,
        CompletionKind::FetchAdd => 4,
        CompletionKind::Bind => 5,
        CompletionKind::Invalidate | CompletionKind::FastRegister => 6,
        CompletionKind::Receive
        | CompletionKind::ReceiveInvalidate { .. }
        | CompletionKind::ReceiveDatagram { .. } => 128,
        CompletionKind::ReceiveWrite => 129,
    }
}
