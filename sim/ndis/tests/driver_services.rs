// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services of NDIS for miniport drivers: memory with tags, strings, processors, registry keys, ports.

use crate::common::scripted::{Script, header, in_initialize, kept, verdict};
use ndis_sim::{Keyword, NdisHost as _, bus, config, rss_processors, runtime};
use ndk_abi::{
    ndis::{
        BINARY_DATA, NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER,
        NDIS_CONFIGURATION_PARAMETER_ParameterData, NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
        NDIS_PARAMETER_TYPE, NDIS_RSS_PROCESSOR, NDIS_RSS_PROCESSOR_INFO, NDIS_STATUS_BUFFER_TOO_SHORT,
        NDIS_STATUS_FAILURE, NDIS_STATUS_RESOURCE_CONFLICT, NDIS_STATUS_SUCCESS,
    },
    nt::UNICODE_STRING,
};
use nt_sim::{current, guest::Guest};

const TAG: u32 = u32::from_le_bytes(*b"tset");

fn text(string: Guest<UNICODE_STRING>) -> String {
    let string = string.read();
    let units: Vec<_> = (0..usize::from(string.Length / 2))
        .map(|index| Guest::new(string.Buffer).add(index).read())
        .collect();
    String::from_utf16(&units).unwrap()
}

fn free_with(handle: usize, tag: u32) {
    let block = runtime::NdisAllocateMemoryWithTagPriority(handle, 100, TAG, 0);
    runtime::NdisFreeMemoryWithTagPriority(handle, block, tag);
}

#[test]
fn memory_is_freed_with_its_tag() {
    assert_eq!(verdict(in_initialize(|handle| free_with(handle, TAG))), "no violation");
    let verdict = verdict(in_initialize(|handle| free_with(handle, TAG + 1)));
    assert!(verdict.contains("freed with tag"), "{verdict}");
}

/// "NdisInitializeString allocates storage for a counted Unicode string" (windows-driver-docs-ddi:
/// ndis/nf-ndis-ndisinitializestring); the driver frees it.
#[test]
fn string_is_converted_to_a_counted_one() {
    let body = |_| {
        let string = kept(UNICODE_STRING::zeroed());
        runtime::NdisInitializeString(string, kept(*b"Parameters\0").cast());
        assert_eq!(text(string), "Parameters");
        assert_eq!((string.read().Length, string.read().MaximumLength), (20, 22));
        assert_eq!(Guest::new(string.read().Buffer).add(10).read(), 0, "terminated");
        runtime::NdisFreeMemory(Guest::new(string.read().Buffer).cast(), 0, 0);
        current().host().low_resources.fail_nth(0);
        runtime::NdisInitializeString(string, kept(*b"Parameters\0").cast());
        assert!(string.read().Buffer.is_null() && string.read().Length == 0);
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn processors_are_in_one_group() {
    let body = |_| {
        let counts = [0, 1, 0xffff].map(|group| runtime::NdisGroupActiveProcessorCount(group));
        assert_eq!(counts, [2, 0, 2]);
        assert_eq!(runtime::NdisGetSharedDataAlignment(), 64);
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

/// Opens the registry key of an adapter or driver.
fn open(owner: usize) -> usize {
    let mut object = NDIS_CONFIGURATION_OBJECT::zeroed();
    object.Header = header(NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, 1, 0x14);
    object.NdisHandle = std::ptr::without_provenance_mut(owner);
    let opened = kept(0_usize);
    assert_eq!(config::NdisOpenConfigurationEx(kept(object), opened), NDIS_STATUS_SUCCESS);
    opened.read()
}

fn name(text: &str) -> Guest<UNICODE_STRING> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let units = units.leak();
    let length = (units.len() * 2) as u16;
    kept(UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() })
}

/// Opens a subkey; returns its handle.
fn subkey(key: usize, of: &str) -> Option<usize> {
    let (status, opened) = (kept(7), kept(0_usize));
    config::NdisOpenConfigurationKeyByName(status, key, name(of), opened);
    match status.read() {
        NDIS_STATUS_SUCCESS => Some(opened.read()),
        other => {
            assert_eq!(other, NDIS_STATUS_FAILURE);
            None
        }
    }
}

fn read(key: usize, keyword: &str) -> i32 {
    let (status, value) = (kept(7), kept(std::ptr::null_mut::<NDIS_CONFIGURATION_PARAMETER>()));
    let kind = NDIS_PARAMETER_TYPE::NdisParameterInteger;
    config::NdisReadConfiguration(status, value, key, name(keyword), kind);
    status.read()
}

/// A driver writes what it wants to find again, such as an address (WDK, `NdisWriteConfiguration`, `NDIS_CONFIGURATION_PARAMETER`).
#[test]
fn binary_value_is_written_and_read() {
    let body = |adapter| {
        let key = open(adapter);
        let mut address = [2_u8, 0, 0, 0, 0, 9];
        let data = BINARY_DATA { Length: 6, Buffer: address.as_mut_ptr().cast() };
        let written = NDIS_CONFIGURATION_PARAMETER {
            ParameterType: NDIS_PARAMETER_TYPE::NdisParameterBinary,
            ParameterData: NDIS_CONFIGURATION_PARAMETER_ParameterData { BinaryData: data },
        };
        let status = kept(7);
        config::NdisWriteConfiguration(status, key, name("Address"), kept(written));
        assert_eq!(status.read(), NDIS_STATUS_SUCCESS);
        let value = kept(std::ptr::null_mut::<NDIS_CONFIGURATION_PARAMETER>());
        let kind = NDIS_PARAMETER_TYPE::NdisParameterBinary;
        config::NdisReadConfiguration(status, value, key, name("Address"), kind);
        assert_eq!(status.read(), NDIS_STATUS_SUCCESS);
        let found = Guest::new(value.read()).read();
        assert_eq!(found.ParameterType, kind);
        // SAFETY: the member of the type that was requested.
        let found = unsafe { found.ParameterData.BinaryData };
        let mut bytes = vec![0; found.Length.into()];
        Guest::<u8>::new(found.Buffer.cast()).read_bytes(&mut bytes);
        assert_eq!(bytes, address);
        assert_eq!(read(key, "Address"), NDIS_STATUS_FAILURE, "it is no integer");
        config::NdisCloseConfiguration(key);
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

/// A miniport asks for the length first (WDK, `NdisGetRssProcessorInformation`).
#[test]
fn processors_of_receive_side_scaling_are_those_of_the_host() {
    let body = |adapter| {
        let size = kept(0_usize);
        let status = rss_processors::NdisGetRssProcessorInformation(adapter, Guest::null(), size);
        assert_eq!((status, size.read()), (NDIS_STATUS_BUFFER_TOO_SHORT, 40 + 2 * 8));
        let buffer = kept([0xff_u8; 64]);
        let info: Guest<NDIS_RSS_PROCESSOR_INFO> = buffer.cast();
        size.write(55);
        let status = rss_processors::NdisGetRssProcessorInformation(adapter, info, size);
        assert_eq!((status, size.read()), (NDIS_STATUS_BUFFER_TOO_SHORT, 56));
        let status = rss_processors::NdisGetRssProcessorInformation(adapter, info, size);
        assert_eq!((status, size.read()), (NDIS_STATUS_SUCCESS, 56));
        let found = info.read();
        assert_eq!((found.Header.Type, found.Header.Revision, found.Header.Size), (0xb1, 2, 40));
        assert_eq!((found.MaxNumRssProcessors, found.RssProcessorCount), (2, 2));
        assert_eq!((found.RssProcessorArrayOffset, found.RssProcessorEntrySize), (40, 8));
        let processors = [40, 48].map(|at| buffer.cast::<u8>().add(at).cast::<NDIS_RSS_PROCESSOR>().read());
        assert_eq!(processors.map(|one| (one.ProcNum.Group, one.ProcNum.Number)), [(0, 0), (0, 1)]);
        assert_eq!(processors.map(|one| one.PreferenceIndex), [0; 2]);
        // A keyword limits them, as a number or as text.
        let host = current().host().clone();
        for (limit, expected) in [
            (Keyword::Number(1), 1),
            (Keyword::Text(" 1 ".into()), 1),
            (Keyword::Number(9), 2),
            (Keyword::Text("one".into()), 2),
            (Keyword::Binary(vec![1, 0, 0, 0]), 2),
        ] {
            host.set_keyword("*MaxRssProcessors", limit);
            let status = rss_processors::NdisGetRssProcessorInformation(adapter, info, size);
            assert_eq!((status, info.read().MaxNumRssProcessors), (NDIS_STATUS_SUCCESS, expected));
        }
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

/// A driver opens its own key with its handle (windows-driver-docs-ddi: ndis/ns-ndis-_ndis_configuration_object), and a subkey by
/// name.
#[test]
fn driver_opens_its_key_and_the_parameters_below() {
    let options = |driver| {
        let key = open(driver);
        assert_eq!(read(key, "Mtu"), NDIS_STATUS_FAILURE);
        assert_eq!(subkey(key, "Nothing"), None);
        let parameters = subkey(key, "parameters").expect("every driver has the key");
        assert_eq!(read(parameters, "Mtu"), NDIS_STATUS_FAILURE);
        assert_eq!(subkey(parameters, "Parameters"), None);
        for key in [parameters, key] {
            config::NdisCloseConfiguration(key);
        }
    };
    let initialize = |adapter| {
        let key = open(adapter);
        assert_eq!(subkey(key, "Parameters"), None, "an adapter's key has none");
        config::NdisCloseConfiguration(key);
    };
    let script = Script { options: Some(options), initialize: Some(initialize), ..Script::default() };
    assert_eq!(verdict(script), "no violation");
}

#[test]
fn key_of_what_is_neither_driver_nor_adapter_is_reported() {
    let verdict = verdict(in_initialize(|_| _ = open(0x1234)));
    assert!(verdict.contains("0x1234 is not a handle of a miniport adapter or driver"), "{verdict}");
}

/// Ports that are not among the device's resources (windows-driver-docs-ddi: ndis/nf-ndis-ndismregisterioportrange).
#[test]
fn ports_of_others_are_refused() {
    let body = |handle| {
        let status = bus::NdisMRegisterIoPortRange(kept(0), handle, 0xc000, 32);
        assert_eq!(status, NDIS_STATUS_RESOURCE_CONFLICT, "the device has no ports");
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
    let verdict =
        verdict(in_initialize(|handle| bus::NdisMDeregisterIoPortRange(handle, 0xc000, 32, 0xc000)));
    assert!(verdict.contains("which the adapter has not claimed"), "{verdict}");
}
