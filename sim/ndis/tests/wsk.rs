// SPDX-License-Identifier: MIT OR Apache-2.0

//! Winsock Kernel answers clients as documented, and reports those that violate its rules.

use std::{ffi::c_void, net::IpAddr, sync::Arc, time::Duration};

use crate::common::{image, scripted};
use device_sim::NicOptions;
use ndis_sim::wsk::registration::{
    WskCaptureProviderNPI, WskDeregister, WskQueryProviderCharacteristics, WskRegister, WskReleaseProviderNPI,
};
use ndis_sim::{IpHost as _, Miniport, NdisHost as _};
use ndk_abi::{
    ndis::{NDIS_STATUS_ADAPTER_NOT_READY, NDIS_STATUS_BAD_VERSION},
    ndk::{NDK_ADAPTER, NDK_VERSION, OID_NDK_SET_STATE},
    nt::{
        NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_DEVICE_NOT_READY, STATUS_INVALID_PARAMETER,
        STATUS_NOINTERFACE, STATUS_NOT_FOUND, STATUS_NOT_SUPPORTED, STATUS_SUCCESS,
    },
    wsk::{
        WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_INFINITE_WAIT, WSK_NO_WAIT, WSK_PROVIDER_CHARACTERISTICS,
        WSK_PROVIDER_DISPATCH, WSK_PROVIDER_NDK_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION,
        WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH,
    },
};
use nt_sim::{ClockKind, Host, Irql, Sim, current, guest::Guest, host::HostOptions};

/// A client's memory. A driver has it in its data section: the provider's table follows the registration.
#[repr(C)]
struct Client {
    dispatch: WSK_CLIENT_DISPATCH,
    npi: WSK_CLIENT_NPI,
    registration: WSK_REGISTRATION,
    provider: WSK_PROVIDER_NPI,
}

const UNWRITTEN: usize = 0x5555_5555_5555_5555;

#[allow(clippy::unnecessary_box_returns, reason = "a registration does not move")]
impl Client {
    fn new(version: u16) -> Box<Self> {
        let pattern = std::ptr::without_provenance_mut(UNWRITTEN);
        let mut client = Box::new(Self {
            dispatch: WSK_CLIENT_DISPATCH { Version: version, ..WSK_CLIENT_DISPATCH::zeroed() },
            npi: WSK_CLIENT_NPI::zeroed(),
            registration: WSK_REGISTRATION::zeroed(),
            provider: WSK_PROVIDER_NPI { Client: pattern, Dispatch: pattern.cast() },
        });
        client.npi.Dispatch = &raw const client.dispatch;
        client
    }

    /// Registers a client of version 1.0.
    fn registered() -> Box<Self> {
        let mut client = Self::new(0x0100);
        assert_eq!(client.register(), STATUS_SUCCESS);
        client
    }

    /// Registers a client and captures the provider.
    fn captured() -> Box<Self> {
        let mut client = Self::registered();
        assert_eq!(client.capture(WSK_NO_WAIT), STATUS_SUCCESS);
        client
    }

    fn register(&mut self) -> NTSTATUS {
        WskRegister(Guest::new(&raw mut self.npi), self.registration())
    }

    fn capture(&mut self, timeout: u32) -> NTSTATUS {
        WskCaptureProviderNPI(self.registration(), timeout, Guest::new(&raw mut self.provider))
    }

    fn release(&mut self) {
        WskReleaseProviderNPI(self.registration());
    }

    fn deregister(&mut self) {
        WskDeregister(self.registration());
    }

    fn registration(&mut self) -> Guest<WSK_REGISTRATION> {
        Guest::new(&raw mut self.registration)
    }

    fn dispatch(&self) -> WSK_PROVIDER_DISPATCH {
        Guest::new(self.provider.Dispatch.cast_mut()).read()
    }

    /// `WskControlClient` without input and IRP.
    fn control(&self, code: u32, size: usize, output: *mut c_void, returned: *mut usize) -> NTSTATUS {
        let control = self.dispatch().WskControlClient.expect("all entries are set");
        let null = std::ptr::null_mut();
        // SAFETY: the provider's function, called as declared; the pointers are null or the caller's variables.
        unsafe { control(self.provider.Client, code, 0, null, size, output, returned, null.cast()) }
    }

    /// Opens an NDK adapter.
    fn open(&self, version: (u16, u16), index: u32) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let open = self.ndk().WskOpenNdkAdapter.expect("all entries are set");
        let mut opened = std::ptr::without_provenance_mut(UNWRITTEN);
        let version = NDK_VERSION { Major: version.0, Minor: version.1 };
        // SAFETY: the provider's function, called as declared.
        match unsafe { open(self.provider.Client, version, index, &raw mut opened) } {
            STATUS_SUCCESS => Ok(opened),
            status => {
                assert!(opened.is_null());
                Err(status)
            }
        }
    }

    fn close(&self, opened: *mut NDK_ADAPTER) {
        let close = self.ndk().WskCloseNdkAdapter.expect("all entries are set");
        // SAFETY: the provider's function, called as declared.
        unsafe { close(self.provider.Client, opened) };
    }

    fn ndk(&self) -> WSK_PROVIDER_NDK_DISPATCH {
        let mut table = WSK_PROVIDER_NDK_DISPATCH::zeroed();
        let (size, output) = (size_of_val(&table), (&raw mut table).cast());
        let code = WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;
        assert_eq!(self.control(code, size, output, std::ptr::null_mut()), STATUS_SUCCESS);
        table
    }
}

/// Runs a client on a thread of a host; returns what the verifier says.
fn verdict(body: impl FnOnce() + Send + 'static) -> String {
    let mut sim: Sim = ndis_sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
    let host = sim.add_host(HostOptions::new("host"));
    let _ = host.spawn("client", body).join();
    sim.verdict().to_string()
}

#[track_caller]
fn assert_clean(body: impl FnOnce() + Send + 'static) {
    assert_eq!(verdict(body), "no violation");
}

#[track_caller]
fn assert_reported(body: impl FnOnce() + Send + 'static, expected: &str) {
    let verdict = verdict(body);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

#[test]
fn client_gets_the_ndk_functions_inline() {
    assert_clean(|| {
        let mut client = Client::registered();
        assert_eq!(client.provider.Client.addr(), UNWRITTEN, "a registration has 24 bytes");
        assert_eq!(client.capture(WSK_INFINITE_WAIT), STATUS_SUCCESS);
        assert_eq!(client.dispatch().Version, 0x0100);
        let mut table = WSK_PROVIDER_NDK_DISPATCH::zeroed();
        let (mut returned, output) = (0, (&raw mut table).cast());
        let code = WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;
        assert_eq!(client.control(code, 16, output, &raw mut returned), STATUS_SUCCESS);
        assert_eq!(returned, 16);
        assert!(table.WskOpenNdkAdapter.is_some() && table.WskCloseNdkAdapter.is_some());
        client.release();
        client.deregister();
    });
}

#[test]
fn control_codes_and_buffers_are_checked() {
    assert_clean(|| {
        let mut client = Client::captured();
        let mut table = [0_usize; 2];
        let (output, none) = ((&raw mut table).cast::<c_void>(), std::ptr::null_mut());
        let code = WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH;
        assert_eq!(client.control(code, 15, output, none), STATUS_BUFFER_TOO_SMALL);
        assert_eq!(client.control(code, 16, std::ptr::null_mut(), none), STATUS_INVALID_PARAMETER);
        // WSK_TRANSPORT_LIST_QUERY, and a code that does not exist.
        assert_eq!(client.control(2, 16, output, none), STATUS_NOT_SUPPORTED);
        assert_eq!(client.control(0x1234, 16, output, none), STATUS_INVALID_PARAMETER);
        assert_eq!(table, [0; 2], "nothing was written");
        client.release();
        client.deregister();
    });
}

#[test]
fn client_of_another_version_captures_nothing() {
    assert_clean(|| {
        for version in [0x0200, 0x0001, 0] {
            let mut client = Client::new(version);
            assert_eq!(client.register(), STATUS_SUCCESS);
            assert_eq!(client.capture(WSK_NO_WAIT), STATUS_NOINTERFACE);
            let mut offered = WSK_PROVIDER_CHARACTERISTICS::zeroed();
            let to = Guest::new(&raw mut offered);
            assert_eq!(WskQueryProviderCharacteristics(client.registration(), to), STATUS_SUCCESS);
            assert_eq!((offered.LowestVersion, offered.HighestVersion), (0x0100, 0x0100));
            client.deregister();
        }
    });
}

#[test]
fn interface_that_does_not_exist_cannot_be_opened() {
    assert_clean(|| {
        let mut client = Client::captured();
        assert_eq!(client.open((2, 0), 77), Err(STATUS_NOT_FOUND));
        client.release();
        client.deregister();
    });
}

#[test]
fn deregistration_waits_for_the_last_release_and_refuses_captures() {
    assert_clean(|| {
        let mut client = Client::captured();
        assert_eq!(client.capture(WSK_NO_WAIT), STATUS_SUCCESS, "it may be captured more than once");
        let host = current().host().clone();
        let registration = client.registration();
        let deregistration = host.spawn("deregistration", move || WskDeregister(registration));
        client.release();
        let event = host.event();
        assert!(!event.wait(std::time::Duration::from_millis(5)));
        assert!(!deregistration.is_finished());
        assert_eq!(client.capture(WSK_NO_WAIT), STATUS_DEVICE_NOT_READY);
        client.release();
        deregistration.join().expect("the host lives");
    });
}

#[test]
fn captures_that_were_not_released_are_reported() {
    assert_reported(
        || Client::captured().deregister(),
        "WskDeregister hangs: 1 captures of the provider were not released",
    );
}

#[test]
fn client_that_writes_to_the_providers_table_is_reported() {
    assert_reported(
        || {
            let mut client = Client::captured();
            Guest::new(client.provider.Dispatch.cast_mut()).cast::<usize>().add(2).write(0);
            client.release();
            client.deregister();
        },
        "a client has written to the provider's dispatch table, which is read-only",
    );
}

#[test]
fn calls_in_the_wrong_order_are_reported() {
    assert_reported(
        || {
            let mut client = Client::captured();
            client.release();
            client.release();
        },
        "WskReleaseProviderNPI without a WskCaptureProviderNPI that succeeded",
    );
    assert_reported(
        || {
            let mut client = Client::registered();
            client.deregister();
            client.deregister();
        },
        "is not a registration",
    );
    assert_reported(
        || {
            let mut client = Client::captured();
            let registration = client.registration().address();
            let again = move || WskDeregister(Guest::from_address(registration));
            drop(current().host().spawn("another thread", again));
            client.deregister();
        },
        "WskDeregister was called twice for a registration",
    );
    assert_reported(|| _ = Client::registered().register(), "WskRegister: the registration at");
    assert_reported(
        || {
            let mut client = Client::captured();
            client.release();
            let _ = client.control(2, 0, std::ptr::null_mut(), std::ptr::null_mut());
        },
        "is not a client that has captured the provider",
    );
    assert_reported(
        || {
            let mut client = Client::registered();
            client.registration.ReservedRegistrationState = 0;
            let _ = client.capture(WSK_NO_WAIT);
        },
        "was overwritten while registered",
    );
}

#[test]
fn closing_an_adapter_that_is_not_open_is_reported() {
    assert_reported(
        || {
            let client = Client::captured();
            client.close(std::ptr::without_provenance_mut(0x1000));
        },
        "WskCloseNdkAdapter of 0x1000, which the client has not open",
    );
}

#[test]
fn levels_are_checked() {
    let at_dispatch = |body: fn(&mut Client)| {
        move || {
            let mut client = Client::captured();
            let me = current();
            let old = me.raise(Irql::DISPATCH_LEVEL);
            body(&mut client);
            me.lower(old);
            client.release();
            client.deregister();
        }
    };
    assert_clean(at_dispatch(|client| {
        assert_eq!(client.capture(WSK_NO_WAIT), STATUS_SUCCESS);
        client.release();
    }));
    assert_reported(
        at_dispatch(|client| _ = client.capture(1)),
        "WskCaptureProviderNPI with a timeout was called at DISPATCH_LEVEL",
    );
    assert_reported(
        at_dispatch(|client| {
            let table = client.ndk();
            let version = NDK_VERSION { Major: 2, Minor: 0 };
            let open = table.WskOpenNdkAdapter.expect("all entries are set");
            // SAFETY: the provider's function, called as declared; it reports the level.
            unsafe { open(client.provider.Client, version, 1, std::ptr::null_mut()) };
        }),
        "WskOpenNdkAdapter was called at DISPATCH_LEVEL",
    );
}

/// Runs a client on a thread of `host`.
#[track_caller]
fn run<T: Send + 'static>(sim: &Sim, host: &Arc<Host>, body: impl FnOnce() -> T + Send + 'static) -> T {
    host.spawn("client", body).join().unwrap_or_else(|lost| panic!("{lost}\n{}", sim.verdict()))
}

#[test]
fn interface_without_rdma_cannot_be_opened() {
    let mut sim = scripted::simulation();
    let host = scripted::host(&mut sim);
    assert_eq!(scripted::register(&host, scripted::Script::default(), |_| {}), Some(0));
    let miniport = Miniport::start(&host).expect("there is a NIC");
    let index = miniport.adapter().if_index;
    run(&sim, &host, move || {
        let mut client = Client::captured();
        assert_eq!(client.open((2, 0), index), Err(STATUS_NOT_SUPPORTED));
        client.release();
        client.deregister();
    });
    miniport.halt().expect("the host lives");
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

/// A host with two adapters of the driver's image.
fn two(sim: &mut Sim) -> Option<(Arc<Host>, [Miniport; 2])> {
    let path = image::image()?;
    let host = sim.add_host(HostOptions::new("host"));
    for number in 1..=2 {
        let nic = host.plug(NicOptions::new([2, 0, 0, 0, 0, number]));
        host.add_address_on(&nic, IpAddr::from([10, 0, 0, number]), 24);
    }
    image::load(&host, &path);
    let miniports =
        [0, 1].map(|_| Miniport::start(&host).unwrap_or_else(|error| panic!("{error}: {}", sim.verdict())));
    Some((host, miniports))
}

//= R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-12
#[test]
fn adapters_are_opened_by_index_and_version() {
    let mut sim = image::simulation(1);
    let Some((host, miniports)) = two(&mut sim) else { return };
    let [first, second] = miniports.clone();
    run(&sim, &host, move || {
        let mut client = Client::captured();
        for version in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)] {
            let opened = client.open(version, 5).expect("the version is supported");
            let header = Guest::new(opened).read().Header;
            assert_eq!(
                (header.Version.Major, header.Version.Minor),
                (version.0, [2, 1][usize::from(version.0) - 1])
            );
            assert_eq!((first.ndk().open_adapters(), second.ndk().open_adapters()), (0, 1));
            client.close(opened);
        }
        for version in [(0, 0), (1, 3), (2, 2), (3, 0)] {
            assert_eq!(client.open(version, 4), Err(NDIS_STATUS_BAD_VERSION), "{version:?}");
        }
        let both = [4, 5].map(|index| client.open((2, 0), index).expect("RDMA is on"));
        assert_eq!((first.ndk().open_adapters(), second.ndk().open_adapters()), (1, 1));
        for opened in both {
            client.close(opened);
        }
        client.release();
        client.deregister();
    });
    for miniport in miniports {
        miniport.halt().expect("the host lives");
    }
    image::unload(&host);
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

//= R-PNP-3, R-PNP-9
#[test]
fn disabled_adapter_is_closed_by_its_client_and_refuses_to_be_opened() {
    let mut sim = image::simulation(2);
    let Some((host, [first, second])) = two(&mut sim) else { return };
    let disabled = second.clone();
    run(&sim, &host, move || {
        let mut client = Client::captured();
        let opened = client.open((2, 0), 5).expect("RDMA is on");
        disabled.set(OID_NDK_SET_STATE, &[0]).expect("RDMA can be switched off");
        assert!(disabled.ndk().await_events(1, Duration::from_secs(1)));
        assert_eq!(client.open((2, 0), 5), Err(NDIS_STATUS_ADAPTER_NOT_READY));
        let other = client.open((2, 0), 4).expect("RDMA of the other adapter is on");
        client.close(other);
        client.close(opened);
        client.release();
        client.deregister();
    });
    second.surprise_remove().expect("the host lives");
    run(&sim, &host, || {
        let mut client = Client::captured();
        assert_eq!(client.open((2, 0), 5), Err(STATUS_NOT_FOUND), "the interface is gone");
        client.release();
        client.deregister();
    });
    first.halt().expect("the host lives");
    image::unload(&host);
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn provider_released_with_an_adapter_open_is_reported() {
    let mut sim = image::simulation(3);
    let Some((host, _miniports)) = two(&mut sim) else { return };
    let body = || {
        let mut client = Client::captured();
        client.open((2, 0), 4).expect("RDMA is on");
        client.release();
    };
    let _ = host.spawn("client", body).join();
    let verdict = sim.verdict().to_string();
    assert!(
        verdict.contains("WskReleaseProviderNPI with 1 NDK adapters open; close them first"),
        "{verdict}"
    );
}

#[test]
fn adapter_of_another_client_cannot_be_closed() {
    let mut sim = image::simulation(4);
    let Some((host, _miniports)) = two(&mut sim) else { return };
    let body = || {
        let [owner, other] = [Client::captured(), Client::captured()];
        let opened = owner.open((2, 0), 4).expect("RDMA is on");
        other.close(opened);
    };
    let _ = host.spawn("client", body).join();
    let verdict = sim.verdict().to_string();
    assert!(verdict.contains("which the client has not open"), "{verdict}");
}
