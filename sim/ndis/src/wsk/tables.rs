// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dispatch tables of the provider.

use ndk_abi::wsk::{WSK_PROVIDER_DISPATCH, WSK_PROVIDER_NDK_DISPATCH};
use nt_sim::{guest::Guest, image::EntryPoints, import::Import, services::Slot};

use crate::network_rules::{self, broken};

/// The tables of a host.
pub(super) static TABLES: Slot<Tables> = Slot::new();

/// The version of the provider: 1.0.
pub(super) const VERSION: u16 = 0x0100;

/// The functions of [`WSK_PROVIDER_DISPATCH`], in its order.
const PROVIDER: [&str; 6] = [
    "WskSocket",
    "WskSocketConnect",
    "WskControlClient",
    "WskGetAddressInfo",
    "WskFreeAddressInfo",
    "WskGetNameInfo",
];

/// The functions of [`WSK_PROVIDER_NDK_DISPATCH`], in its order.
const NDK: [&str; 2] = ["WskOpenNdkAdapter", "WskCloseNdkAdapter"];

/// A version in the low bits, and functions.
type ProviderTable = [usize; 1 + PROVIDER.len()];
const _: () = assert!(size_of::<ProviderTable>() == size_of::<WSK_PROVIDER_DISPATCH>());
const _: () = assert!(size_of::<[usize; NDK.len()]>() == size_of::<WSK_PROVIDER_NDK_DISPATCH>());

/// The provider's functions, and the table that every client gets.
pub(super) struct Tables {
    provider: Box<ProviderTable>,
    contents: ProviderTable,
    ndk: [usize; NDK.len()],
    /// The code behind the tables.
    _functions: [EntryPoints; 2],
}

impl Tables {
    /// # Panics
    /// When the machine has no memory.
    pub fn new(provider: &'static [Import], ndk: &'static [Import]) -> Self {
        let functions =
            [provider, ndk].map(|functions| EntryPoints::new(functions).expect("memory for code"));
        let mut table: ProviderTable = [VERSION.into(); _];
        for (entry, name) in table[1..].iter_mut().zip(PROVIDER) {
            *entry = functions[0].address(name);
        }
        let ndk = NDK.map(|name| functions[1].address(name));
        Self { provider: Box::new(table), contents: table, ndk, _functions: functions }
    }

    /// Returns the table for clients.
    pub fn provider(&self) -> Guest<WSK_PROVIDER_DISPATCH> {
        Guest::from_address(std::ptr::from_ref(&*self.provider).expose_provenance())
    }

    /// Copies the NDK functions to a client's table.
    pub fn copy_ndk(&self, to: Guest<WSK_PROVIDER_NDK_DISPATCH>) {
        to.cast::<[usize; NDK.len()]>().write(self.ndk);
    }

    /// Checks that no client has written to the table.
    pub fn check(&self) {
        if self.provider().cast::<ProviderTable>().read() != self.contents {
            broken(
                network_rules::PROVIDER_TABLE,
                "a client has written to the provider's dispatch table, which is read-only",
            );
        }
    }
}
