// SPDX-License-Identifier: MIT OR Apache-2.0

//! The imports of `netio.sys` that convert identifiers of interfaces.

use ndk_abi::{
    netio::{NDIS_IF_MAX_STRING_SIZE, NET_LUID},
    nt::{GUID, STATUS_INVALID_PARAMETER, STATUS_NO_MEMORY, STATUS_SUCCESS},
};
use nt_sim::{current, guest::Guest, imports};

use super::interfaces::named;
use crate::adapter::adapters;

imports! { IMPORTS: "netio.sys" =>
    /// Returns the LUID of an interface; 0 when there is no such interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceIndexToLuid(index: u32, luid: Guest<NET_LUID>) -> i32 {
        if luid.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let found = named(current().host(), 0, index);
        luid.write(NET_LUID { Value: found.as_ref().map_or(0, |adapter| adapter.interface.luid) });
        if found.is_ok() { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    }

    /// Returns the index of an interface; 0 when there is no such interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceLuidToIndex(luid: Guest<NET_LUID>, index: Guest<u32>) -> i32 {
        if luid.is_null() || index.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let found = named(current().host(), luid.read().Value, 0);
        index.write(found.as_ref().map_or(0, |adapter| adapter.if_index));
        if found.is_ok() { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    }

    /// Returns the GUID of an interface.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceLuidToGuid(luid: Guest<NET_LUID>, guid: Guest<GUID>) -> i32 {
        if luid.is_null() || guid.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let Ok(adapter) = named(current().host(), luid.read().Value, 0) else { return STATUS_INVALID_PARAMETER };
        guid.write(adapter.interface.guid);
        STATUS_SUCCESS
    }

    /// Returns the LUID of the interface with a GUID.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceGuidToLuid(guid: Guest<GUID>, luid: Guest<NET_LUID>) -> i32 {
        if luid.is_null() || guid.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let guid = guid.read();
        let found = adapters(current().host()).into_iter().find(|adapter| adapter.interface.guid == guid);
        luid.write(NET_LUID { Value: found.as_ref().map_or(0, |adapter| adapter.interface.luid) });
        if found.is_some() { STATUS_SUCCESS } else { STATUS_INVALID_PARAMETER }
    }

    /// Returns the name of an interface, terminated by zero, in a buffer of `length` characters.
    [== PASSIVE_LEVEL]
    fn ConvertInterfaceLuidToAlias(luid: Guest<NET_LUID>, alias: Guest<u16>, length: usize) -> i32 {
        if luid.is_null() || alias.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let Ok(adapter) = named(current().host(), luid.read().Value, 0) else { return STATUS_INVALID_PARAMETER };
        let longest = NDIS_IF_MAX_STRING_SIZE as usize;
        let name: Vec<u16> = adapter.interface.alias.encode_utf16().take(longest).chain([0]).collect();
        if name.len() > length {
            return STATUS_NO_MEMORY;
        }
        for (index, character) in name.into_iter().enumerate() {
            alias.add(index).write(character);
        }
        STATUS_SUCCESS
    }
}
