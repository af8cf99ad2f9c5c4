// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registering, and capturing the provider: the imports of `netio.sys`.

use ndk_abi::{
    nt::{STATUS_DEVICE_NOT_READY, STATUS_NOINTERFACE, STATUS_SUCCESS},
    wsk::{WSK_CLIENT_NPI, WSK_NO_WAIT, WSK_PROVIDER_CHARACTERISTICS, WSK_PROVIDER_NPI, WSK_REGISTRATION},
};
use nt_sim::{BugCheck, Irql, current, guest::Guest, imports, nt::time::sleep, violation};

use super::{
    client::{CLIENTS, CaptureError},
    tables::{TABLES, VERSION},
};
use crate::network_rules::{self, broken};

/// Nanoseconds between two checks of a deregistration that waits.
const POLL_INTERVAL: u64 = 1_000_000;
/// Nanoseconds after which a deregistration that waits is reported: it would hang.
const MAX_WAIT: u64 = 30_000_000_000;

imports! { IMPORTS: "netio.sys" =>
    /// Registers a client.
    [== PASSIVE_LEVEL]
    fn WskRegister(client: Guest<WSK_CLIENT_NPI>, registration: Guest<WSK_REGISTRATION>) -> i32 {
        let dispatch = Guest::new(client.read().Dispatch.cast_mut());
        let version = dispatch.read().Version;
        let host = current().host().clone();
        host.state(&CLIENTS).register(&host, registration, version);
        STATUS_SUCCESS
    }

    /// Ends a registration; returns when the client has released what it captured.
    [== PASSIVE_LEVEL]
    fn WskDeregister(registration: Guest<WSK_REGISTRATION>) {
        let host = current().host().clone();
        let clients = host.state(&CLIENTS);
        clients.begin_deregister(registration);
        let limit = host.world().now() + MAX_WAIT;
        loop {
            let captures = clients.captures(registration);
            if captures == 0 {
                break;
            }
            if host.world().now() >= limit {
                broken(network_rules::CAPTURED, format!("WskDeregister hangs: {captures} captures of the provider were not released"));
            }
            sleep(POLL_INTERVAL);
        }
        host.state(&TABLES).check();
        clients.remove(&host, registration);
    }

    /// Captures the provider, which is always available.
    [<= DISPATCH_LEVEL]
    fn WskCaptureProviderNPI(
        registration: Guest<WSK_REGISTRATION>,
        timeout: u32,
        npi: Guest<WSK_PROVIDER_NPI>,
    ) -> i32 {
        let me = current();
        if timeout != WSK_NO_WAIT && me.irql() != Irql::PASSIVE_LEVEL {
            let text = format!("WskCaptureProviderNPI with a timeout was called at {}; allowed: PASSIVE_LEVEL", me.irql());
            violation(BugCheck::IRQL_NOT_LESS_OR_EQUAL, text);
        }
        let host = me.host().clone();
        match host.state(&CLIENTS).capture(&host, registration, (VERSION, VERSION)) {
            Ok(client) => {
                npi.write(WSK_PROVIDER_NPI {
                    Client: std::ptr::without_provenance_mut(client),
                    Dispatch: host.state(&TABLES).provider().as_ptr(),
                });
                STATUS_SUCCESS
            }
            Err(CaptureError::NotReady) => STATUS_DEVICE_NOT_READY,
            Err(CaptureError::Version) => STATUS_NOINTERFACE,
        }
    }

    /// Releases a capture of the provider, and with the last one the client's use of its functions.
    [<= DISPATCH_LEVEL]
    fn WskReleaseProviderNPI(registration: Guest<WSK_REGISTRATION>) {
        let host = current().host().clone();
        host.state(&CLIENTS).release(&host, registration);
    }

    /// Returns the versions of the provider.
    [<= DISPATCH_LEVEL]
    fn WskQueryProviderCharacteristics(
        _registration: Guest<WSK_REGISTRATION>,
        characteristics: Guest<WSK_PROVIDER_CHARACTERISTICS>,
    ) -> i32 {
        characteristics.write(WSK_PROVIDER_CHARACTERISTICS { HighestVersion: VERSION, LowestVersion: VERSION });
        STATUS_SUCCESS
    }
}
