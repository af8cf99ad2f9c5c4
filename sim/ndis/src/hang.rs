// SPDX-License-Identifier: MIT OR Apache-2.0

//! Miniports that hang: NDIS asks a running miniport that has the handlers at an interval whether its hardware does, and
//! resets it then. (MiniportCheckForHangEx, MiniportResetEx)

use std::sync::{Arc, atomic::Ordering::SeqCst};

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS};
use nt_sim::{Host, Tolerance, current, image::call, imports};

use crate::{
    adapter::{Adapter, AdapterState, adapter},
    rules::{self, broken, require},
    wait::wait,
};

/// Seconds between two checks, unless the miniport sets another number in its registration attributes.
const DEFAULT_INTERVAL: u32 = 2;

/// Begins to check an adapter that has restarted.
pub(crate) fn watch(host: &Arc<Host>, adapter: &Arc<Adapter>) {
    let restart = adapter.hang.restarts.fetch_add(1, SeqCst) + 1;
    if adapter.driver.characteristics.CheckForHangHandlerEx.is_some() {
        schedule(host, adapter, restart);
    }
}

fn schedule(host: &Arc<Host>, adapter: &Arc<Adapter>, restart: u64) {
    let registration = adapter.attributes().registration;
    let seconds = registration.map_or(0, |attributes| attributes.CheckForHangTimeInSeconds);
    let seconds = if seconds == 0 { DEFAULT_INTERVAL } else { seconds };
    let (on, adapter) = (host.clone(), adapter.clone());
    host.at(host.world().now() + u64::from(seconds) * 1_000_000_000, move || {
        let host = on.clone();
        on.queue_work(move || {
            let watched =
                || adapter.state() == AdapterState::Running && adapter.hang.restarts.load(SeqCst) == restart;
            if watched() && is_hung(&adapter) {
                reset(&adapter);
            }
            if watched() {
                schedule(&host, &adapter, restart);
            }
        });
    });
}

fn is_hung(adapter: &Adapter) -> bool {
    let Some(handler) = adapter.driver.characteristics.CheckForHangHandlerEx else { return false };
    let mut hung = false;
    adapter.while_running(|| {
        hung = call("MiniportCheckForHangEx", || {
            // SAFETY: the image registered the function under this contract; PASSIVE_LEVEL.
            unsafe { handler(adapter.context() as *mut _) }
        }) != 0;
    });
    hung
}

/// Resets a running adapter, and sets again what it lost. On a thread of the host, at `PASSIVE_LEVEL`. Returns the status of
/// the reset; success when the adapter does not run.
pub(crate) fn reset(adapter: &Arc<Adapter>) -> NDIS_STATUS {
    let mut outcome = (NDIS_STATUS_SUCCESS, false);
    // NDIS sends no OID request meanwhile.
    adapter.without_oids(|| adapter.while_running(|| outcome = call_reset(adapter)));
    let (status, addressing_lost) = outcome;
    if status == NDIS_STATUS_SUCCESS && addressing_lost {
        let values = adapter.hang.addressing.lock().clone();
        for (oid, value) in values {
            let again = adapter.set_oid(oid, &value);
            if again.is_err() {
                adapter.driver.undocumented(
                    current().host(),
                    Tolerance::RestoreFailed,
                    &format!("OID {oid:#x} failed when NDIS set it again after a reset"),
                );
            }
        }
    }
    status
}

fn call_reset(adapter: &Adapter) -> (NDIS_STATUS, bool) {
    let Some(handler) = adapter.driver.characteristics.ResetHandlerEx else {
        return (NDIS_STATUS_SUCCESS, false);
    };
    *adapter.hang.outcome.lock() = Some((NDIS_STATUS_PENDING, false));
    adapter.hang.done.reset();
    let mut lost = 0_u8;
    let lost_out = &raw mut lost;
    let status = call("MiniportResetEx", || {
        // SAFETY: the image registered the function under this contract; the result lives through the call.
        unsafe { handler(adapter.context() as *mut _, lost_out) }
    });
    if status == NDIS_STATUS_PENDING {
        wait(&adapter.hang.done);
    }
    // SAFETY: our own variable, which the image may have written through the pointer.
    let lost = unsafe { lost_out.read_volatile() } != 0;
    let completed = adapter.hang.outcome.lock().take();
    adapter.hang.resets.fetch_add(1, SeqCst);
    if status == NDIS_STATUS_PENDING { completed.unwrap_or((status, false)) } else { (status, lost) }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Completes a reset that pended.
    [== DISPATCH_LEVEL]
    fn NdisMResetComplete(handle: usize, status: NDIS_STATUS, addressing_lost: u8) {
        let adapter = adapter(handle);
        require(status != NDIS_STATUS_PENDING, rules::RESET, || "NdisMResetComplete with NDIS_STATUS_PENDING".into());
        let before = {
            let mut outcome = adapter.hang.outcome.lock();
            let before = *outcome;
            *outcome = before.map(|_| (status, addressing_lost != 0));
            before
        };
        match before {
            Some((NDIS_STATUS_PENDING, _)) => adapter.hang.done.set(),
            Some(_) => broken(rules::RESET, "NdisMResetComplete was called twice"),
            None => broken(rules::RESET, "NdisMResetComplete was called, but no reset is in progress"),
        }
    }
}
