// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration: the keywords of an adapter's registry key, and the driver's key.

use std::{collections::BTreeSet, sync::Arc};

use ndk_abi::{
    ndis::{
        BINARY_DATA, NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER,
        NDIS_CONFIGURATION_PARAMETER_ParameterData, NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
        NDIS_PARAMETER_TYPE, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS,
    },
    nt::UNICODE_STRING,
};
use nt_sim::{Host, current, guest::Guest, imports, services::Slot};
use parking_lot::Mutex;

use crate::{
    adapter::Adapter,
    driver::Driver,
    handle::{self, HANDLES},
    interface::{Interface, interfaces},
    keyword::{Keyword, Keywords},
    owner,
    rules::{self, POISON, require},
};

/// The keywords of a host that hold for every adapter whose own registry key lacks them.
pub(crate) static KEYWORDS: Slot<Mutex<Keywords>> = Slot::new();

/// The names in lower case of the keywords that drivers have read of their adapters, whether they have values or not.
pub(crate) static READ: Slot<Mutex<BTreeSet<String>>> = Slot::new();

/// Returns whether a driver has read a keyword of an adapter.
pub(crate) fn is_read(host: &Host, name: &str) -> bool {
    host.state(&READ).lock().contains(&name.to_lowercase())
}

/// Sets a keyword of every adapter.
pub(crate) fn set_keyword(host: &Host, name: &str, value: impl Into<Keyword>) {
    for interface in interfaces(host) {
        interface.remove_keyword(name);
    }
    host.state(&KEYWORDS).lock().insert(name.to_lowercase(), value.into());
}

/// Returns the value of a keyword of an adapter.
pub(crate) fn keyword(host: &Host, interface: &Interface, name: &str) -> Option<Keyword> {
    let own = interface.keyword(name);
    own.or_else(|| host.state(&KEYWORDS).lock().get(&name.to_lowercase()).cloned())
}

/// A registry key that a configuration reads.
#[derive(Clone)]
enum Key {
    /// The adapter's, whose values are its keywords.
    Adapter(Arc<Interface>),
    /// The driver's, or its subkey "Parameters": without values.
    Driver,
    DriverParameters,
}

impl Key {
    fn value(&self, host: &Host, name: &str) -> Option<Keyword> {
        match self {
            Self::Adapter(interface) => {
                host.state(&READ).lock().insert(name.to_lowercase());
                keyword(host, interface, name)
            }
            Self::Driver | Self::DriverParameters => None,
        }
    }

    /// Returns a subkey; `None` when there is none of this name.
    fn subkey(&self, name: &str) -> Option<Self> {
        match self {
            Self::Driver if name.eq_ignore_ascii_case("Parameters") => Some(Self::DriverParameters),
            _ => None,
        }
    }
}

/// An open configuration. Values read from it are valid until it is closed.
struct Configuration {
    key: Key,
    /// The handle of the adapter or driver that has opened it.
    owner: usize,
    values: Mutex<Vec<Value>>,
    mac: Mutex<Option<Box<[u8; 6]>>>,
}

struct Value {
    parameter: Box<NDIS_CONFIGURATION_PARAMETER>,
    _text: Option<Box<[u16]>>,
    _bytes: Option<Box<[u8]>>,
}

// SAFETY: a structure with a pointer into its own box.
unsafe impl Send for Value {}

const OPEN: &str = "NdisOpenConfigurationEx";

fn text_of(string: Guest<UNICODE_STRING>) -> String {
    let string = string.read();
    let units = (0..usize::from(string.Length / 2)).map(|index| Guest::new(string.Buffer).add(index).read());
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Opens a key for the adapter or driver with the handle `owner`; returns the handle of the configuration.
fn open(owner: usize, key: Key) -> usize {
    let host = current().host().clone();
    let configuration = Configuration { key, owner, values: Mutex::default(), mac: Mutex::default() };
    let opened = host.state(&HANDLES).insert(Arc::new(configuration));
    owner::hold(&host, owner, OPEN, opened);
    opened
}

/// Converts a value as NDIS does: integers from text, in the requested base.
fn convert(value: &Keyword, requested: NDIS_PARAMETER_TYPE) -> Option<Value> {
    let number = match (value, requested) {
        (
            Keyword::Number(number),
            NDIS_PARAMETER_TYPE::NdisParameterInteger | NDIS_PARAMETER_TYPE::NdisParameterHexInteger,
        ) => Some(*number),
        (Keyword::Text(text), NDIS_PARAMETER_TYPE::NdisParameterInteger) => Some(text.trim().parse().ok()?),
        (Keyword::Text(text), NDIS_PARAMETER_TYPE::NdisParameterHexInteger) => {
            Some(u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?)
        }
        _ => None,
    };
    if let Some(number) = number {
        let data = NDIS_CONFIGURATION_PARAMETER_ParameterData { IntegerData: number };
        let parameter = NDIS_CONFIGURATION_PARAMETER { ParameterType: requested, ParameterData: data };
        return Some(Value { parameter: Box::new(parameter), _text: None, _bytes: None });
    }
    if requested == NDIS_PARAMETER_TYPE::NdisParameterBinary {
        let Keyword::Binary(bytes) = value else { return None };
        let mut bytes: Box<[u8]> = bytes.clone().into();
        let length = u16::try_from(bytes.len()).ok()?;
        let data = BINARY_DATA { Length: length, Buffer: bytes.as_mut_ptr().cast() };
        let data = NDIS_CONFIGURATION_PARAMETER_ParameterData { BinaryData: data };
        let parameter = NDIS_CONFIGURATION_PARAMETER { ParameterType: requested, ParameterData: data };
        return Some(Value { parameter: Box::new(parameter), _text: None, _bytes: Some(bytes) });
    }
    if requested != NDIS_PARAMETER_TYPE::NdisParameterString {
        return None;
    }
    let text = match value {
        Keyword::Text(text) => text.clone(),
        Keyword::Number(number) => number.to_string(),
        Keyword::Binary(_) => return None,
    };
    let mut units: Box<[u16]> = text.encode_utf16().chain([0]).collect();
    let length = (units.len() as u16 - 1) * 2;
    let string = UNICODE_STRING { Length: length, MaximumLength: length + 2, Buffer: units.as_mut_ptr() };
    let data = NDIS_CONFIGURATION_PARAMETER_ParameterData { StringData: string };
    let parameter = NDIS_CONFIGURATION_PARAMETER { ParameterType: requested, ParameterData: data };
    Some(Value { parameter: Box::new(parameter), _text: Some(units), _bytes: None })
}

fn write(interface: &Interface, name: &str, from: &NDIS_CONFIGURATION_PARAMETER) -> NDIS_STATUS {
    let value = match from.ParameterType {
        NDIS_PARAMETER_TYPE::NdisParameterInteger | NDIS_PARAMETER_TYPE::NdisParameterHexInteger => {
            // SAFETY: the type says which member is in use; any bits are an integer.
            Keyword::Number(unsafe { from.ParameterData.IntegerData })
        }
        NDIS_PARAMETER_TYPE::NdisParameterString => {
            // SAFETY: the type says which member is in use.
            let mut string = unsafe { from.ParameterData.StringData };
            Keyword::Text(text_of(Guest::new(&raw mut string)))
        }
        NDIS_PARAMETER_TYPE::NdisParameterBinary => {
            // SAFETY: the type says which member is in use.
            let data = unsafe { from.ParameterData.BinaryData };
            let mut bytes = vec![0; data.Length.into()];
            Guest::<u8>::new(data.Buffer.cast()).read_bytes(&mut bytes);
            Keyword::Binary(bytes)
        }
        _ => return NDIS_STATUS_FAILURE,
    };
    interface.set_keyword(name, value);
    NDIS_STATUS_SUCCESS
}

imports! { IMPORTS: "ndis.sys" =>
    /// Opens the adapter's registry key.
    [== PASSIVE_LEVEL]
    fn NdisOpenConfigurationEx(object: Guest<NDIS_CONFIGURATION_OBJECT>, handle: Guest<usize>) -> NDIS_STATUS {
        let object = object.read();
        require(object.Header.Type == NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, rules::HEADER, || {
            format!("NdisOpenConfigurationEx with an object of type {:#x}", object.Header.Type)
        });
        let owner = object.NdisHandle.addr();
        let key = if current().host().state(&HANDLES).get::<Driver>(owner).is_some() {
            Key::Driver
        } else {
            let adapter = handle::object::<Adapter>("handle of a miniport adapter or driver", owner);
            Key::Adapter(adapter.interface.clone())
        };
        handle.write(open(owner, key));
        NDIS_STATUS_SUCCESS
    }

    /// Opens a subkey of an open registry key. Fails when there is none of this name.
    [<= APC_LEVEL]
    fn NdisOpenConfigurationKeyByName(
        status: Guest<NDIS_STATUS>,
        handle: usize,
        name: Guest<UNICODE_STRING>,
        subkey: Guest<usize>,
    ) {
        let configuration = handle::object::<Configuration>("configuration handle", handle);
        let Some(key) = configuration.key.subkey(&text_of(name)) else {
            subkey.write(POISON);
            status.write(NDIS_STATUS_FAILURE);
            return;
        };
        subkey.write(open(configuration.owner, key));
        status.write(NDIS_STATUS_SUCCESS);
    }

    /// Reads a keyword. The value is valid until the configuration is closed.
    [== PASSIVE_LEVEL]
    fn NdisReadConfiguration(
        status: Guest<NDIS_STATUS>,
        value: Guest<*mut NDIS_CONFIGURATION_PARAMETER>,
        handle: usize,
        keyword: Guest<UNICODE_STRING>,
        kind: NDIS_PARAMETER_TYPE,
    ) {
        let configuration = handle::object::<Configuration>("configuration handle", handle);
        let stored = configuration.key.value(current().host(), &text_of(keyword));
        let Some(mut found) = stored.and_then(|stored| convert(&stored, kind)) else {
            status.write(NDIS_STATUS_FAILURE);
            return;
        };
        value.write(&raw mut *found.parameter);
        configuration.values.lock().push(found);
        status.write(NDIS_STATUS_SUCCESS);
    }

    /// Writes a keyword.
    [== PASSIVE_LEVEL]
    fn NdisWriteConfiguration(
        status: Guest<NDIS_STATUS>,
        handle: usize,
        keyword: Guest<UNICODE_STRING>,
        value: Guest<NDIS_CONFIGURATION_PARAMETER>,
    ) {
        let configuration = handle::object::<Configuration>("configuration handle", handle);
        status.write(match &configuration.key {
            Key::Adapter(interface) => write(interface, &text_of(keyword), &value.read()),
            Key::Driver | Key::DriverParameters => NDIS_STATUS_FAILURE,
        });
    }

    /// Reads the keyword `NetworkAddress`, which replaces the permanent MAC address.
    [== PASSIVE_LEVEL]
    fn NdisReadNetworkAddress(
        status: Guest<NDIS_STATUS>,
        address: Guest<*mut u8>,
        length: Guest<u32>,
        handle: usize,
    ) {
        let configuration = handle::object::<Configuration>("configuration handle", handle);
        // Until the call succeeds.
        address.write(std::ptr::without_provenance_mut(POISON));
        length.write(6);
        let Some(Keyword::Text(text)) = configuration.key.value(current().host(), "NetworkAddress") else {
            status.write(NDIS_STATUS_FAILURE);
            return;
        };
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let Some(number) = u64::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 12) else {
            status.write(NDIS_STATUS_FAILURE);
            return;
        };
        let mut mac = Box::new([0; 6]);
        mac.copy_from_slice(&number.to_be_bytes()[2..]);
        address.write(mac.as_mut_ptr());
        length.write(6);
        *configuration.mac.lock() = Some(mac);
        status.write(NDIS_STATUS_SUCCESS);
    }

    /// Closes the configuration and invalidates the values read from it.
    [== PASSIVE_LEVEL]
    fn NdisCloseConfiguration(handle: usize) {
        let configuration = handle::take::<Configuration>("configuration handle", handle);
        let _ = owner::release(current().host(), OPEN, handle);
        for value in configuration.values.lock().iter_mut() {
            // A driver that still reads a value gets invalid data.
            value.parameter.ParameterData =
                NDIS_CONFIGURATION_PARAMETER_ParameterData { BinaryData: BINARY_DATA { Length: 0xdddd, Buffer: std::ptr::without_provenance_mut(0xdddd_dddd) } };
        }
    }
}
