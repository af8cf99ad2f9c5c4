// SPDX-License-Identifier: MIT OR Apache-2.0

//! The harness's side of an adapter: the PnP manager and protocol drivers of Windows.
//!
//! Every method may be called on any thread. On a thread of another host or of none, the call is made on a
//! system thread of the adapter's host.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use ndk_abi::{
    ndis::{
        NDIS_DEVICE_PNP_EVENT, NDIS_HALT_ACTION, NDIS_OID, NDIS_REQUEST_TYPE, NDIS_STATUS,
        NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_SUCCESS, OID_OFFLOAD_ENCAPSULATION,
    },
    nt::DRIVER_OBJECT,
};

use device_sim::PciFunction;
use nt_sim::{Host, guest::Guest, thread::Lost};

use crate::{
    adapter::{Adapter, AdapterState, Attributes, StatusIndication},
    driver, hang, interface,
    lifecycle::{self, StartError},
    offload::{self, Offloads},
    oid::{OidError, OidPath},
    power,
    protocol::PROTOCOLS,
};

mod calls;
mod ndk;
mod scaling;
mod stack;
mod traffic;
mod wmi;

use calls::{on_host, request};

pub use ndk::NdkRequests;
pub use scaling::ScalingRequests;
pub use stack::ProtocolStack;
pub use wmi::WmiRequests;

/// A started adapter. Clones are the same adapter.
#[derive(Clone)]
pub struct Miniport {
    host: Arc<Host>,
    adapter: Arc<Adapter>,
}

impl Miniport {
    /// Starts the driver on the host's next NIC: initializes and restarts an adapter. If several miniport drivers are
    /// registered, the first one.
    ///
    /// # Errors
    /// [`StartError`]; the adapter is removed then, and checked for leaks.
    pub fn start(host: &Arc<Host>) -> Result<Self, StartError> {
        let interface = lifecycle::next_interface(host).ok_or(StartError::NothingToStart)?;
        Self::start_on(host, &interface.nic)
    }

    /// Starts a miniport on a NIC of the host, otherwise as [`Miniport::start`].
    ///
    /// # Errors
    /// [`StartError`]; the adapter is removed then, and checked for leaks.
    ///
    /// # Panics
    /// When the NIC is not in the host.
    pub fn start_on(host: &Arc<Host>, nic: &Arc<impl PciFunction + ?Sized>) -> Result<Self, StartError> {
        let driver = driver::drivers(host).into_iter().next().ok_or(StartError::NothingToStart)?;
        start_driver(host, nic, driver)
    }

    /// Starts, as [`Miniport::start_on`] does, the miniport driver that has the driver object `object`.
    ///
    /// # Errors
    /// [`StartError`]; the adapter is removed then, and checked for leaks.
    ///
    /// # Panics
    /// When the NIC is not in the host.
    pub fn start_with(
        host: &Arc<Host>,
        nic: &Arc<impl PciFunction + ?Sized>,
        object: Guest<DRIVER_OBJECT>,
    ) -> Result<Self, StartError> {
        let driver = driver::of_object(host, object).ok_or(StartError::NothingToStart)?;
        start_driver(host, nic, driver)
    }

    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Returns the side of RDMA.
    #[must_use]
    pub const fn ndk(&self) -> NdkRequests<'_> {
        NdkRequests { host: &self.host, adapter: &self.adapter }
    }

    /// Returns the side of receive side scaling.
    #[must_use]
    pub const fn scaling(&self) -> ScalingRequests<'_> {
        ScalingRequests { host: &self.host, adapter: &self.adapter }
    }

    /// Returns the protocol stack above the adapter.
    #[must_use]
    pub const fn stack(&self) -> ProtocolStack<'_> {
        ProtocolStack { host: &self.host, adapter: &self.adapter }
    }

    #[must_use]
    pub fn state(&self) -> AdapterState {
        self.adapter.state()
    }

    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.adapter.attributes()
    }

    /// Pauses the adapter; returns when the miniport has completed the pause. Does nothing if NDIS has removed it already, at the
    /// request of the miniport, or if it is paused because its restart or its wake-up has failed.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn pause(&self) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "PnP", move || {
            lifecycle::exclusively(&this.adapter, || match this.state() {
                AdapterState::Halted | AdapterState::Paused => {}
                _ => lifecycle::pause(&this.adapter),
            });
        })
    }

    /// Puts the device in D3 before the system sleeps, as NDIS does: asks the miniport, pauses it, sets its power state, then
    /// has the bus turn the device off.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    ///
    /// # Panics
    /// When the miniport does not support power management.
    pub fn sleep(&self) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "power", move || {
            lifecycle::exclusively(&this.adapter, || power::sleep(&this.adapter));
        })
    }

    /// Puts the device in D0 and restarts the adapter if it was paused, after [`Miniport::sleep`].
    ///
    /// # Errors
    /// The miniport fails a request, or the host dies.
    pub fn wake(&self) -> Result<(), StartError> {
        let this = self.clone();
        let woken = on_host(&self.host, "power", move || {
            lifecycle::exclusively(&this.adapter, || power::wake(&this.host, &this.adapter))
        })?;
        if woken != NDIS_STATUS_SUCCESS {
            return Err(StartError::Restart(woken));
        }
        // One with NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND runs still.
        if self.state() == AdapterState::Paused { self.restart() } else { Ok(()) }
    }

    /// Shuts the adapter down, as before the system turns off: the device must have stopped, and must not be started again.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn shut_down(&self) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "power", move || lifecycle::shut_down(&this.adapter))
    }

    /// Resets the adapter, as NDIS does when its hardware hangs; returns the status of the miniport. Success if it does not run.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn reset(&self) -> Result<NDIS_STATUS, Lost> {
        let this = self.clone();
        on_host(&self.host, "reset", move || hang::reset(&this.adapter))
    }

    /// Returns the number of resets so far.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.adapter.hang.resets.load(SeqCst)
    }

    /// Restarts the paused adapter.
    ///
    /// # Errors
    /// The status of MiniportRestart, or that the host died.
    pub fn restart(&self) -> Result<(), StartError> {
        let this = self.clone();
        let restart = move || {
            let restart = || match this.state() {
                // The miniport has asked for its removal meanwhile.
                AdapterState::Halted => NDIS_STATUS_ADAPTER_REMOVED,
                _ => lifecycle::restart(&this.host, &this.adapter),
            };
            let status = lifecycle::exclusively(&this.adapter, restart);
            if status == NDIS_STATUS_SUCCESS {
                for protocol in this.host.state(&PROTOCOLS) {
                    protocol.restarted(&this.host, &this.adapter);
                }
            }
            status
        };
        match on_host(&self.host, "PnP", restart)? {
            NDIS_STATUS_SUCCESS => Ok(()),
            status => Err(StartError::Restart(status)),
        }
    }

    /// Pauses and halts the adapter, and checks it for leaks. Does nothing if NDIS has removed it already, at the request of
    /// the miniport.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn halt(&self) -> Result<(), Lost> {
        self.stop(NDIS_HALT_ACTION::NdisHaltDeviceDisabled)
    }

    fn stop(&self, action: NDIS_HALT_ACTION) -> Result<(), Lost> {
        let this = self.clone();
        on_host(&self.host, "PnP", move || {
            lifecycle::exclusively(&this.adapter, || lifecycle::stop(&this.host, &this.adapter, action));
        })
    }

    /// Removes the device, notifies the miniport, pauses and halts it.
    ///
    /// # Errors
    /// [`Lost`] when the host dies.
    pub fn surprise_remove(&self) -> Result<(), Lost> {
        self.adapter.nic.remove();
        let this = self.clone();
        on_host(&self.host, "PnP", move || {
            lifecycle::exclusively(&this.adapter, || {
                if this.state() != AdapterState::Halted {
                    lifecycle::notify(
                        &this.adapter,
                        NDIS_DEVICE_PNP_EVENT::NdisDevicePnPEventSurpriseRemoved,
                    );
                }
                lifecycle::stop(&this.host, &this.adapter, NDIS_HALT_ACTION::NdisHaltDeviceSurpriseRemoved);
            });
        })
    }

    /// Returns the OIDs that the miniport says it supports.
    #[must_use]
    pub fn supported_oids(&self) -> Vec<NDIS_OID> {
        self.adapter.oids.lock().clone()
    }

    /// Queries an OID with a buffer of `length` bytes; returns what the miniport wrote into it.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn query(&self, oid: NDIS_OID, length: usize) -> Result<Vec<u8>, OidError> {
        request(
            &self.host,
            &self.adapter,
            OidPath::Regular,
            NDIS_REQUEST_TYPE::NdisRequestQueryInformation,
            oid,
            vec![0xcc; length],
        )
    }

    /// Queries an OID by a direct OID request, otherwise as [`Miniport::query`].
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn query_direct(&self, oid: NDIS_OID, length: usize) -> Result<Vec<u8>, OidError> {
        self.request_direct(NDIS_REQUEST_TYPE::NdisRequestQueryInformation, oid, length)
    }

    /// Makes a direct OID request of any type.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn request_direct(
        &self,
        kind: NDIS_REQUEST_TYPE,
        oid: NDIS_OID,
        length: usize,
    ) -> Result<Vec<u8>, OidError> {
        request(&self.host, &self.adapter, OidPath::Direct, kind, oid, vec![0xcc; length])
    }

    /// Sets an OID.
    ///
    /// # Errors
    /// [`OidError`] when the miniport fails the request.
    ///
    /// # Panics
    /// When the host dies.
    pub fn set(&self, oid: NDIS_OID, value: &[u8]) -> Result<(), OidError> {
        let kind = NDIS_REQUEST_TYPE::NdisRequestSetInformation;
        request(&self.host, &self.adapter, OidPath::Regular, kind, oid, value.to_vec()).map(drop)
    }

    /// Returns what the miniport indicated by NdisMIndicateStatusEx so far.
    #[must_use]
    pub fn indications(&self) -> Vec<StatusIndication> {
        self.adapter.indications.lock().clone()
    }

    /// Returns how often NDIS has polled the adapter.
    #[must_use]
    pub fn polls(&self) -> u64 {
        self.adapter.polls.load(SeqCst)
    }

    /// Returns the number of lists that each poll object has indicated, in the order of their registration.
    #[must_use]
    pub fn polled_lists(&self) -> Vec<u64> {
        self.adapter.polled.lock().iter().map(|count| count.load(SeqCst)).collect()
    }

    /// Returns the task offloads in force, as the miniport reported them last.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.adapter.offloads.lock().current
    }

    /// Returns the task offloads that the miniport has reported as possible.
    #[must_use]
    pub fn possible_offloads(&self) -> Offloads {
        self.adapter.offloads.lock().possible
    }

    /// Starts the task offloads, as a protocol driver does that uses them. Nothing if there are none.
    ///
    /// # Errors
    /// The status and the needed length of a request that failed.
    pub fn start_offloads(&self) -> Result<(), OidError> {
        if self.possible_offloads() == Offloads::default() {
            return Ok(());
        }
        self.set(OID_OFFLOAD_ENCAPSULATION, &offload::encapsulation([true; 2]))
    }
}

/// Starts a driver on a NIC of the host.
fn start_driver(
    host: &Arc<Host>,
    nic: &Arc<impl PciFunction + ?Sized>,
    driver: Arc<driver::Driver>,
) -> Result<Miniport, StartError> {
    let (on, interface) = (host.clone(), interface::of_nic(host, nic));
    let adapter = on_host(host, "PnP", move || lifecycle::initialize(&on, driver, interface))??;
    let miniport = Miniport { host: host.clone(), adapter };
    match miniport.restart() {
        Ok(()) => Ok(miniport),
        Err(error) => {
            let _ = miniport.stop(NDIS_HALT_ACTION::NdisHaltDeviceFailed);
            Err(error)
        }
    }
}
