// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that are closed in any order: each close completes once, at the latest when all are closed.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ndk_abi::{
    ndk::{
        NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_LISTENER,
        NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_PD, NDK_QP, NDK_SRQ,
    },
    nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING, STATUS_SUCCESS},
};
use nt_sim::Event;

/// Callbacks of one kind that were made, and what they reported.
struct Callbacks {
    made: AtomicUsize,
    object: AtomicUsize,
    status: AtomicUsize,
    event: Event,
}

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: the context of a create call that pends lives until here.
    let callbacks = unsafe { &*context.cast::<Callbacks>() };
    callbacks.object.store(object.expose_provenance(), Ordering::SeqCst);
    callbacks.status.store(status.cast_unsigned() as usize, Ordering::SeqCst);
    callbacks.made.fetch_add(1, Ordering::SeqCst);
    callbacks.event.set();
}

unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    // SAFETY: never freed.
    let callbacks = unsafe { &*context.cast::<Callbacks>() };
    callbacks.made.fetch_add(1, Ordering::SeqCst);
    callbacks.event.set();
}

unsafe extern "efiapi" fn on_cq(_: *mut c_void, _: NTSTATUS) {}
unsafe extern "efiapi" fn on_connect(_: *mut c_void, _: *mut NDK_CONNECTOR) {}

/// Calls a member of an object's dispatch table in the image.
macro_rules! call {
    ($object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        nt_sim::image::call(stringify!($member), || {
            // SAFETY: an open object of the provider.
            unsafe { ((*(*object).Dispatch).$member.expect("no member is null"))(object.cast() $(, $argument)*) }
        })
    }};
}

fn callbacks(event: &Event) -> &'static Callbacks {
    let zero = || AtomicUsize::new(0);
    Box::leak(Box::new(Callbacks { made: zero(), object: zero(), status: zero(), event: event.clone() }))
}

fn context(callbacks: &'static Callbacks) -> *mut c_void {
    core::ptr::from_ref(callbacks).cast_mut().cast()
}

/// Creates an object; `None` if there is no memory for it.
fn create<T>(
    event: &Event,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<Option<*mut T>, String> {
    let (pending, mut out) = (callbacks(event), null_mut());
    let status = match call(Some(on_create), context(pending), &raw mut out) {
        STATUS_PENDING => {
            while pending.made.load(Ordering::SeqCst) == 0 {
                if !event.wait(Duration::from_secs(10)) {
                    return Err("a create callback was not made".into());
                }
                event.reset();
            }
            out = core::ptr::with_exposed_provenance_mut(pending.object.load(Ordering::SeqCst));
            (pending.status.load(Ordering::SeqCst) as u32).cast_signed()
        }
        status => status,
    };
    match status {
        STATUS_SUCCESS => Ok(Some(out)),
        STATUS_INSUFFICIENT_RESOURCES => Ok(None),
        status => Err(format!("a create call failed with {status:#x}")),
    }
}

/// Closes one object.
type Close = Box<dyn Fn(Option<NDK_FN_CLOSE_COMPLETION>, *mut c_void) -> NTSTATUS>;

/// Creates objects of the types that need no address, and closes them in the order that the seed selects. Returns whether
/// all could be created.
pub fn close_in_any_order(adapter: *mut NDK_ADAPTER, event: &Event, seed: u64) -> Result<bool, String> {
    let none = null_mut::<c_void>();
    let mut closes: Vec<Close> = Vec::new();
    let mut is_complete = true;
    macro_rules! object {
        ($close:ident, $created:expr) => {{
            let created = $created?;
            match created {
                Some(object) => {
                    closes.push(Box::new(move |done, context| call!(object, $close, done, context)))
                }
                None => is_complete = false,
            }
            created
        }};
    }
    let pd: Option<*mut NDK_PD> = object!(
        NdkClosePd,
        create(event, |done, context, out| call!(adapter, NdkCreatePd, done, context, out))
    );
    let cq: Option<*mut NDK_CQ> = object!(
        NdkCloseCq,
        create(event, |done, context, out| {
            call!(adapter, NdkCreateCq, 8, Some(on_cq), none, none.cast(), done, context, out)
        })
    );
    let _: Option<*mut NDK_CONNECTOR> = object!(
        NdkCloseConnector,
        create(event, |done, context, out| call!(adapter, NdkCreateConnector, done, context, out))
    );
    let _: Option<*mut NDK_LISTENER> = object!(
        NdkCloseListener,
        create(event, |done, context, out| {
            call!(adapter, NdkCreateListener, Some(on_connect), none, done, context, out)
        })
    );
    if let Some(pd) = pd {
        for kind in 0..2 {
            let _: Option<*mut NDK_MR> = object!(
                NdkCloseMr,
                create(event, |done, context, out| call!(pd, NdkCreateMr, kind, done, context, out))
            );
        }
        let _: Option<*mut NDK_MW> = object!(
            NdkCloseMw,
            create(event, |done, context, out| call!(pd, NdkCreateMw, done, context, out))
        );
        let srq: Option<*mut NDK_SRQ> = object!(
            NdkCloseSrq,
            create(event, |done, context, out| {
                call!(pd, NdkCreateSrq, 4, 1, 0, None, none, none.cast(), done, context, out)
            })
        );
        if let Some(cq) = cq {
            let _: Option<*mut NDK_QP> = object!(
                NdkCloseQp,
                create(event, |done, context, out| {
                    call!(pd, NdkCreateQp, cq, cq, none, 4, 4, 1, 1, 0, done, context, out)
                })
            );
            if let Some(srq) = srq {
                let _: Option<*mut NDK_QP> = object!(
                    NdkCloseQp,
                    create(event, |done, context, out| {
                        call!(pd, NdkCreateQpWithSrq, cq, cq, srq, none, 4, 1, 0, done, context, out)
                    })
                );
            }
        }
    }
    shuffle(&mut closes, seed);
    let mut pending = Vec::new();
    for close in closes {
        let callbacks = callbacks(event);
        match close(Some(on_close), context(callbacks)) {
            STATUS_PENDING => pending.push(callbacks),
            STATUS_SUCCESS => {}
            status => return Err(format!("a close returned {status:#x}")),
        }
    }
    for callbacks in &pending {
        while callbacks.made.load(Ordering::SeqCst) == 0 {
            if !event.wait(Duration::from_secs(10)) {
                return Err("a close callback was not made".into());
            }
            event.reset();
        }
    }
    if pending.iter().any(|callbacks| callbacks.made.load(Ordering::SeqCst) != 1) {
        return Err("a close callback was made twice".into());
    }
    Ok(is_complete)
}

/// Selects one of all orders (Fisher-Yates with xorshift64*).
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for last in (1..items.len()).rev() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let chosen = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % (last + 1);
        items.swap(last, chosen);
    }
}
