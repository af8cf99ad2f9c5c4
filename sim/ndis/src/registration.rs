// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration of a miniport driver. (windows-packaging §8.1)

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use ndk_abi::{
    ndis::{
        NDIS_DRIVER_OPTIONAL_HANDLERS, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2, NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
        NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS,
        NDIS_OBJECT_TYPE_MINIPORT_PNP_CHARACTERISTICS,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2,
        NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3, NDIS_STATUS, NDIS_STATUS_BAD_CHARACTERISTICS,
        NDIS_STATUS_BAD_VERSION, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS,
    },
    ndk::{
        NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
        NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS, NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
    },
    nt::{DRIVER_OBJECT, UNICODE_STRING},
};
use parking_lot::Mutex;

use nt_sim::{
    Tolerance, current,
    guest::Guest,
    image::{call, switch::on_host_stack},
    imports,
};

use crate::{
    adapter::adapters,
    driver::{self, DRIVERS, Driver},
    handle::{self, HANDLES},
    rules::{self, broken, require},
    wait::wait_until,
};

/// Highest supported NDIS version: 6.85.
const VERSION: (u8, u8) = (6, 85);

/// `DriverUnload` in a `DRIVER_OBJECT`.
const DRIVER_UNLOAD: usize = 0x68;

fn has_header(header: NDIS_OBJECT_HEADER, kind: u8, revision: u8, size: u16) -> bool {
    header.Type == kind && header.Revision == revision && header.Size >= size
}

/// Returns the name of the first mandatory handler that is missing.
fn missing_handler(of: &NDIS_MINIPORT_DRIVER_CHARACTERISTICS) -> Option<&'static str> {
    let mandatory = [
        ("InitializeHandlerEx", of.InitializeHandlerEx.is_some()),
        ("HaltHandlerEx", of.HaltHandlerEx.is_some()),
        ("UnloadHandler", of.UnloadHandler.is_some()),
        ("PauseHandler", of.PauseHandler.is_some()),
        ("RestartHandler", of.RestartHandler.is_some()),
        ("OidRequestHandler", of.OidRequestHandler.is_some()),
        ("SendNetBufferListsHandler", of.SendNetBufferListsHandler.is_some()),
        ("ReturnNetBufferListsHandler", of.ReturnNetBufferListsHandler.is_some()),
        ("CancelSendHandler", of.CancelSendHandler.is_some()),
        ("DevicePnPEventNotifyHandler", of.DevicePnPEventNotifyHandler.is_some()),
        ("ShutdownHandlerEx", of.ShutdownHandlerEx.is_some()),
    ];
    mandatory.into_iter().find_map(|(name, there)| (!there).then_some(name))
}

fn register(
    object: Guest<DRIVER_OBJECT>,
    context: usize,
    from: Guest<NDIS_MINIPORT_DRIVER_CHARACTERISTICS>,
) -> Result<Arc<Driver>, NDIS_STATUS> {
    let header: NDIS_OBJECT_HEADER = from.field(0).read();
    let kind = NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS;
    let (two, three) = (
        (
            NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2,
            NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2,
        ),
        (
            NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
            NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3,
        ),
    );
    let known = [two, three].into_iter().any(|(revision, size)| has_header(header, kind, revision, size));
    if !known {
        return Err(NDIS_STATUS_BAD_CHARACTERISTICS);
    }
    let characteristics = from.read();
    let version = (characteristics.MajorNdisVersion, characteristics.MinorNdisVersion);
    if version.0 != VERSION.0 || version.1 > VERSION.1 {
        return Err(NDIS_STATUS_BAD_VERSION);
    }
    // NDIS 6.80 and later require revision 3.
    if version.1 >= 80 && header.Revision < three.0 {
        return Err(NDIS_STATUS_BAD_CHARACTERISTICS);
    }
    if let Some(name) = missing_handler(&characteristics) {
        broken(rules::HANDLERS, format!("NdisMRegisterMiniportDriver: {name} is missing"));
    }
    if characteristics.CheckForHangHandlerEx.is_some() != characteristics.ResetHandlerEx.is_some() {
        return Err(NDIS_STATUS_BAD_CHARACTERISTICS);
    }
    let host = current().host().clone();
    Ok(host.state(&HANDLES).insert_with(|handle| {
        Arc::new(Driver {
            handle,
            context,
            characteristics,
            ndk: Mutex::new(None),
            object,
            setting_options: Mutex::new(false),
            work: AtomicU32::new(0),
        })
    }))
}

impl Driver {
    /// Calls the driver's SetOptions, if it has one.
    fn set_options(&self) -> NDIS_STATUS {
        let Some(set_options) = self.characteristics.SetOptionsHandler else { return NDIS_STATUS_SUCCESS };
        *self.setting_options.lock() = true;
        let status = call("MiniportSetOptions", || {
            // SAFETY: the driver registered the function under this contract; PASSIVE_LEVEL.
            unsafe { set_options(self.handle as *mut _, self.context as *mut _) }
        });
        *self.setting_options.lock() = false;
        status
    }
}

/// NDIS's DriverUnload: calls the miniport's unload handler.
extern "efiapi" fn unload(object: Guest<DRIVER_OBJECT>) {
    on_host_stack(|| unload_driver(object));
}

fn unload_driver(object: Guest<DRIVER_OBJECT>) {
    let Some(driver) = driver::of_object(current().host(), object) else { return };
    let Some(handler) = driver.characteristics.UnloadHandler else { return };
    call("MiniportDriverUnload", || {
        // SAFETY: the driver registered the function under this contract; PASSIVE_LEVEL.
        unsafe { handler(driver.object.as_ptr()) }
    });
    if driver::of_object(current().host(), object).is_some() {
        broken(rules::DEREGISTERED, "MiniportDriverUnload returned without NdisMDeregisterMiniportDriver");
    }
    // A work item keeps the driver loaded until its routine has returned.
    wait_until(|| driver.work.load(SeqCst) == 0);
}

imports! { IMPORTS: "ndis.sys" =>
    /// Registers the driver's handlers and calls its SetOptions.
    [== PASSIVE_LEVEL]
    fn NdisMRegisterMiniportDriver(
        object: Guest<DRIVER_OBJECT>,
        _registry_path: Guest<UNICODE_STRING>,
        context: usize,
        characteristics: Guest<NDIS_MINIPORT_DRIVER_CHARACTERISTICS>,
        handle: Guest<usize>,
    ) -> NDIS_STATUS {
        let host = current().host().clone();
        if let Some(first) = driver::of_object(&host, object) {
            first.undocumented(&host, Tolerance::RegisteredTwice, "NdisMRegisterMiniportDriver was called twice");
        }
        let driver = match register(object, context, characteristics) {
            Ok(driver) => driver,
            Err(status) => return status,
        };
        handle.write(driver.handle);
        host.state(&DRIVERS).lock().push(driver.clone());
        host.objects.add("NdisMRegisterMiniportDriver", driver.handle);
        object.field::<usize>(DRIVER_UNLOAD).write(unload as *const () as usize);
        let status = driver.set_options();
        if status != NDIS_STATUS_SUCCESS {
            let _ = host.state(&HANDLES).remove::<Driver>(driver.handle);
            let _ = host.objects.remove("NdisMRegisterMiniportDriver", driver.handle);
            host.state(&DRIVERS).lock().retain(|other| !Arc::ptr_eq(other, &driver));
        }
        status
    }

    /// Ends the registration.
    [== PASSIVE_LEVEL]
    fn NdisMDeregisterMiniportDriver(handle: usize) {
        let driver = handle::take::<Driver>("miniport driver handle", handle);
        let host = current().host().clone();
        let mut left = adapters(&host).into_iter();
        require(!left.any(|adapter| Arc::ptr_eq(&adapter.driver, &driver)), rules::DEREGISTERED, || {
            "NdisMDeregisterMiniportDriver was called before all adapters were halted".into()
        });
        let _ = host.objects.remove("NdisMRegisterMiniportDriver", driver.handle);
        host.state(&DRIVERS).lock().retain(|other| !Arc::ptr_eq(other, &driver));
    }

    /// Registers optional handlers; for a driver handle only inside SetOptions.
    [== PASSIVE_LEVEL]
    fn NdisSetOptionalHandlers(handle: usize, handlers: Guest<NDIS_DRIVER_OPTIONAL_HANDLERS>) -> NDIS_STATUS {
        let driver = handle::object::<Driver>("miniport driver handle", handle);
        require(*driver.setting_options.lock(), rules::OPTIONAL_HANDLERS, || "NdisSetOptionalHandlers was called outside of MiniportSetOptions".into());
        let header = handlers.read().Header;
        match header.Type {
            NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS => set_ndk_handlers(&driver, header, handlers.cast()),
            NDIS_OBJECT_TYPE_MINIPORT_PNP_CHARACTERISTICS => NDIS_STATUS_SUCCESS,
            _ => NDIS_STATUS_NOT_SUPPORTED,
        }
    }
}

//= R-OPEN-1
//= R-OPEN-2
fn set_ndk_handlers(
    driver: &Driver,
    header: NDIS_OBJECT_HEADER,
    handlers: Guest<NDIS_NDK_PROVIDER_CHARACTERISTICS>,
) -> NDIS_STATUS {
    let kind = NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS;
    let revision = NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1;
    let size = NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1;
    require(has_header(header, kind, revision, size), rules::HEADER, || {
        format!("the NDK provider characteristics have revision {} and size {}", header.Revision, header.Size)
    });
    let handlers = handlers.read();
    require(handlers.Flags == 0, rules::NDK_HANDLERS, || {
        format!("Flags of the NDK provider characteristics is {:#x}, but must be 0", handlers.Flags)
    });
    require(
        handlers.OpenNDKAdapterHandler.is_some() && handlers.CloseNDKAdapterHandler.is_some(),
        rules::NDK_HANDLERS,
        || "the NDK provider characteristics lack OpenNDKAdapterHandler or CloseNDKAdapterHandler".into(),
    );
    *driver.ndk.lock() = Some(handlers);
    NDIS_STATUS_SUCCESS
}
