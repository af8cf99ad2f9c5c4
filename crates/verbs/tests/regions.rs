// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of `ibv_reg_mr` and `ibv_dereg_mr`.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;

use verbs::abi::flags::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
};

use crate::rig::{Rig, call, errno};

/// Memory of the kernel with one page.
fn page(protection: c_int) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, without a file.
    unsafe { libc::mmap(null_mut(), 4096, protection, flags, -1, 0) }
}

fn register(rig: &Rig, addr: *mut c_void, length: usize, access: c_uint) -> c_int {
    let mr = call!(ibv_reg_mr(rig.pd, addr, length, access.cast_signed()));
    if mr.is_null() {
        return errno();
    }
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    0
}

#[test]
fn memory_that_cannot_be_registered_is_refused() {
    let rig = Rig::new();
    let (writable, readable) = (page(libc::PROT_READ | libc::PROT_WRITE), page(libc::PROT_READ));
    let unmapped = page(libc::PROT_NONE);
    let write = IBV_ACCESS_LOCAL_WRITE;
    for (addr, length, access, error) in [
        (writable, 4096, write, 0),
        (writable, 4096, 0, 0),
        (readable, 4096, IBV_ACCESS_REMOTE_READ, 0),
        (readable, 4096, write, libc::EFAULT),
        (unmapped, 4096, 0, libc::EFAULT),
        (writable, usize::MAX, write, libc::EFAULT),
        (null_mut(), 4096, write, libc::EFAULT),
        (writable, 0, write, libc::EINVAL),
        (writable, 4096, IBV_ACCESS_REMOTE_WRITE, libc::EINVAL),
        (writable, 4096, 1 << 15, libc::EINVAL),
        (writable, 4096, write | IBV_ACCESS_ON_DEMAND, libc::EOPNOTSUPP),
        // Relaxed ordering: an optional flag.
        (writable, 4096, write | 1 << 20, 0),
    ] {
        assert_eq!(register(&rig, addr, length, access), error, "{addr:?}, {length} bytes, {access:#x}");
    }
    let mr = call!(ibv_reg_mr(null_mut(), writable, 4096, 1));
    assert_eq!((mr, errno()), (null_mut(), libc::EINVAL));
    for page in [writable, readable, unmapped] {
        // SAFETY: the mapping was made above, and is not registered any longer.
        unsafe { libc::munmap(page, 4096) };
    }
}

#[test]
fn a_region_is_deregistered_once_and_keeps_its_domain() {
    let rig = Rig::new();
    let memory = rig.memory(100);
    assert_eq!(call!(ibv_dealloc_pd(rig.pd)), libc::EBUSY);
    let mr = memory.mr;
    drop(memory);
    assert_eq!(call!(ibv_dereg_mr(mr)), libc::EINVAL);
    assert_eq!(call!(ibv_dereg_mr(null_mut())), libc::EINVAL);
}
