// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registry functions against the host's registry; security descriptors.
//!
//! What Windows does is known from the documentation of each function.

use crate::on_host::{correct, counted, memory};
use ndk_abi::nt::{
    KeyValueFullInformation, KeyValuePartialInformation, OBJECT_ATTRIBUTES, REG_CREATED_NEW_KEY, REG_DWORD,
    REG_OPENED_EXISTING_KEY, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_HANDLE,
    STATUS_INVALID_PARAMETER, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_OBJECT_TYPE_MISMATCH, STATUS_SUCCESS,
};
use nt_sim::{
    Host,
    guest::Guest,
    nt::{handles, registry, security},
};

const SERVICES: &str = r"\Registry\Machine\System\CurrentControlSet\Services";

fn attributes(host: &Host, root: usize, name: &str) -> Guest<OBJECT_ATTRIBUTES> {
    let attributes = memory::<OBJECT_ATTRIBUTES>(host);
    attributes.write(OBJECT_ATTRIBUTES {
        Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).unwrap(),
        RootDirectory: std::ptr::without_provenance_mut(root),
        ObjectName: counted(host, name, 0).as_ptr(),
        ..OBJECT_ATTRIBUTES::zeroed()
    });
    attributes
}

fn open(host: &Host, root: usize, name: &str) -> Result<usize, i32> {
    let handle = memory::<usize>(host);
    let status = registry::ZwOpenKey(handle, 0, attributes(host, root, name));
    if status == STATUS_SUCCESS { Ok(handle.read()) } else { Err(status) }
}

fn create(host: &Host, name: &str) -> Result<(usize, u32), i32> {
    let (handle, disposition) = (memory::<usize>(host), memory::<u32>(host));
    let attributes = attributes(host, 0, name);
    let status = registry::ZwCreateKey(handle, 0, attributes, 0, Guest::null(), 0, disposition);
    if status == STATUS_SUCCESS { Ok((handle.read(), disposition.read())) } else { Err(status) }
}

#[test]
fn keys_are_made_below_those_that_exist() {
    correct(|host| {
        let name = format!(r"{SERVICES}\Test");
        let (first, disposition) = create(host, &name).unwrap();
        assert_eq!(disposition, REG_CREATED_NEW_KEY);
        let (second, disposition) = create(host, &name.to_uppercase()).unwrap();
        assert_eq!(disposition, REG_OPENED_EXISTING_KEY);
        assert_eq!(open(host, first, "Parameters"), Err(STATUS_OBJECT_NAME_NOT_FOUND));
        assert_eq!(
            create(host, &format!(r"{SERVICES}\None\Below")).err(),
            Some(STATUS_OBJECT_NAME_NOT_FOUND)
        );
        handles::ZwClose(first);
        handles::ZwClose(second);
        assert_eq!(open(host, first, "x"), Err(STATUS_INVALID_HANDLE));
    });
}

#[test]
fn values_are_returned_as_far_as_there_is_room() {
    correct(|host| {
        host.registry()
            .set_value(&format!(r"{SERVICES}\Test\Parameters"), "Depth", REG_DWORD, &[7, 0, 0, 0])
            .unwrap();
        let service = open(host, 0, &format!(r"{SERVICES}\Test")).unwrap();
        let key = open(host, service, "Parameters").unwrap();
        let (target, result) = (memory::<u8>(host), memory::<u32>(host));
        let query = |name, class, length| {
            registry::ZwQueryValueKey(key, counted(host, name, 0), class, target, length, result)
        };
        assert_eq!(query("DEPTH", KeyValuePartialInformation, 64), STATUS_SUCCESS);
        assert_eq!(result.read(), 16);
        let words: Vec<u32> = (0..4).map(|index| target.cast::<u32>().add(index).read()).collect();
        assert_eq!(words, [0, REG_DWORD, 4, 7]);
        assert_eq!(query("Depth", KeyValuePartialInformation, 14), STATUS_BUFFER_OVERFLOW);
        assert_eq!(query("Depth", KeyValuePartialInformation, 8), STATUS_BUFFER_TOO_SMALL);
        assert_eq!(query("Depth", KeyValueFullInformation, 64), STATUS_SUCCESS);
        assert_eq!(result.read(), 36, "a header of 20, a name of 10, 2 for alignment, data of 4");
        assert_eq!(query("Width", KeyValuePartialInformation, 64), STATUS_OBJECT_NAME_NOT_FOUND);
        assert_eq!(query("Depth", 77, 64), STATUS_INVALID_PARAMETER);
        handles::ZwClose(key);
        handles::ZwClose(service);
    });
}

#[test]
fn a_driver_sets_values_that_the_host_reads() {
    correct(|host| {
        let (key, _) = create(host, &format!(r"{SERVICES}\Test")).unwrap();
        let (name, data) = (counted(host, "Runs", 0), memory::<u8>(host));
        data.write_bytes(&[1, 2, 3, 4]);
        assert_eq!(registry::ZwSetValueKey(key, name, 0, REG_DWORD, data, 4), STATUS_SUCCESS);
        let value = host.registry().value(&format!(r"{SERVICES}\test"), "runs").unwrap();
        assert_eq!((value.kind, &*value.data), (REG_DWORD, &[1, 2, 3, 4][..]));
        assert_eq!(registry::ZwDeleteValueKey(key, name), STATUS_SUCCESS);
        assert_eq!(registry::ZwDeleteValueKey(key, name), STATUS_OBJECT_NAME_NOT_FOUND);
        handles::ZwClose(key);
    });
}

#[test]
fn handles_of_another_kind_are_refused() {
    correct(|host| {
        let handle = memory::<usize>(host);
        security::ObOpenObjectByPointer(0x1000, 0, 0, 0, 0, 0, handle);
        let handle = handle.read();
        let name = counted(host, "x", 0);
        let status = registry::ZwSetValueKey(handle, name, 0, REG_DWORD, memory(host), 4);
        assert_eq!(status, STATUS_OBJECT_TYPE_MISMATCH);
        assert_eq!(security::ZwSetSecurityObject(handle, 4, 0), STATUS_SUCCESS);
        handles::ZwClose(handle);
    });
}

#[test]
fn a_descriptor_with_an_entry_is_built_as_drivers_do() {
    correct(|host| {
        let (descriptor, list, sid) = (memory::<u8>(host), memory::<u8>(host), memory::<u8>(host));
        sid.write_bytes(&[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0]);
        assert_eq!(security::RtlLengthSid(sid), 12);
        assert_eq!(security::RtlCreateSecurityDescriptor(descriptor, 1), STATUS_SUCCESS);
        assert_eq!(security::RtlCreateAcl(list, 8 + 20, 2), STATUS_SUCCESS);
        assert_eq!(security::RtlAddAccessAllowedAce(list, 2, 0x1000_0000, sid), STATUS_SUCCESS);
        assert!(security::RtlAddAccessAllowedAce(list, 2, 0x1000_0000, sid) < 0, "there is no room for two");
        assert_eq!(security::RtlSetDaclSecurityDescriptor(descriptor, 1, list.address(), 0), STATUS_SUCCESS);
        assert_eq!(descriptor.field::<usize>(0x20).read(), list.address());
        assert_eq!(list.field::<u16>(4).read(), 1);
    });
}

/// Offsets of `SE_EXPORTS`, from its declaration in public headers.
#[test]
fn the_exported_identifiers_are_the_well_known_ones() {
    correct(|_| {
        let variable = Guest::<usize>::from_address((security::VARIABLES[0].address)());
        let identifier = |offset: usize| {
            let sid = Guest::<u8>::from_address(variable.read()).field::<usize>(offset).read();
            let sid = Guest::<u8>::from_address(sid);
            let mut bytes = vec![0; security::RtlLengthSid(sid) as usize];
            sid.read_bytes(&mut bytes);
            bytes
        };
        assert_eq!(identifier(0x108), [1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0], "the system's");
        assert_eq!(
            identifier(0x110),
            [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0],
            "administrators'"
        );
    });
}
