// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions and windows.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;

use verbs::abi::flags::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_SEND_SIGNALED,
    IBV_WR_BIND_MW, IBV_WR_RDMA_WRITE,
};
use verbs::abi::objects::{IbvMr, IbvMw, IbvMwBind, IbvMwBindInfo, IbvPd, IbvQp, WrBind, WrRdma};

use crate::rig::{Rig, call, completions, errno, field, ops, post, send_wr};

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
        // SAFETY: the region is deregistered after the last call of `keys`, and no call runs meanwhile.
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
    let ops = ops(rig.context);
    let (alloc, dealloc) = (ops.alloc_mw.unwrap(), ops.dealloc_mw.unwrap());
    for no_type in [0, 3] {
        // SAFETY: the arguments are those of the inline function in the header.
        assert!(unsafe { alloc(rig.pd, no_type) }.is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    // SAFETY: the domain is the one of `rig`, and 2 is the type of the window.
    let mw = unsafe { alloc(rig.pd, 2) };
    let key = field!(mw, rkey) + 1;
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
    // To a region that takes no windows, and to one that is gone.
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND).cast_signed();
    let (start, mut bytes) = (null_mut(), [0u8; 100]);
    let plain = call!(ibv_reg_mr(rig.pd, bytes.as_mut_ptr().cast(), 100, access));
    let to = |mr| WrBind {
        mw,
        rkey: key,
        bind_info: IbvMwBindInfo { mr, addr: bytes.as_ptr().addr() as u64, length: 10, ..info },
    };
    assert_eq!(again(plain, 4, null_mut(), (start, 0), IBV_ACCESS_LOCAL_WRITE), 0);
    nothing.tail.bind_mw = to(plain);
    assert_eq!(post(peer, &mut nothing).0, libc::EINVAL, "without IBV_ACCESS_MW_BIND");
    assert_eq!(call!(ibv_dereg_mr(plain)), 0);
    assert_eq!(post(peer, &mut nothing).0, libc::EINVAL, "to a region that is gone");
    for (mw, rkey) in [(null_mut(), key), (mw, key ^ 0x100)] {
        nothing.tail.bind_mw = WrBind { mw, rkey, bind_info: info };
        assert_eq!(post(peer, &mut nothing).0, libc::EINVAL);
    }
    // SAFETY: the arguments are those of the inline function in the header.
    assert_eq!(unsafe { dealloc(mw) }, 0);
    // SAFETY: as above; the window is gone.
    assert_eq!(unsafe { dealloc(mw) }, libc::EINVAL);
    nothing.tail.bind_mw = WrBind { mw, rkey: key, bind_info: info };
    assert_eq!(post(peer, &mut nothing).0, libc::EINVAL);
    for qp in [qp, peer] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// Binds a window of type 1. Returns the error number.
fn bind_call(rig: &Rig, qp: *mut IbvQp, mw: *mut IbvMw, bind_info: IbvMwBindInfo) -> c_int {
    let bind = ops(rig.context).bind_mw.unwrap();
    let mut request = IbvMwBind { wr_id: 7, send_flags: IBV_SEND_SIGNALED, bind_info };
    // SAFETY: the arguments are those of the inline function in the header.
    unsafe { bind(qp, mw, &raw mut request) }
}

#[test]
fn a_window_of_type_1_is_bound_by_a_call_and_has_a_key_for_each_bind() {
    let rig = Rig::new();
    let cq = rig.cq();
    let (qp, peer) = (rig.qp(cq), rig.qp(cq));
    rig.connect(qp, peer);
    let ops = ops(rig.context);
    let (alloc, dealloc) = (ops.alloc_mw.unwrap(), ops.dealloc_mw.unwrap());
    // SAFETY: the arguments are those of the inline function in the header.
    let [mw, other] = [1, 2].map(|mw_type| unsafe { alloc(rig.pd, mw_type) });
    let key = || field!(mw, rkey);
    let (memory, mut source) = (rig.memory(100), rig.memory(10));
    source.fill(&[9; 10]);
    let (addr, access) = (memory.address(50), IBV_ACCESS_REMOTE_WRITE);
    let info = IbvMwBindInfo { mr: memory.mr, addr, length: 10, mw_access_flags: access };
    let first = key();
    // Nothing can be posted yet.
    assert_eq!(bind_call(&rig, peer, mw, info), libc::EINVAL);
    rig.connect(peer, qp);
    for bad in [
        IbvMwBindInfo { mr: null_mut(), ..info },
        IbvMwBindInfo { length: 51, ..info },
        IbvMwBindInfo { mw_access_flags: 1 << 15, ..info },
    ] {
        assert_eq!(bind_call(&rig, peer, mw, bad), libc::EINVAL);
    }
    assert_eq!(bind_call(&rig, peer, other, info), libc::EINVAL, "of type 2");
    assert_eq!(bind_call(&rig, peer, null_mut(), info), libc::EINVAL);
    assert_eq!(bind_call(&rig, null_mut(), mw, info), libc::EINVAL);
    assert_eq!(key(), first, "a bind that failed has changed the key");
    let mut request = send_wr(1, IBV_WR_BIND_MW);
    request.tail.bind_mw = WrBind { mw, rkey: key(), bind_info: info };
    assert_eq!(post(peer, &mut request).0, libc::EINVAL, "requests are for windows of type 2");

    assert_eq!(bind_call(&rig, peer, mw, IbvMwBindInfo { mw_access_flags: 0, ..info }), 0);
    assert_eq!(bind_call(&rig, peer, mw, info), 0);
    let bound: Vec<_> =
        completions(cq, 2).iter().map(|done| (done.wr_id, done.status, done.opcode)).collect();
    assert_eq!(bound, [(7, 0, 5); 2]);
    assert_eq!((key() ^ first) >> 8, 0);
    assert_eq!(key() as u8, (first as u8).wrapping_add(2));
    let mut sges = [source.sge(0, 10)];
    let mut write = send_wr(2, IBV_WR_RDMA_WRITE);
    (write.sg_list, write.num_sge) = (sges.as_mut_ptr(), 1);
    write.wr.rdma = WrRdma { remote_addr: addr, rkey: key() };
    assert_eq!(post(qp, &mut write).0, 0);
    assert_eq!(completions(cq, 1)[0].status, 0);
    assert_eq!(memory.read(60)[50..], [9; 10]);
    // Without bytes, it is bound no longer.
    assert_eq!(call!(ibv_dereg_mr(memory.mr)), libc::EBUSY);
    assert_eq!(
        bind_call(&rig, peer, mw, IbvMwBindInfo { mr: null_mut(), addr: 0, length: 0, mw_access_flags: 0 }),
        0
    );
    assert_eq!(completions(cq, 1)[0].status, 0);
    assert_eq!(post(qp, &mut write).0, 0);
    // IBV_WC_REM_ACCESS_ERR.
    assert_eq!(completions(cq, 1)[0].status, 10);
    for mw in [mw, other] {
        // SAFETY: the arguments are those of the inline function in the header.
        assert_eq!(unsafe { dealloc(mw) }, 0);
    }
    for qp in [qp, peer] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}
