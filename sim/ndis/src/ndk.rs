// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening and closing NDK adapters, and net PnP events.

use std::sync::Arc;

use ndk_abi::{
    ndis::{
        NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_INDICATION, NDIS_STATUS_LINK_STATE,
        NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
        NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG, NET_PNP_EVENT_NOTIFICATION,
    },
    ndk::{
        NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_OBJECT_HEADER,
        NDK_OBJECT_TYPE, NDK_VERSION,
    },
};
use nt_sim::{Tolerance, current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, AdapterState, StatusIndication, adapter},
    filter_pnp, filter_status,
    link::Link,
    ndk_objects::NDK_OBJECTS,
    offload::Offloads,
    rules::{self, POISON, broken, require},
};

/// Nanoseconds after which closing an NDK adapter is reported: it waits until every object below it is closed.
const MAX_CLOSE: u64 = 60_000_000_000;

/// An open NDK adapter. Close it with [`NdkRequests::close`](crate::NdkRequests::close).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdkAdapter(pub Guest<NDK_ADAPTER>);

impl NdkAdapter {
    /// Returns the object for consumers.
    #[must_use]
    pub fn as_ptr(self) -> *mut NDK_ADAPTER {
        self.0.as_ptr()
    }
}

impl Adapter {
    /// Opens an NDK adapter. On a thread of the host, at `PASSIVE_LEVEL`.
    pub(crate) fn open_ndk(
        &self,
        mut parameters: NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ) -> Result<NdkAdapter, NDIS_STATUS> {
        //= R-OPEN-18
        let handlers = *self.driver.ndk.lock();
        let open =
            handlers.and_then(|handlers| handlers.OpenNDKAdapterHandler).ok_or(NDIS_STATUS_NOT_SUPPORTED)?;
        if !matches!(self.state(), AdapterState::Running | AdapterState::Paused) || !self.ndk.begin_open() {
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        let version = parameters.Version;
        let mut opened = Guest::<NDK_ADAPTER>::from_address(POISON);
        let (parameters, out) = (&raw mut parameters, (&raw mut opened).cast());
        let status = call("OpenNDKAdapterHandler", || {
            // SAFETY: the image registered the function under this contract; both pointers live through the call.
            unsafe { open(self.context() as *mut _, parameters, out) }
        });
        // SAFETY: our own variable, written by the image through the pointer.
        let opened = unsafe { (&raw const opened).read_volatile() };
        self.ndk.end_open((status == NDIS_STATUS_SUCCESS).then(|| opened.address()));
        //= R-OPEN-8
        require(status != NDIS_STATUS_PENDING, rules::NDK_OPEN, || {
            "OpenNDKAdapterHandler returned NDIS_STATUS_PENDING".into()
        });
        if status != NDIS_STATUS_SUCCESS {
            if !opened.is_null() && opened.address() != POISON {
                self.driver.undocumented(
                    current().host(),
                    Tolerance::FailedOpen,
                    &format!(
                        "OpenNDKAdapterHandler failed, but stored {:#x} as the adapter",
                        opened.address()
                    ),
                );
            }
            return Err(status);
        }
        check_adapter(opened, version);
        current().host().state(&NDK_OBJECTS).opened(opened.address());
        Ok(NdkAdapter(opened))
    }

    /// Closes an NDK adapter; returns when every object below it is closed. On a thread of the host, at
    /// `PASSIVE_LEVEL`.
    pub(crate) fn close_ndk(&self, opened: NdkAdapter) {
        let handlers = *self.driver.ndk.lock();
        let close = handlers.and_then(|handlers| handlers.CloseNDKAdapterHandler);
        let known = self.ndk.open().contains(&opened.0.address());
        assert!(known, "the NDK adapter is open on this miniport");
        let host = current().host().clone();
        let (on, index) = (host.clone(), self.if_index);
        let overdue = host.at(host.world().now() + MAX_CLOSE, move || {
            let left = on.state(&NDK_OBJECTS).open_below(opened.0.address());
            broken(rules::NDK_CLOSE, format!(
                "CloseNDKAdapterHandler of interface {index} hangs: the consumer has not closed all objects of its adapter, \
                 or the provider does not notice it{}",
                if left.is_empty() { String::new() } else { format!("; open: {}", left.join(", ")) }
            ));
        });
        call("CloseNDKAdapterHandler", || {
            if let Some(close) = close {
                // SAFETY: the image registered the function under this contract; the adapter is open.
                unsafe { close(self.context() as *mut _, opened.as_ptr()) }
            }
        });
        let _ = host.cancel(overdue);
        host.state(&NDK_OBJECTS).closed(opened.0.address());
        self.ndk.closed(opened.0.address());
    }
}

/// Checks a new NDK adapter.
//= R-OPEN-12
//= R-OPEN-19
//= R-OPEN-22
fn check_adapter(opened: Guest<NDK_ADAPTER>, asked: NDK_VERSION) {
    let header: NDK_OBJECT_HEADER = opened.field(0).read();
    require(header.ObjectType == NDK_OBJECT_TYPE::NdkObjectTypeAdapter, rules::NDK_ADAPTER, || {
        format!("the NDK adapter has object type {}", header.ObjectType.0)
    });
    require(header.NdkReserved.rf.iter().all(|word| word.is_null()), rules::NDK_ADAPTER, || {
        "NdkReserved of the NDK adapter is not zero".into()
    });
    let reported = (header.Version.Major, header.Version.Minor);
    require(reported.0 == asked.Major && reported.1 >= asked.Minor, rules::NDK_ADAPTER, || {
        format!(
            "the NDK adapter has version {}.{}, but was opened as {}.{}",
            reported.0, reported.1, asked.Major, asked.Minor
        )
    });
    let dispatch: usize = opened.field(size_of::<NDK_OBJECT_HEADER>()).read();
    require(dispatch != 0, rules::NDK_ADAPTER, || "the NDK adapter has no dispatch table".into());
    let members = size_of::<NDK_ADAPTER_DISPATCH>() / size_of::<usize>();
    for index in 0..members {
        let member: usize = Guest::<usize>::from_address(dispatch).add(index).read();
        require(member != 0, rules::NDK_ADAPTER, || {
            format!("member {index} of the NDK adapter's dispatch table is null")
        });
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Reports an event to the drivers above; a disable returns when every NDK adapter is closed.
    [== PASSIVE_LEVEL]
    fn NdisMNetPnPEvent(handle: usize, notification: Guest<NET_PNP_EVENT_NOTIFICATION>) -> NDIS_STATUS {
        let adapter: Arc<Adapter> = adapter(handle);
        //= R-OIDNDK-11
        require(*adapter.in_oid.lock() != Some(current().id()), rules::EVENT_IN_OID, || {
            "NdisMNetPnPEvent was called inside MiniportOidRequest".into()
        });
        //= R-PNP-15
        let nested = std::mem::replace(&mut *adapter.ndk.in_event.lock(), true);
        if nested {
            adapter.driver.undocumented(
                current().host(),
                Tolerance::NestedEvents,
                "NdisMNetPnPEvent was called while another event is being delivered",
            );
        }
        let status = filter_pnp::pass_up(&adapter, 0, notification);
        *adapter.ndk.in_event.lock() = false;
        status
    }

    /// Reports a status to the drivers above.
    [<= DISPATCH_LEVEL]
    fn NdisMIndicateStatusEx(handle: usize, indication: Guest<NDIS_STATUS_INDICATION>) {
        let adapter = adapter(handle);
        let passed = indication;
        let indication = indication.read();
        require(indication.SourceHandle.addr() == handle, rules::STATUS_INDICATION, || {
            "NdisMIndicateStatusEx: SourceHandle is not the adapter's handle".into()
        });
        let header = indication.Header;
        let (kind, size) = (NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);
        require(header.Type == kind && header.Revision >= 1 && header.Size >= size, rules::HEADER, || {
            format!("NdisMIndicateStatusEx with an indication of type {:#x} and {} bytes", header.Type, header.Size)
        });
        let mut buffer = vec![0; indication.StatusBufferSize as usize];
        if !buffer.is_empty() {
            Guest::<u8>::new(indication.StatusBuffer.cast()).read_bytes(&mut buffer);
        }
        if indication.StatusCode == NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG {
            let minor = adapter.driver.characteristics.MinorNdisVersion;
            let current_config = Offloads::read("NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG", &buffer, minor);
            let possible = adapter.offloads.lock().possible;
            current_config.require_possible(&possible);
            adapter.offloads.lock().set_current(current_config, current().world().now());
        }
        if indication.StatusCode == NDIS_STATUS_LINK_STATE {
            Link::read(&buffer).check(&adapter.driver);
        }
        adapter.indications.lock().push(StatusIndication { code: indication.StatusCode, buffer });
        filter_status::pass_up(&adapter, 0, passed);
    }
}
