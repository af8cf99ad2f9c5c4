// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generated calls with arguments that the contract forbids: every function of every dispatch table, with null pointers,
//! objects of other types, of another provider and closed ones, numbers out of range, stale and forged tokens, page
//! arrays and lengths that do not fit.
//!
//! Each call returns a status that the contract names and writes no memory that the consumer did not give for it; each
//! accepted request has one completion. A seed that fails is printed; `VIORDMA_SEED` runs it alone.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a consumer's call through a table is several")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "a test's call is unsafe as a whole")]

mod support;

use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{Config, Mistake};
use std::collections::HashMap;
use support::*;

/// Everything that a call can name.
struct World<'a> {
    random: Random,
    node: &'a Node,
    pd: *mut NDK_PD,
    cq: Cq,
    qp: *mut NDK_QP,
    connected: &'a End,
    srq: *mut NDK_SRQ,
    connector: *mut NDK_CONNECTOR,
    listener: Listener,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    mr: *mut NDK_MR,
    fast: *mut NDK_MR,
    mw: *mut NDK_MW,
    memory: Memory,
    /// Objects of another provider, of each type that a call can name beside its own.
    foreign: (*mut NDK_PD, *mut NDK_CQ, *mut NDK_QP, *mut NDK_MR),
    /// A queue pair, a region and a completion queue that are closed; only where their memory is kept.
    closed: Option<(*mut NDK_QP, *mut NDK_MR, *mut NDK_CQ)>,
    stale: u32,
    /// Requests that were accepted, by context, and not completed yet.
    posted: HashMap<usize, u32>,
    next: usize,
}

/// Returns all statuses that functions of the tables return inline.
const STATUSES: [NTSTATUS; 22] = [
    STATUS_SUCCESS,
    STATUS_PENDING,
    STATUS_INVALID_PARAMETER,
    STATUS_INVALID_PARAMETER_MIX,
    STATUS_INSUFFICIENT_RESOURCES,
    STATUS_BUFFER_TOO_SMALL,
    STATUS_BUFFER_OVERFLOW,
    STATUS_DATA_OVERRUN,
    STATUS_NOT_SUPPORTED,
    STATUS_ACCESS_VIOLATION,
    STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_DEVICE_STATE,
    STATUS_IMPLEMENTATION_LIMIT,
    STATUS_DEVICE_BUSY,
    STATUS_CONNECTION_INVALID,
    STATUS_CONNECTION_ACTIVE,
    STATUS_CONNECTION_ABORTED,
    STATUS_INVALID_ADDRESS,
    STATUS_INVALID_BUFFER_SIZE,
    STATUS_SHARING_VIOLATION,
    STATUS_NETWORK_UNREACHABLE,
    0x8000_001A_u32.cast_signed(),
];

impl World<'_> {
    fn any<T>(&mut self, right: *mut T, more: &[*mut T]) -> *mut T {
        let wrong: [*mut c_void; 5] =
            [null_mut(), self.pd.cast(), self.cq.raw.cast(), self.qp.cast(), self.node.adapter().cast()];
        match self.random.below(4) {
            0 => self.random.one_of(&wrong).cast(),
            1 if !more.is_empty() => self.random.one_of(more),
            _ => right,
        }
    }

    fn any_qp(&mut self) -> *mut NDK_QP {
        let mut more = vec![self.foreign.2, self.connected.qp, self.connected.qp];
        more.extend(self.closed.map(|closed| closed.0));
        let right = self.random.one_of(&[self.qp, self.connected.qp]);
        self.any(right, &more)
    }

    fn any_cq(&mut self) -> *mut NDK_CQ {
        let mut more = vec![self.foreign.1];
        more.extend(self.closed.map(|closed| closed.2));
        self.any(self.cq.raw, &more)
    }

    fn any_mr(&mut self) -> *mut NDK_MR {
        let mut more = vec![self.foreign.3, self.mr, self.fast];
        more.extend(self.closed.map(|closed| closed.1));
        let right = self.random.one_of(&[self.mr, self.fast]);
        self.any(right, &more)
    }

    fn any_pd(&mut self) -> *mut NDK_PD {
        self.any(self.pd, &[])
    }

    fn token(&mut self) -> u32 {
        let token = call!(self.mr, NdkGetLocalTokenFromMr);
        let forged = self.random.next() as u32;
        self.random.one_of(&[
            token,
            token,
            token ^ 1,
            token.wrapping_add(256),
            self.stale,
            0,
            u32::MAX,
            2,
            forged,
        ])
    }

    fn sges(&mut self) -> Vec<NDK_SGE> {
        let count = self.random.one_of(&[0, 1, 1, 2, 3, 33, 64]);
        (0..count)
            .map(|_| {
                let base = self.memory.base();
                let address = self.random.one_of(&[base, base + 8191, base - 1, 0, u64::MAX, 1 << 63]);
                NDK_SGE {
                    Anonymous: NDK_SGE_Anonymous { VirtualAddress: pointer(address) },
                    Length: self.random.number(),
                    MemoryRegionToken: self.token(),
                }
            })
            .collect()
    }

    fn context(&mut self) -> (usize, *mut c_void) {
        self.next += 1;
        (self.next, pointer(self.next as u64))
    }

    /// Notes a post that was accepted.
    fn note(&mut self, context: usize, status: NTSTATUS) -> NTSTATUS {
        if status == STATUS_SUCCESS {
            *self.posted.entry(context).or_default() += 1;
        }
        status
    }

    fn poll(&mut self) {
        for cq in [self.cq.raw, self.connected.cq.raw] {
            let mut results = [NDK_RESULT::zeroed(); 16];
            loop {
                let count = call!(cq, NdkGetCqResults, results.as_mut_ptr(), 16) as usize;
                for result in &results[..count] {
                    let left = self.posted.get_mut(&result.RequestContext.addr()).expect("a posted request");
                    *left = left.checked_sub(1).expect("one completion for a request");
                }
                if count < 16 {
                    break;
                }
            }
        }
    }

    /// Posts a request.
    fn post(&mut self) -> NTSTATUS {
        let (number, context) = self.context();
        let (qp, flags, sges) = (self.any_qp(), self.random.flags() & !NDK_OP_FLAG_INLINE, self.sges());
        let list = if self.random.below(8) == 0 { null() } else { sges.as_ptr() };
        let count = sges.len() as u32;
        let (token, address) = (self.token(), self.random.next());
        let qp_table = self.qp;
        // The function of one queue pair, called with any pointer.
        // SAFETY: an open object.
        let table = unsafe { &*(*qp_table).Dispatch };
        let mut pages = [NDK_LOGICAL_ADDRESS { QuadPart: 0 }; 16];
        for page in &mut pages {
            page.QuadPart = self.random.next().cast_signed();
        }
        let (mr, mw, length) = (self.any_mr(), self.any(self.mw, &[]), self.random.length());
        let page_count = self.random.one_of(&[0, 1, 4, 16]);
        let page_list = if self.random.below(6) == 0 { null() } else { pages.as_ptr() };
        let page_count = if page_list.is_null() { self.random.number() } else { page_count };
        let offset = self.random.number();
        let object: *mut NDK_OBJECT_HEADER = if self.random.below(2) == 0 { mr.cast() } else { mw.cast() };
        let which = self.random.below(9);
        // SAFETY: the lists have as many elements as stated; objects are refused if they are wrong.
        let status = unsafe {
            match which {
                0 => table.NdkSend.unwrap()(qp, context, list, count, flags),
                1 => table.NdkSendAndInvalidate.unwrap()(qp, context, list, count, flags, token),
                2 => table.NdkWrite.unwrap()(qp, context, list, count, address, token, flags),
                3 => table.NdkRead.unwrap()(qp, context, list, count, address, token, flags),
                4 => table.NdkReceive.unwrap()(qp, context, list, count),
                5 => table.NdkBind.unwrap()(qp, context, mr, mw, pointer(address), length, flags),
                6 => table.NdkFastRegister.unwrap()(
                    qp,
                    context,
                    mr,
                    page_count,
                    page_list,
                    offset,
                    length,
                    pointer(address),
                    flags,
                ),
                7 => table.NdkInvalidate.unwrap()(qp, context, object, flags),
                _ => (*(*self.srq).Dispatch).NdkSrqReceive.unwrap()(
                    self.any(self.srq, &[]),
                    // Never used by a queue pair, so not counted.
                    null_mut(),
                    list,
                    count,
                ),
            }
        };
        // The completions of the other provider, and of a shared receive queue without messages, are not polled.
        if qp == self.foreign.2 || which == 8 { status } else { self.note(number, status) }
    }

    /// Calls a create function and closes what it created.
    fn create(&mut self) -> NTSTATUS {
        let numbers: [u32; 5] = core::array::from_fn(|_| self.random.number());
        let [depth, initiator_depth, sges, initiator_sges, inline] = numbers;
        // Small enough for the memory of the test.
        let depth = depth.min(65537);
        let (pd, receive, initiator) = (self.any_pd(), self.any_cq(), self.any_cq());
        let srq = self.any(self.srq, &[]);
        let adapter = self.any(self.node.adapter(), &[]);
        let callback = (self.random.below(4) != 0).then_some(on_cq as NDK_FN_CQ_NOTIFICATION_CALLBACK);
        let (bytes, _) = socket_address(self.node.at(0));
        let address = if self.random.below(4) == 0 { null() } else { (&raw const bytes).cast() };
        let length = self.random.one_of(&[0, 1, 15, 16]);
        let mut out: *mut c_void = core::ptr::without_provenance_mut(0x5a5a);
        let slot = if self.random.below(8) == 0 { null_mut() } else { &raw mut out };
        let (none, which) = (null_mut(), self.random.below(7));
        // SAFETY: open objects have the tables; objects are refused if they are wrong.
        let (on_adapter, on_pd) = unsafe { (&*(*self.node.adapter()).Dispatch, &*(*self.pd).Dispatch) };
        // SAFETY: as above; the address has `length` bytes.
        let status = unsafe {
            match which {
                0 => on_adapter.NdkCreateCq.unwrap()(
                    adapter,
                    depth,
                    callback,
                    none,
                    none.cast(),
                    None,
                    none,
                    slot.cast(),
                ),
                1 => on_adapter.NdkCreatePd.unwrap()(adapter, None, none, slot.cast()),
                2 => on_adapter.NdkCreateSharedEndpoint.unwrap()(
                    adapter,
                    address,
                    length,
                    None,
                    none,
                    slot.cast(),
                ),
                3 => on_pd.NdkCreateMr.unwrap()(pd, (depth & 1) as u8, None, none, slot.cast()),
                4 => on_pd.NdkCreateSrq.unwrap()(
                    pd,
                    depth,
                    sges,
                    initiator_depth,
                    None,
                    none,
                    none.cast(),
                    None,
                    none,
                    slot.cast(),
                ),
                5 => on_pd.NdkCreateQp.unwrap()(
                    pd,
                    receive,
                    initiator,
                    none,
                    depth,
                    initiator_depth,
                    sges,
                    initiator_sges,
                    inline,
                    None,
                    none,
                    slot.cast(),
                ),
                _ => on_pd.NdkCreateQpWithSrq.unwrap()(
                    pd,
                    receive,
                    initiator,
                    srq,
                    none,
                    initiator_depth,
                    initiator_sges,
                    inline,
                    None,
                    none,
                    slot.cast(),
                ),
            }
        };
        if slot.is_null() {
            assert_ne!(status, STATUS_SUCCESS, "created without a variable");
        } else if status == STATUS_SUCCESS {
            match which {
                0 => close!(out.cast::<NDK_CQ>(), NdkCloseCq),
                1 => close!(out.cast::<NDK_PD>(), NdkClosePd),
                2 => close!(out.cast::<NDK_SHARED_ENDPOINT>(), NdkCloseSharedEndpoint),
                3 => close!(out.cast::<NDK_MR>(), NdkCloseMr),
                4 => close!(out.cast::<NDK_SRQ>(), NdkCloseSrq),
                _ => close!(out.cast::<NDK_QP>(), NdkCloseQp),
            }
        } else {
            //= R-CREATE-5
            assert!(out.is_null(), "a create call that fails writes null: {status:#x}, function {which}");
        }
        status
    }

    /// Registers, maps, initializes.
    fn memory(&mut self) -> NTSTATUS {
        let mr = self.any_mr();
        let mr = if mr == self.mr { self.fast } else { mr };
        let length = self.random.length().max(8193);
        let (flags, pages) = (self.random.flags(), self.random.number().saturating_add(513));
        let mdl = if self.random.below(4) == 0 { null_mut() } else { self.memory.mdl() };
        let none = null_mut();
        let mut lam = Guarded::new();
        let mut size = self.random.one_of(&[0, 8, 16, 23, 24, 31]);
        let (into, given) = if self.random.below(4) == 0 { (null_mut(), 0) } else { (lam.pointer(), size) };
        let size_pointer = if self.random.below(6) == 0 { null_mut() } else { &raw mut size };
        let lam_length = self.random.one_of(&[0, 1, 8192, 8193, usize::MAX]);
        // SAFETY: open objects have the tables; objects are refused if they are wrong.
        let (table, on_adapter) = unsafe { (&*(*self.mr).Dispatch, &*(*self.node.adapter()).Dispatch) };
        let adapter = self.any(self.node.adapter(), &[]);
        // SAFETY: the chain describes 8192 bytes; the buffer has as many bytes as stated.
        let status = unsafe {
            match self.random.below(4) {
                0 => table.NdkRegisterMr.unwrap()(mr, mdl, length, flags, None, none),
                1 => table.NdkDeregisterMr.unwrap()(mr, None, none),
                2 => table.NdkInitializeFastRegisterMr.unwrap()(mr, pages, 1, None, none),
                _ => on_adapter.NdkBuildLAM.unwrap()(
                    adapter,
                    mdl,
                    lam_length,
                    None,
                    none,
                    into,
                    size_pointer,
                    none.cast(),
                ),
            }
        };
        if status == STATUS_SUCCESS && into == lam.pointer() && lam.0[0] != CANARY {
            call!(self.node.adapter(), NdkReleaseLAM, into);
            lam.check(given as usize, "NdkBuildLAM");
        } else {
            lam.check(0, "a call that failed");
        }
        status
    }

    /// Getters and orders.
    fn query(&mut self) -> NTSTATUS {
        let mut buffer = Guarded::new();
        let mut size = self.random.one_of(&[0, 1, 15, 16, 28, 95, 96, 103, 104, 200]);
        let given = size as usize;
        let into: *mut c_void = if self.random.below(4) == 0 { null_mut() } else { buffer.pointer() };
        let size_pointer = if self.random.below(6) == 0 { null_mut() } else { &raw mut size };
        let connector = self.random.one_of(&[self.connector, self.connected.connector]);
        let connector = self.any(connector, &[]);
        let listener = self.any(self.listener.raw, &[]);
        let endpoint = self.any(self.endpoint, &[]);
        let (cq, pd) = (self.any_cq(), self.any_pd());
        let adapter = self.any(self.node.adapter(), &[]);
        let count = self.random.one_of(&[0, 1, 4]);
        let (kind, number) = (self.random.number(), self.random.number());
        // SAFETY: open objects have the tables.
        let (on_adapter, on_connector, on_cq) = unsafe {
            (&*(*self.node.adapter()).Dispatch, &*(*self.connector).Dispatch, &*(*self.cq.raw).Dispatch)
        };
        // SAFETY: as above.
        let on_pd = unsafe { &*(*self.pd).Dispatch };
        let mut token = CANARY as u32;
        let token_pointer = if self.random.below(3) == 0 { null_mut() } else { &raw mut token };
        // SAFETY: the buffer has room for what is stated.
        let status = unsafe {
            match self.random.below(9) {
                0 => on_adapter.NdkQueryAdapterInfo.unwrap()(adapter, into.cast(), size_pointer),
                1 => on_connector.NdkGetConnectionData.unwrap()(
                    connector,
                    null_mut(),
                    null_mut(),
                    into,
                    size_pointer,
                ),
                2 => on_connector.NdkGetLocalAddress.unwrap()(connector, into.cast(), size_pointer),
                3 => on_connector.NdkGetPeerAddress.unwrap()(connector, into.cast(), size_pointer),
                4 => (*(*self.listener.raw).Dispatch).NdkGetLocalAddress.unwrap()(
                    listener,
                    into.cast(),
                    size_pointer,
                ),
                5 => (*(*self.endpoint).Dispatch).NdkGetLocalAddress.unwrap()(
                    endpoint,
                    into.cast(),
                    size_pointer,
                ),
                6 => {
                    on_pd.NdkGetPrivilegedMemoryRegionToken.unwrap()(pd, token_pointer);
                    STATUS_SUCCESS
                }
                7 if cq != self.cq.raw => {
                    // A queue without completions, or no queue.
                    let polled = on_cq.NdkGetCqResults.unwrap()(cq, null_mut(), count);
                    assert_eq!(polled, 0);
                    on_cq.NdkArmCq.unwrap()(cq, kind);
                    STATUS_SUCCESS
                }
                _ => on_cq.NdkControlCqInterruptModeration.unwrap()(cq, kind, number),
            }
        };
        let written = if status == STATUS_SUCCESS || status == STATUS_BUFFER_TOO_SMALL { given } else { 0 };
        buffer.check(written, "a getter");
        status
    }

    /// Calls of connectors and listeners that are refused inline.
    fn connect(&mut self) -> NTSTATUS {
        let connector = self.any(self.connector, &[]);
        let qp = self.random.one_of(&[null_mut(), self.pd.cast(), self.foreign.2, self.connected.qp]);
        let (bytes, _) = socket_address(self.node.at(0));
        let address = if self.random.below(4) == 0 { null() } else { (&raw const bytes).cast() };
        let (length, other) = (self.random.one_of(&[0, 1, 15, 16]), self.random.one_of(&[0, 15, 16]));
        let data = [0u8; 600];
        let data_length = self.random.one_of(&[0, 56, 57, 148, 149, 600]);
        let data = if self.random.below(3) == 0 { null() } else { data.as_ptr().cast() };
        let (inbound, outbound, none) = (self.random.number(), self.random.number(), null_mut());
        // SAFETY: an open object.
        let table = unsafe { &*(*self.connector).Dispatch };
        // SAFETY: the address and the data have as many bytes as stated.
        unsafe {
            match self.random.below(6) {
                0 => table.NdkConnect.unwrap()(
                    connector,
                    qp,
                    address,
                    length,
                    address,
                    other,
                    inbound,
                    outbound,
                    data,
                    data_length,
                    None,
                    none,
                ),
                1 => table.NdkAccept.unwrap()(
                    connector,
                    qp,
                    inbound,
                    outbound,
                    data,
                    data_length,
                    None,
                    none,
                    None,
                    none,
                ),
                2 => table.NdkReject.unwrap()(connector, data, data_length),
                3 => table.NdkCompleteConnect.unwrap()(connector, None, none, None, none),
                4 => table.NdkDisconnect.unwrap()(connector, None, none),
                _ => (*(*self.listener.raw).Dispatch).NdkListen.unwrap()(
                    self.any(self.listener.raw, &[]),
                    address,
                    length,
                    None,
                    none,
                ),
            }
        }
    }

    fn step(&mut self) -> NTSTATUS {
        let status = match self.random.below(8) {
            0..3 => self.post(),
            3 => self.create(),
            4 => self.memory(),
            5 | 6 => self.query(),
            _ => self.connect(),
        };
        assert!(STATUSES.contains(&status), "status {status:#x}");
        self.poll();
        status
    }
}

/// Runs calls of one seed. Returns the number of calls that failed, and of mistakes that were reported.
fn run(seed: u64, checked: bool, calls: usize) -> (usize, usize) {
    let config = if checked { reporting(Config::default()) } else { Config::default() };
    let (a, b) = pair_with(config);
    let (active, passive, listening) = connect(&a, &b);
    // The other provider has the same addresses and its own objects.
    let (other, _peer) = pair();
    let foreign_cq = other.cq(4);
    let foreign_pd = other.pd();
    let foreign_qp = qp(foreign_pd, &foreign_cq);
    let memory = Memory::new(8192);
    let foreign_mr = memory.register(foreign_pd, 7);
    let (pd, cq) = (a.pd(), a.cq(4096));
    let registered = memory.register(pd, 7);
    let stale = memory.register(pd, 7);
    let stale_token = stale.token();
    stale.close();
    let srq = create(|done, context, out| {
        let none = null_mut();
        call!(pd, NdkCreateSrq, 8, 4, 0, None, none, none.cast(), done, context, out)
    })
    .expect("a shared receive queue");
    let mw = create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window");
    let fast = fast_mr(pd);
    let closed = checked.then(|| {
        let (closed_cq, closed_mr) = (a.cq(1), fast_mr(pd));
        let closed_qp = qp(pd, &closed_cq);
        close!(closed_qp, NdkCloseQp);
        close!(closed_mr, NdkCloseMr);
        let raw = closed_cq.raw;
        closed_cq.close();
        (closed_qp, closed_mr, raw)
    });
    let before = memory.snapshot();
    let mut world = World {
        random: Random::new(seed),
        node: &a,
        pd,
        qp: qp(pd, &cq),
        cq,
        connected: &active,
        srq,
        connector: a.connector(),
        listener: a.listener(0),
        endpoint: a.shared_endpoint(0),
        mr: registered.mr,
        fast,
        mw,
        memory,
        foreign: (foreign_pd, foreign_cq.raw, foreign_qp, foreign_mr.mr),
        closed,
        stale: stale_token,
        posted: HashMap::new(),
        next: 0,
    };
    let failed = (0..calls).filter(|_| !matches!(world.step(), STATUS_SUCCESS | STATUS_PENDING)).count();
    //= R-QP-2, R-QP-3
    call!(world.qp, NdkFlush);
    call!(active.qp, NdkFlush);
    wait("each request that was accepted has completed", || {
        world.poll();
        world.posted.values().all(|left| *left == 0)
    });
    // No memory was written: nothing was received.
    assert_eq!(world.memory.snapshot(), before);
    let reported = a.reports();
    assert!(reported.iter().all(|report| report.mistake != Mistake::WrongIrql));
    let World { pd, qp, cq, srq, connector, listener, endpoint, .. } = world;
    close!(connector, NdkCloseConnector);
    listener.close();
    close!(endpoint, NdkCloseSharedEndpoint);
    close!(mw, NdkCloseMw);
    close!(qp, NdkCloseQp);
    close!(srq, NdkCloseSrq);
    active.close();
    passive.close();
    listening.close();
    registered.close();
    close!(fast, NdkCloseMr);
    close!(pd, NdkClosePd);
    cq.close();
    foreign_mr.close();
    close!(foreign_qp, NdkCloseQp);
    close!(foreign_pd, NdkClosePd);
    foreign_cq.close();
    (failed, reported.len())
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("VIORDMA_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("VIORDMA_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60),
    }
}

//= R-CLOSE-37, R-CREATE-5, R-QP-2, R-QP-3
#[test]
fn bad_calls_are_refused_and_lose_no_completion() {
    for seed in seeds() {
        println!("seed {seed}");
        let (failed, reported) = run(seed, false, 300);
        assert!(failed > 100, "only {failed} calls failed");
        assert_eq!(reported, 0);
    }
}

#[test]
fn bad_calls_are_reported_by_a_strict_provider() {
    for seed in seeds() {
        println!("seed {seed}");
        let (failed, reported) = run(seed, true, 300);
        assert!(failed > 100, "only {failed} calls failed");
        // At most 16 of each kind.
        assert!(reported >= 60, "{reported} reports of {failed} calls that failed");
    }
}
