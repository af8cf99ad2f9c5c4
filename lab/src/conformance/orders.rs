// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that are closed in any order: each close completes once, at the latest when all are closed.
#![allow(unsafe_code, reason = "asks the system")]

use std::{ffi::c_void, net::Ipv4Addr, ptr::null_mut};

use ndk_abi::{
    ndk::{
        NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_LISTENER, NDK_MR, NDK_MW, NDK_PD, NDK_QP,
        NDK_SHARED_ENDPOINT, NDK_SRQ,
    },
    nt::{NTSTATUS, STATUS_PENDING, STATUS_SUCCESS},
};
use nt_sim::Event;

use super::{
    calls::{Callbacks, Close, Request, call, create, on_close, on_connect, wait},
    connection::{Address, Ends, Stage},
};

unsafe extern "efiapi" fn on_cq(_: *mut c_void, _: NTSTATUS) {}

/// Objects, and what closes them.
struct Objects {
    closes: Vec<Close>,
    listener: Option<*mut NDK_LISTENER>,
    connector: Option<*mut NDK_CONNECTOR>,
    endpoint: Option<*mut NDK_SHARED_ENDPOINT>,
    qps: Vec<*mut NDK_QP>,
    /// All could be created.
    is_complete: bool,
}

/// Creates objects of all types. `ip` is the adapter's address; `incoming` records the connect events.
fn create_objects(
    adapter: *mut NDK_ADAPTER,
    ip: Ipv4Addr,
    event: &Event,
    incoming: &'static Callbacks,
) -> Result<Objects, String> {
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
    let connector: Option<*mut NDK_CONNECTOR> = object!(
        NdkCloseConnector,
        create(event, |done, context, out| call!(adapter, NdkCreateConnector, done, context, out))
    );
    let listener: Option<*mut NDK_LISTENER> = object!(
        NdkCloseListener,
        create(event, |done, context, out| {
            call!(adapter, NdkCreateListener, Some(on_connect), incoming.context(), done, context, out)
        })
    );
    let local = Address::new(ip, 7001);
    let endpoint: Option<*mut NDK_SHARED_ENDPOINT> = object!(
        NdkCloseSharedEndpoint,
        create(event, |done, context, out| {
            call!(adapter, NdkCreateSharedEndpoint, local.as_ptr(), Address::LENGTH, done, context, out)
        })
    );
    let mut qps = Vec::new();
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
            let qp: Option<*mut NDK_QP> = object!(
                NdkCloseQp,
                create(event, |done, context, out| {
                    call!(pd, NdkCreateQp, cq, cq, none, 4, 4, 1, 1, 0, done, context, out)
                })
            );
            qps.extend(qp);
            if let Some(srq) = srq {
                let qp: Option<*mut NDK_QP> = object!(
                    NdkCloseQp,
                    create(event, |done, context, out| {
                        call!(pd, NdkCreateQpWithSrq, cq, cq, srq, none, 4, 1, 0, done, context, out)
                    })
                );
                qps.extend(qp);
            }
        }
    }
    Ok(Objects { closes, listener, connector, endpoint, qps, is_complete })
}

/// Creates objects of all types, connects them as far as the seed selects, and closes them in the order that it selects. `ip` is
/// the adapter's address. Returns whether all could be created and connected.
pub fn close_in_any_order(
    adapter: *mut NDK_ADAPTER,
    ip: Ipv4Addr,
    event: &Event,
    seed: u64,
) -> Result<bool, String> {
    let incoming = Callbacks::new(event);
    let objects = create_objects(adapter, ip, event, incoming)?;
    let Objects { mut closes, listener, connector, endpoint, qps, mut is_complete } = objects;
    let mut requests = Vec::new();
    if let (Some(listener), Some(connector), &[active, passive]) = (listener, connector, &qps[..]) {
        let [.., last] = Stage::ALL;
        let stage = Stage::ALL[last as usize - (seed + seed / 4) as usize % Stage::ALL.len()];
        let shared_endpoint = endpoint.filter(|_| seed / 2 % 2 == 1);
        let ends = Ends { listener, incoming, connector, shared_endpoint, qps: [active, passive], ip };
        let (made, is_reached) = ends.connect(event, stage)?;
        requests = made;
        is_complete &= is_reached;
    }
    shuffle(&mut closes, seed);
    // The other end may come while the objects are closed, as long as the listener is not.
    let mut other_end: Option<Close> = (listener.is_some()).then(|| {
        let close: Close = Box::new(move |done, context| {
            call!(incoming.object::<NDK_CONNECTOR>(), NdkCloseConnector, done, context)
        });
        close
    });
    let mut pending = Vec::new();
    let at = (seed / 16) as usize % (closes.len() + 1);
    for (index, close) in closes.into_iter().enumerate() {
        if index == at && incoming.made() != 0 {
            other_end.take().map_or(Ok(()), |close| begin(event, &mut pending, &close))?;
        }
        begin(event, &mut pending, &close)?;
    }
    let mut begun = Ok(());
    wait(event, "a close callback", || {
        if incoming.made() != 0
            && let Some(close) = other_end.take()
        {
            begun = begin(event, &mut pending, &close);
        }
        pending.iter().all(|callbacks| callbacks.made() != 0)
    })?;
    begun?;
    if pending.iter().any(|callbacks| callbacks.made() != 1) {
        return Err("a close callback was made twice".into());
    }
    if incoming.made() != usize::from(other_end.is_none() && listener.is_some()) {
        return Err("a connect event was raised twice, or after the listener had closed".into());
    }
    if !requests.iter().all(Request::has_completed_once) {
        return Err("a request has not completed once".into());
    }
    Ok(is_complete)
}

/// Begins a close. Adds its callback to `pending` if it pends.
fn begin(event: &Event, pending: &mut Vec<&'static Callbacks>, close: &Close) -> Result<(), String> {
    let callbacks = Callbacks::new(event);
    match close(Some(on_close), callbacks.context()) {
        STATUS_PENDING => pending.push(callbacks),
        STATUS_SUCCESS => {}
        status => return Err(format!("a close returned {status:#x}")),
    }
    Ok(())
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
