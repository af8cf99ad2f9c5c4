// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration of protocol and filter drivers, which a miniport driver can be besides.
//!
//! Windows binds a protocol driver, and attaches a filter module, where the network configuration of the driver's INF says so. Here
//! [`NdisHost::bind_filter`](crate::NdisHost::bind_filter) says it of a filter driver. No protocol driver is bound: its handlers, except for
//! the one that sets options, are not called.

use std::sync::Arc;

use ndk_abi::{
    ndis::{
        NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS,
        NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS, NDIS_STATUS, NDIS_STATUS_BAD_CHARACTERISTICS,
        NDIS_STATUS_BAD_VERSION, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS,
    },
    nt::DRIVER_OBJECT,
};
use nt_sim::{Host, current, guest::Guest, image, imports};

use crate::{
    adapter::{Adapter, AdapterState, adapters},
    filter_module::{BOUND_FILTERS, FILTER_DRIVERS, FilterDriver},
    filter_stack,
    handle::{self, HANDLES},
    lifecycle,
};

/// Highest version of NDIS 6.
const MINOR_VERSION: u8 = 85;

/// The characteristics of a kind of driver.
struct Kind {
    /// The function that registers it.
    function: &'static str,
    object_type: u8,
    /// Size of the structure of the first revision, in bytes.
    size: u16,
    /// Offset of the handler that sets options.
    set_options: usize,
    /// Offsets of handlers without which no binding or module works.
    mandatory: &'static [usize],
}

const PROTOCOL: Kind = Kind {
    function: "NdisRegisterProtocolDriver",
    object_type: NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS,
    size: 0x78,
    set_options: 32,
    // Bind, unbind, and the completions of opening and closing.
    mandatory: &[40, 48, 56, 64],
};

const FILTER: Kind = Kind {
    function: "NdisFRegisterFilterDriver",
    object_type: NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS,
    size: 0xc8,
    set_options: 64,
    // Attach, detach, restart, pause.
    mandatory: &[80, 88, 96, 104],
};

/// A registered protocol driver.
struct ProtocolDriver;

/// A protocol driver that is being bound, and one that has opened an adapter: there are none, so that every handle of them is wrong.
struct Bind;
struct Binding;

fn require_binding(handle: usize) -> NDIS_STATUS {
    let _ = handle::object::<Binding>("handle of NdisOpenAdapterEx", handle);
    NDIS_STATUS_FAILURE
}

/// `ProtocolSetOptions`, `FilterSetOptions`.
type SetOptions = unsafe extern "efiapi" fn(NDIS_HANDLE, NDIS_HANDLE) -> NDIS_STATUS;

impl Kind {
    /// Returns the status with which characteristics are refused.
    fn refusal(&self, characteristics: Guest<u8>) -> Option<NDIS_STATUS> {
        let header: NDIS_OBJECT_HEADER = characteristics.field(0).read();
        if header.Type != self.object_type || header.Revision == 0 || header.Size < self.size {
            return Some(NDIS_STATUS_BAD_CHARACTERISTICS);
        }
        if characteristics.add(4).read() != 6 || characteristics.add(5).read() > MINOR_VERSION {
            return Some(NDIS_STATUS_BAD_VERSION);
        }
        let lacks = |&offset: &usize| characteristics.field::<usize>(offset).read() == 0;
        self.mandatory.iter().any(lacks).then_some(NDIS_STATUS_BAD_CHARACTERISTICS)
    }

    fn register<T: Send + Sync + 'static>(
        &self,
        driver: impl FnOnce() -> T,
        context: usize,
        characteristics: Guest<u8>,
        result: Guest<usize>,
    ) -> NDIS_STATUS {
        const WHAT: &str = "SetOptions";
        if let Some(status) = self.refusal(characteristics) {
            return status;
        }
        let me = current();
        let host = me.host();
        let handle = host.state(&HANDLES).insert(Arc::new(driver()));
        host.objects.add(self.function, handle);
        result.write(handle);
        let routine = characteristics.field::<usize>(self.set_options).read();
        if routine == 0 {
            return NDIS_STATUS_SUCCESS;
        }
        // SAFETY: the driver registered the function for this.
        let set_options: SetOptions = unsafe { image::function(WHAT, routine) };
        // SAFETY: the arguments of this function, at PASSIVE_LEVEL.
        let status = image::call(WHAT, || unsafe { set_options(handle as *mut _, context as *mut _) });
        if status != NDIS_STATUS_SUCCESS {
            self.deregister::<T>(handle);
        }
        status
    }

    fn deregister<T: Send + Sync + 'static>(&self, handle: usize) {
        let _ = handle::take::<T>(&format!("handle of {}", self.function), handle);
        let _ = current().host().objects.remove(self.function, handle);
    }
}

/// Runs `body` for each adapter that is not halted, while the adapter is paused.
fn while_paused(host: &Arc<Host>, body: impl Fn(&Arc<Adapter>)) {
    for adapter in adapters(host) {
        lifecycle::exclusively(&adapter, || {
            let was_running = adapter.state() == AdapterState::Running;
            if was_running {
                lifecycle::pause(&adapter);
            }
            if adapter.state() == AdapterState::Paused {
                body(&adapter);
            }
            if was_running {
                // An adapter whose restart fails stays paused.
                let _ = lifecycle::restart(host, &adapter);
            }
        });
    }
}

/// Attaches modules of a filter driver to the adapters that there are, on a thread of the system.
fn attach_soon(host: &Arc<Host>, driver: Arc<FilterDriver>) {
    host.state(&FILTER_DRIVERS).lock().push(driver.clone());
    let is_bound = host.state(&BOUND_FILTERS).lock().contains(&driver.service);
    if is_bound && !adapters(host).is_empty() {
        let on = host.clone();
        drop(host.spawn("PnP", move || {
            while_paused(&on, |adapter| {
                let is_registered =
                    on.state(&FILTER_DRIVERS).lock().iter().any(|other| Arc::ptr_eq(other, &driver));
                if is_registered {
                    filter_stack::attach(&on, adapter, driver.clone());
                }
            });
        }));
    }
}

/// Detaches the modules of a filter driver; no further ones are attached.
fn detach_modules(host: &Arc<Host>, driver: &Arc<FilterDriver>) {
    host.state(&FILTER_DRIVERS).lock().retain(|other| !Arc::ptr_eq(other, driver));
    let of_driver = |adapter: &Arc<Adapter>| {
        adapter.filters().into_iter().find(|module| Arc::ptr_eq(&module.driver, driver))
    };
    if adapters(host).iter().any(|adapter| of_driver(adapter).is_some()) {
        while_paused(host, |adapter| {
            if let Some(module) = of_driver(adapter) {
                filter_stack::detach(host, adapter, &module);
            }
        });
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Registers a protocol driver, which nothing binds.
    [== PASSIVE_LEVEL]
    fn NdisRegisterProtocolDriver(context: usize, characteristics: Guest<u8>, handle: Guest<usize>) -> NDIS_STATUS {
        PROTOCOL.register(|| ProtocolDriver, context, characteristics, handle)
    }

    /// Ends the registration of a protocol driver.
    [== PASSIVE_LEVEL]
    fn NdisDeregisterProtocolDriver(handle: usize) {
        PROTOCOL.deregister::<ProtocolDriver>(handle);
    }

    /// Binds a protocol driver to what it should be bound to: to nothing.
    [== PASSIVE_LEVEL]
    fn NdisReEnumerateProtocolBindings(handle: usize) {
        let _ = handle::object::<ProtocolDriver>("handle of NdisRegisterProtocolDriver", handle);
    }

    /// Opens an adapter for a protocol driver that is being bound to it: none is.
    [== PASSIVE_LEVEL]
    fn NdisOpenAdapterEx(
        _driver: usize,
        _context: usize,
        _parameters: usize,
        bind: usize,
        _handle: Guest<usize>,
    ) -> NDIS_STATUS {
        let _ = handle::object::<Bind>("BindContext of ProtocolBindAdapterEx", bind);
        NDIS_STATUS_FAILURE
    }

    /// Closes the adapter of a binding.
    [== PASSIVE_LEVEL]
    fn NdisCloseAdapterEx(binding: usize) -> NDIS_STATUS {
        require_binding(binding)
    }

    /// Sends an OID request of a binding.
    [<= DISPATCH_LEVEL]
    fn NdisOidRequest(binding: usize, _request: usize) -> NDIS_STATUS {
        require_binding(binding)
    }

    /// Sends lists of a binding.
    [<= DISPATCH_LEVEL]
    fn NdisSendNetBufferLists(binding: usize, _lists: usize, _port: u32, _flags: u32) {
        let _ = require_binding(binding);
    }

    /// Returns lists to the adapter of a binding.
    [<= DISPATCH_LEVEL]
    fn NdisReturnNetBufferLists(binding: usize, _lists: usize, _flags: u32) {
        let _ = require_binding(binding);
    }

    /// Registers a filter driver. Its modules are attached soon, if it is bound.
    [== PASSIVE_LEVEL]
    fn NdisFRegisterFilterDriver(
        object: Guest<DRIVER_OBJECT>,
        context: usize,
        characteristics: Guest<u8>,
        handle: Guest<usize>,
    ) -> NDIS_STATUS {
        let _ = object;
        let driver = || FilterDriver::new(context, characteristics);
        let status = FILTER.register(driver, context, characteristics, handle);
        if status == NDIS_STATUS_SUCCESS {
            attach_soon(current().host(), handle::object("filter driver", handle.read()));
        }
        status
    }

    /// Detaches the modules of a filter driver, and ends its registration.
    [== PASSIVE_LEVEL]
    fn NdisFDeregisterFilterDriver(handle: usize) {
        let host = current().host().clone();
        detach_modules(&host, &handle::object("handle of NdisFRegisterFilterDriver", handle));
        FILTER.deregister::<FilterDriver>(handle);
    }
}
