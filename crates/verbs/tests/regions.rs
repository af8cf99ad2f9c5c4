// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions and windows.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;

use verbs::abi::flags::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_WR_BIND_MW, IBV_WR_RDMA_WRITE,
};
use verbs::abi::objects::{IbvMr, IbvMwBindInfo, IbvPd, WrBind, WrRdma};

use crate::rig::{Rig, call, completions, errno, post, send_wr};

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
        (writable, 4096, IBV_ACCESS_REMOTE_ATOMIC, libc::EINVAL),
        (writable, 4096, write | IBV_ACCESS_REMOTE_ATOMIC, 0),
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

/// Registers a region anew. Returns 0 or the error number.
fn again(
    mr: *mut IbvMr,
    flags: c_int,
    pd: *mut IbvPd,
    memory: (*mut c_void, usize),
    access: c_uint,
) -> c_int {
    match call!(ibv_rereg_mr(mr, flags, pd, memory.0, memory.1, access.cast_signed())) {
        0 => 0,
        -1 => errno(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_region_is_registered_anew_or_stays_as_it_was() {
    let rig = Rig::new();
    let (first, second) =
        (page(libc::PROT_READ | libc::PROT_WRITE), page(libc::PROT_READ | libc::PROT_WRITE));
    let unmapped = page(libc::PROT_NONE);
    let mr = call!(ibv_reg_mr(rig.pd, first, 4096, 1));
    let keys = || {
        // SAFETY: the region exists.
        let shown = unsafe { &*mr };
        (shown.lkey, shown.rkey, shown.addr, shown.length, shown.pd)
    };
    let before = keys();
    let other = call!(ibv_alloc_pd(rig.context));
    for (flags, memory, access, error) in [
        (0, (second, 4096), 0, libc::EINVAL),
        (8, (second, 4096), 0, libc::EINVAL),
        (1, (second, 0), 0, libc::EINVAL),
        (1, (null_mut(), 4096), 0, libc::EINVAL),
        (1, (unmapped, 4096), 0, libc::EFAULT),
        (1, (second, 4096), IBV_ACCESS_REMOTE_READ, libc::EINVAL),
        (4, (null_mut(), 0), IBV_ACCESS_REMOTE_WRITE, libc::EINVAL),
        (4, (null_mut(), 0), IBV_ACCESS_ON_DEMAND, libc::EOPNOTSUPP),
    ] {
        assert_eq!(again(mr, flags, null_mut(), memory, access), error, "{flags}");
        assert_eq!(keys(), before);
    }
    assert_eq!(again(mr, 2, null_mut(), (null_mut(), 0), 0), libc::EINVAL, "no protection domain");
    assert_eq!(again(mr, 1 | 2 | 4, other, (second, 100), IBV_ACCESS_REMOTE_READ), 0);
    let after = keys();
    assert_eq!((after.2, after.3, after.4), (second, 100, other));
    assert_eq!((after.0, after.1), (before.0, before.1));
    assert_eq!(call!(ibv_dealloc_pd(other)), libc::EBUSY);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    assert_eq!(call!(ibv_dealloc_pd(other)), 0);
    for page in [first, second, unmapped] {
        // SAFETY: the mapping was made above, and is not registered any longer.
        unsafe { libc::munmap(page, 4096) };
    }
}

#[test]
fn a_window_is_bound_by_a_request_and_keeps_its_region() {
    let rig = Rig::new();
    let cq = rig.cq();
    let (qp, peer) = (rig.qp(cq), rig.qp(cq));
    rig.connect(qp, peer);
    rig.connect(peer, qp);
    // SAFETY: the context exists.
    let ops = unsafe { &(*rig.context).ops };
    let (alloc, dealloc) = (ops.alloc_mw.unwrap(), ops.dealloc_mw.unwrap());
    // SAFETY: the arguments are those of the inline function in the header.
    assert!(unsafe { alloc(rig.pd, 1) }.is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP);
    // SAFETY: as above.
    let mw = unsafe { alloc(rig.pd, 2) };
    // SAFETY: the window exists.
    let key = unsafe { (*mw).rkey } + 1;
    let (memory, mut source) = (rig.memory(100), rig.memory(10));
    source.fill(&[9; 10]);
    let mut bind = send_wr(1, IBV_WR_BIND_MW);
    let info = IbvMwBindInfo {
        mr: memory.mr,
        addr: memory.address(50),
        length: 10,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    };
    bind.tail.bind_mw = WrBind { mw, rkey: key, bind_info: info };
    assert_eq!(post(peer, &mut bind).0, 0);
    assert_eq!(completions(cq, 1)[0].opcode, 5);
    assert_eq!(call!(ibv_dereg_mr(memory.mr)), libc::EBUSY);
    assert_eq!(again(memory.mr, 4, null_mut(), (null_mut(), 0), IBV_ACCESS_LOCAL_WRITE), libc::EBUSY);
    let mut sges = [source.sge(0, 10)];
    let mut write = send_wr(2, IBV_WR_RDMA_WRITE);
    (write.sg_list, write.num_sge) = (sges.as_mut_ptr(), 1);
    write.wr.rdma = WrRdma { remote_addr: memory.address(50), rkey: key };
    assert_eq!(post(qp, &mut write).0, 0);
    assert_eq!(completions(cq, 1)[0].status, 0);
    assert_eq!(memory.read(60)[50..], [9; 10]);
    let mut nothing = send_wr(3, IBV_WR_BIND_MW);
    nothing.tail.bind_mw = WrBind { mw, rkey: key, bind_info: IbvMwBindInfo { mr: null_mut(), ..info } };
    assert_eq!(post(peer, &mut nothing).0, libc::EINVAL);
    let from_zero =
        IbvMwBindInfo { mw_access_flags: IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED, ..info };
    nothing.tail.bind_mw = WrBind { mw, rkey: key, bind_info: from_zero };
    assert_eq!(post(peer, &mut nothing).0, libc::EOPNOTSUPP);
    // SAFETY: the arguments are those of the inline function in the header.
    assert_eq!(unsafe { dealloc(mw) }, 0);
    // SAFETY: as above; the window is gone.
    assert_eq!(unsafe { dealloc(mw) }, libc::EINVAL);
    for qp in [qp, peer] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}
