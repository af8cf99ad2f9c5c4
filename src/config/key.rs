// SPDX-License-Identifier: MIT OR Apache-2.0

//! The registry key of an adapter. `PASSIVE_LEVEL`.
#![allow(unsafe_code, reason = "reads the registry through NDIS")]

use core::ffi::c_void;
use core::ptr::null_mut;
use core::slice;

use ndk_abi::ndis::{
    NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_OBJECT_REVISION_1, NDIS_CONFIGURATION_PARAMETER,
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, NDIS_PARAMETER_TYPE,
    NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1, NDIS_STATUS, NDIS_STATUS_SUCCESS, NdisCloseConfiguration,
    NdisOpenConfigurationEx, NdisReadConfiguration, NdisReadNetworkAddress,
};
use ndk_abi::nt::UNICODE_STRING;
use viordma_inf::keywords::{Keyword, MAX_NAME, NETWORK_ADDRESS_NUMBER};

use crate::events;

/// A value in the registry.
enum Value {
    Absent,
    /// It is there, but is no number.
    OtherType,
    Number(u32),
}

/// The adapter's open registry key.
pub struct Key {
    key: NDIS_HANDLE,
    adapter: NDIS_HANDLE,
}

impl Key {
    /// Opens the key of the adapter `handle`.
    pub fn open(handle: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
        let mut object = NDIS_CONFIGURATION_OBJECT {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
                Revision: NDIS_CONFIGURATION_OBJECT_REVISION_1,
                Size: NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1,
            },
            NdisHandle: handle,
            Flags: 0,
        };
        let mut key = null_mut();
        // SAFETY: the object is complete and both pointers are valid for the call; PASSIVE_LEVEL.
        let status = unsafe { NdisOpenConfigurationEx(&raw mut object, &raw mut key) };
        if status == NDIS_STATUS_SUCCESS { Ok(Self { key, adapter: handle }) } else { Err(status) }
    }

    /// Reads a keyword's value, or returns its default. Writes an event if there is a value that is not allowed.
    pub fn read(&self, keyword: &Keyword) -> u32 {
        match self.stored(keyword.name) {
            Value::Number(value) if keyword.allows(value) => return value,
            Value::Number(value) => self.refuse(keyword.number, value),
            Value::OtherType => self.refuse(keyword.number, u32::MAX),
            Value::Absent => {}
        }
        keyword.default
    }

    /// Reads an integer, if the key has it.
    pub fn value(&self, name: &str) -> Option<u32> {
        match self.stored(name) {
            Value::Number(value) => Some(value),
            Value::Absent | Value::OtherType => None,
        }
    }

    /// Reports that a value is not used.
    fn refuse(&self, number: u32, value: u32) {
        events::write(self.adapter, events::table::INVALID_KEYWORD, [number, value]);
    }

    fn stored(&self, name: &str) -> Value {
        let number = self.parameter(name, NDIS_PARAMETER_TYPE::NdisParameterInteger);
        let integer =
            [NDIS_PARAMETER_TYPE::NdisParameterInteger, NDIS_PARAMETER_TYPE::NdisParameterHexInteger];
        match number {
            Some(parameter) if integer.contains(&parameter.ParameterType) => {
                // SAFETY: the type says that the union holds an integer.
                Value::Number(unsafe { parameter.ParameterData.IntegerData })
            }
            Some(_) => Value::OtherType,
            // A text that is no number cannot be read as one.
            None if self.parameter(name, NDIS_PARAMETER_TYPE::NdisParameterString).is_some() => {
                Value::OtherType
            }
            None => Value::Absent,
        }
    }

    /// Reads a value as `kind`; `None` if there is none, or it cannot be converted.
    fn parameter(&self, name: &str, kind: NDIS_PARAMETER_TYPE) -> Option<&NDIS_CONFIGURATION_PARAMETER> {
        let mut units = [0_u16; MAX_NAME];
        let mut length = 0;
        for (unit, ascii) in units.iter_mut().zip(name.bytes()) {
            *unit = u16::from(ascii);
            length += 2;
        }
        let mut keyword =
            UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() };
        let mut status = NDIS_STATUS_SUCCESS;
        let mut parameter: *mut NDIS_CONFIGURATION_PARAMETER = null_mut();
        // SAFETY: the key is open, the string and both results live through the call.
        unsafe {
            NdisReadConfiguration(&raw mut status, &raw mut parameter, self.key, &raw mut keyword, kind);
        }
        if status != NDIS_STATUS_SUCCESS {
            return None;
        }
        // SAFETY: on success NDIS's result is valid until the key is closed.
        unsafe { parameter.as_ref() }
    }

    /// Reads the configured station address, if it is a valid one: locally administered, and no group's. Writes an event if it is not.
    pub fn network_address(&self) -> Option<[u8; 6]> {
        let mut status = NDIS_STATUS_SUCCESS;
        let mut address: *mut c_void = null_mut();
        let mut length = 0;
        // SAFETY: the key is open; the three results live through the call.
        unsafe { NdisReadNetworkAddress(&raw mut status, &raw mut address, &raw mut length, self.key) };
        if status != NDIS_STATUS_SUCCESS || address.is_null() {
            return None;
        }
        // SAFETY: on success NDIS's buffer has `length` bytes and is valid until the key is closed.
        let bytes = unsafe { slice::from_raw_parts(address.cast::<u8>(), length as usize) };
        let address = <[u8; 6]>::try_from(bytes).ok().filter(|&[first, ..]| first & 3 == 2);
        if address.is_none() {
            self.refuse(NETWORK_ADDRESS_NUMBER, bytes.first().copied().map_or(0, u32::from));
        }
        address
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, closed once, not used afterwards.
        unsafe { NdisCloseConfiguration(self.key) };
    }
}
