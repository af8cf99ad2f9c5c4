// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma_getaddrinfo`: addresses of names.

use core::ffi::{c_char, c_int};
use core::mem::zeroed;

use libc::{addrinfo, sockaddr, socklen_t};
use verbs_core::Error;

use crate::abi::flags::{IBV_QPT_RC, IBV_QPT_UD};
use crate::abi::rdma::{
    RAI_FAMILY, RAI_NOROUTE, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP, RdmaAddrinfo,
};
use crate::errno;

const FLAGS: c_int = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;

/// Wishes of a program.
struct Hints {
    flags: c_int,
    family: c_int,
    space: c_int,
    qp_type: c_int,
}

impl Hints {
    fn of(hints: Option<&RdmaAddrinfo>) -> Result<Self, Error> {
        let flags = hints.map_or(0, |hints| hints.ai_flags);
        if flags & !FLAGS != 0 {
            return Err(Error::Invalid);
        }
        let asked = |get: fn(&RdmaAddrinfo) -> c_int| hints.map_or(0, get);
        let (space, qp_type) = match (asked(|hints| hints.ai_port_space), asked(|hints| hints.ai_qp_type)) {
            (RDMA_PS_UDP, 0 | IBV_QPT_UD) | (0, IBV_QPT_UD) => (RDMA_PS_UDP, IBV_QPT_UD),
            (0 | RDMA_PS_TCP, 0 | IBV_QPT_RC) => (RDMA_PS_TCP, IBV_QPT_RC),
            _ => return Err(Error::Unsupported),
        };
        let family = if flags & RAI_FAMILY == 0 { libc::AF_UNSPEC } else { asked(|hints| hints.ai_family) };
        Ok(Self { flags, family, space, qp_type })
    }
}

/// Copies a socket address to memory of the C library.
///
/// # Safety
/// `address` has `length` bytes.
unsafe fn copy(address: *const sockaddr, length: socklen_t) -> *mut sockaddr {
    // SAFETY: the call takes no pointer.
    let place = unsafe { libc::malloc(length as usize) }.cast::<u8>();
    if !place.is_null() {
        // SAFETY: both have that many bytes, the copy because it was allocated just now.
        unsafe { core::ptr::copy_nonoverlapping(address.cast::<u8>(), place, length as usize) };
    }
    place.cast()
}

fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&RdmaAddrinfo>,
) -> Result<Box<RdmaAddrinfo>, Error> {
    let asked = Hints::of(hints)?;
    // SAFETY: all-zero bytes are valid hints.
    let mut plain: addrinfo = unsafe { zeroed() };
    plain.ai_family = asked.family;
    plain.ai_socktype = if asked.space == RDMA_PS_TCP { libc::SOCK_STREAM } else { libc::SOCK_DGRAM };
    let passive = asked.flags & RAI_PASSIVE != 0;
    plain.ai_flags = if passive { libc::AI_PASSIVE } else { 0 };
    if asked.flags & RAI_NUMERICHOST != 0 {
        plain.ai_flags |= libc::AI_NUMERICHOST;
    }
    let mut list = core::ptr::null_mut();
    // SAFETY: the program passes null or texts; the others are valid. The list is freed below.
    match unsafe { libc::getaddrinfo(node, service, &raw const plain, &raw mut list) } {
        0 => {}
        libc::EAI_MEMORY => return Err(Error::OutOfMemory),
        _ => return Err(Error::System(libc::ENODEV)),
    }
    // SAFETY: all-zero bytes are a valid result: null pointers.
    let mut info: Box<RdmaAddrinfo> = Box::new(unsafe { zeroed() });
    // SAFETY: a list that was returned has at least one entry.
    let first = unsafe { &*list };
    // SAFETY: an entry has an address of that length.
    let address = unsafe { copy(first.ai_addr, first.ai_addrlen) };
    info.ai_flags = asked.flags;
    info.ai_family = first.ai_family;
    info.ai_port_space = asked.space;
    info.ai_qp_type = asked.qp_type;
    if passive {
        (info.ai_src_addr, info.ai_src_len) = (address, first.ai_addrlen);
    } else {
        (info.ai_dst_addr, info.ai_dst_len) = (address, first.ai_addrlen);
    }
    // SAFETY: `getaddrinfo` has returned the list, and nothing refers to it any longer.
    unsafe { libc::freeaddrinfo(list) };
    if address.is_null() {
        return Err(Error::OutOfMemory);
    }
    if let Some(hints) = hints.filter(|hints| !passive && !hints.ai_src_addr.is_null()) {
        // SAFETY: the program passes an address of that length.
        info.ai_src_addr = unsafe { copy(hints.ai_src_addr, hints.ai_src_len) };
        info.ai_src_len = hints.ai_src_len;
    }
    Ok(info)
}

/// Returns the address of a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const RdmaAddrinfo,
    result: *mut *mut RdmaAddrinfo,
) -> c_int {
    // SAFETY: the program passes null or hints.
    let hints = unsafe { hints.as_ref() };
    errno::flag(resolve(node, service, hints).map(|info| {
        // SAFETY: the program passes a pointer that the call may write.
        unsafe { result.write(Box::into_raw(info)) };
    }))
}

/// Frees a result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(info: *mut RdmaAddrinfo) {
    let mut next = info;
    while !next.is_null() {
        // SAFETY: `rdma_getaddrinfo` has made the box.
        let info = unsafe { Box::from_raw(next) };
        for address in [info.ai_src_addr, info.ai_dst_addr] {
            // SAFETY: null, or allocated by `copy`.
            unsafe { libc::free(address.cast()) };
        }
        next = info.ai_next;
    }
}
