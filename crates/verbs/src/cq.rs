// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::mem::zeroed;
use core::time::Duration;
use std::sync::Arc;

use verbs_core::cq::{CompletionQueue, WorkCompletion};
use verbs_core::{CompletionKind, CompletionStatus, Error};

use crate::abi::attributes::{IbvCqInitAttrEx, IbvModifyCqAttr};
use crate::abi::context::IbvContext;
use crate::abi::flags::{IBV_WC_GRH, IBV_WC_WITH_IMM, IBV_WC_WITH_INV};
use crate::abi::objects::{IbvCompChannel, IbvCq, IbvCqEx, IbvPollCqAttr, IbvWc};
use crate::channel::Channel;
use crate::handles::{self, Handle};
use crate::{context, errno, tables};

/// Fields of completions that can be read: all but times, tags and VLANs.
const WC_FLAGS: u64 = 0x7F;
const IBV_CQ_ATTR_MODERATE: u32 = 1;
/// Flags of extended queues: the queue is used by one thread at a time. `IGNORE_OVERRUN` is not offered.
const SINGLE_THREADED: u32 = 1;
const MASK_FLAGS: u32 = 1;

/// A completion queue. All are extended ones.
#[repr(C)]
pub struct Cq {
    base: IbvCqEx,
    pub core: Arc<CompletionQueue>,
    /// The completion that the functions of extended queues read.
    current: Cell<IbvWc>,
}

// SAFETY: it is `repr(C)` and begins with an `IbvCqEx`, which begins with an `IbvCq`.
unsafe impl Handle for Cq {
    type C = IbvCq;
}

fn create(
    context: *mut IbvContext,
    depth: u32,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    vector: u32,
) -> Result<*mut IbvCq, Error> {
    let core = context::find(context)?;
    if vector != 0 {
        return Err(Error::Invalid);
    }
    let events = if channel.is_null() { None } else { Some(&handles::get::<Channel>(channel)?.core) };
    let cq = handles::create_with(|pointer: *mut IbvCq| {
        let core = CompletionQueue::new(core, depth, events, pointer.expose_provenance() as u64)?;
        // SAFETY: all-zero bytes are a valid queue: null pointers, absent functions, numbers, and a mutex and a condition as their static
        // initializers make them.
        let mut base: IbvCqEx = unsafe { zeroed() };
        base.base.context = context;
        base.base.channel = channel;
        base.base.cq_context = cq_context;
        base.base.cqe = core.depth().cast_signed();
        set_functions(&mut base);
        Ok(Cq { base, core, current: Cell::default() })
    })?;
    if !channel.is_null() {
        // SAFETY: the channel was found above.
        unsafe { (*channel).refcnt += 1 };
    }
    Ok(cq)
}

/// Creates a completion queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut IbvContext,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    comp_vector: c_int,
) -> *mut IbvCq {
    let (Ok(depth), Ok(vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return errno::pointer(Err(Error::Invalid));
    };
    errno::pointer(create(context, depth, cq_context, channel, vector))
}

/// Creates an extended completion queue.
pub unsafe extern "C" fn create_cq_ex(context: *mut IbvContext, attr: *mut IbvCqInitAttrEx) -> *mut IbvCqEx {
    // SAFETY: the program passes a structure.
    let attr = unsafe { &*attr };
    let flags = if attr.comp_mask & MASK_FLAGS == 0 { 0 } else { attr.flags };
    let known = attr.comp_mask & !MASK_FLAGS == 0 && flags & !SINGLE_THREADED == 0;
    let created = if !known || attr.wc_flags & !WC_FLAGS != 0 {
        Err(Error::Unsupported)
    } else {
        create(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector)
    };
    errno::pointer(created).cast()
}

/// Destroys a completion queue. Fails as `EBUSY` if queue pairs use it. Waits until its events are acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int {
    errno::status(handles::destroy::<Cq>(cq, |cq| {
        cq.core.destroy()?;
        let channel = cq.base.base.channel;
        if !channel.is_null() {
            // SAFETY: a channel is not destroyed while queues use it.
            unsafe { (*channel).refcnt -= 1 };
        }
        Ok(())
    }))
}

/// Changes the number of entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut IbvCq, cqe: c_int) -> c_int {
    let depth = u32::try_from(cqe).map_err(|_| Error::Invalid);
    errno::status(handles::get::<Cq>(cq).and_then(|found| {
        found.core.resize(depth?)?;
        // SAFETY: the queue was found above.
        unsafe { (*cq).cqe = found.core.depth().cast_signed() };
        Ok(())
    }))
}

/// Changes the moderation of events.
pub unsafe extern "C" fn modify_cq(cq: *mut IbvCq, attr: *mut IbvModifyCqAttr) -> c_int {
    // SAFETY: the program passes a structure.
    let attr = unsafe { &*attr };
    if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
        return libc::EINVAL;
    }
    let period = Duration::from_micros(attr.moderate.cq_period.into());
    errno::status(handles::get::<Cq>(cq).and_then(|cq| cq.core.moderate(attr.moderate.cq_count, period)))
}

/// Acknowledges events that `ibv_get_cq_event` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, events: c_uint) {
    if let Ok(cq) = handles::get::<Cq>(cq) {
        cq.core.unacknowledged().acknowledge(events.into());
    }
}

/// Requests an event.
pub unsafe extern "C" fn req_notify_cq(cq: *mut IbvCq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a completion queue.
    let Some(cq) = (unsafe { handles::trusted::<Cq>(cq) }) else { return libc::EINVAL };
    cq.core.request_event(solicited_only != 0);
    0
}

/// Takes completions. Returns their number; -1 once a queue that has overflowed is empty.
pub unsafe extern "C" fn poll_cq(cq: *mut IbvCq, max: c_int, wc: *mut IbvWc) -> c_int {
    // SAFETY: the program passes a completion queue.
    let (Some(cq), Ok(max)) = (unsafe { handles::trusted::<Cq>(cq) }, usize::try_from(max)) else {
        return -1;
    };
    let (mut at, packets) = (wc, packets(&cq.core));
    let taken = cq.core.poll(max, |completion| {
        // SAFETY: the program passes room for `max` completions, and no more are taken.
        unsafe { at.write(of_core(&completion, packets)) };
        at = at.wrapping_add(1);
    });
    taken.ok().and_then(|taken| c_int::try_from(taken).ok()).unwrap_or(-1)
}

/// Returns the type of the packets of a queue's device: bit 3 for RoCEv2, 1 for IPv6, 2 for IPv4.
///
/// RoCE has no service level. libmlx5 puts the type there in completions of datagrams: UCX needs it to find the address in the header.
fn packets(cq: &CompletionQueue) -> u8 {
    if cq.context().device().address().is_ipv4() { 0b1010 } else { 0b1001 }
}

/// Returns the structure of a completion, with the type of packets for a datagram.
fn of_core(completion: &WorkCompletion, packets: u8) -> IbvWc {
    let mut wc = IbvWc {
        wr_id: completion.id,
        status: tables::wc_status(completion.status),
        opcode: tables::wc_opcode(completion.kind),
        byte_len: completion.bytes,
        qp_num: completion.qpn,
        ..IbvWc::default()
    };
    if completion.status == CompletionStatus::Success {
        match completion.kind {
            CompletionKind::ReceiveDatagram { source } => {
                wc.wc_flags |= IBV_WC_GRH;
                wc.src_qp = source.value();
                wc.sl = packets;
            }
            CompletionKind::ReceiveInvalidate { key } => {
                wc.wc_flags |= IBV_WC_WITH_INV;
                wc.imm_data = key;
            }
            _ => {}
        }
        if let Some(data) = completion.immediate {
            wc.wc_flags |= IBV_WC_WITH_IMM;
            wc.imm_data = u32::from_ne_bytes(data);
        }
    }
    wc
}

/// Sets the functions with which a program reads the current completion.
fn set_functions(cq: &mut IbvCqEx) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
}

unsafe extern "C" fn start_poll(cq: *mut IbvCqEx, attr: *mut IbvPollCqAttr) -> c_int {
    // SAFETY: the program passes null or a structure.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    // SAFETY: the program passes a completion queue.
    unsafe { next_poll(cq) }
}

unsafe extern "C" fn next_poll(cq: *mut IbvCqEx) -> c_int {
    // SAFETY: the program passes a completion queue.
    let Some(found) = (unsafe { handles::trusted::<Cq>(cq.cast()) }) else { return libc::EINVAL };
    match found.core.poll(1, |completion| found.current.set(of_core(&completion, packets(&found.core)))) {
        Ok(0) => libc::ENOENT,
        Ok(_) => {
            let wc = found.current.get();
            // SAFETY: the program polls a queue from one thread at a time, and reads these fields there.
            unsafe { (*cq).status = wc.status };
            // SAFETY: no other thread uses these fields meanwhile, as said above.
            unsafe { (*cq).wr_id = wc.wr_id };
            0
        }
        Err(error) => errno::number(error),
    }
}

unsafe extern "C" fn end_poll(_cq: *mut IbvCqEx) {}

/// Returns the current completion.
fn current(cq: *mut IbvCqEx) -> IbvWc {
    // SAFETY: the program passes a completion queue.
    unsafe { handles::trusted::<Cq>(cq.cast()) }.map(|cq| cq.current.get()).unwrap_or_default()
}

macro_rules! readers {
    ($($name:ident -> $result:ty: $read:expr;)+) => {$(
        unsafe extern "C" fn $name(cq: *mut IbvCqEx) -> $result {
            let read: fn(IbvWc) -> $result = $read;
            read(current(cq))
        }
    )+};
}

readers! {
    read_opcode -> c_int: |wc| wc.opcode;
    read_vendor_err -> u32: |wc| wc.vendor_err;
    read_byte_len -> u32: |wc| wc.byte_len;
    read_imm_data -> u32: |wc| wc.imm_data;
    read_qp_num -> u32: |wc| wc.qp_num;
    read_src_qp -> u32: |wc| wc.src_qp;
    read_wc_flags -> c_uint: |wc| wc.wc_flags;
    read_slid -> u32: |wc| wc.slid.into();
    read_sl -> u8: |wc| wc.sl;
    read_dlid_path_bits -> u8: |wc| wc.dlid_path_bits;
}
