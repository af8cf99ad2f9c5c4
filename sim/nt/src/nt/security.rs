// SPDX-License-Identifier: MIT OR Apache-2.0

//! Security descriptors as drivers build them. They are accepted and have no effect: programs have all rights here.

use std::sync::Arc;

use ndk_abi::nt::{STATUS_INVALID_HANDLE, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use super::handles::{self, Object};
use crate::{
    guest::Guest,
    import::table::{Import, Kind},
    imports,
    irql::Limit,
    thread::current,
};

/// Statuses of this file.
mod answer {
    pub const UNKNOWN_REVISION: i32 = 0xC000_0058_u32.cast_signed();
    pub const ALLOTTED_SPACE_EXCEEDED: i32 = 0xC000_0099_u32.cast_signed();
    pub const INVALID_ACL: i32 = 0xC000_0077_u32.cast_signed();
}

/// Layout of an absolute `SECURITY_DESCRIPTOR`.
mod descriptor {
    pub const CONTROL: usize = 0x02;
    pub const DACL: usize = 0x20;
    pub const SIZE: usize = 0x28;
    pub const DACL_PRESENT: u16 = 0x4;
    pub const DACL_DEFAULTED: u16 = 0x8;
}

/// Layout of an `ACL`: its header, and then its entries.
mod list {
    pub const SIZE: usize = 0x02;
    pub const COUNT: usize = 0x04;
    pub const HEADER: u32 = 8;
}

/// A security identifier with up to two parts behind its authority.
#[repr(C)]
struct Sid {
    revision: u8,
    count: u8,
    authority: [u8; 6],
    parts: [u32; 2],
}

const fn sid(authority: u8, count: u8, parts: [u32; 2]) -> Sid {
    Sid { revision: 1, count, authority: [0, 0, 0, 0, 0, authority], parts }
}

static NULL: Sid = sid(0, 1, [0, 0]);
static WORLD: Sid = sid(1, 1, [0, 0]);
static LOCAL: Sid = sid(2, 1, [0, 0]);
static CREATOR_OWNER: Sid = sid(3, 1, [0, 0]);
static CREATOR_GROUP: Sid = sid(3, 1, [1, 0]);
static NT_AUTHORITY: Sid = sid(5, 0, [0, 0]);
static DIALUP: Sid = sid(5, 1, [1, 0]);
static NETWORK: Sid = sid(5, 1, [2, 0]);
static BATCH: Sid = sid(5, 1, [3, 0]);
static INTERACTIVE: Sid = sid(5, 1, [4, 0]);
static SYSTEM: Sid = sid(5, 1, [18, 0]);
static ADMINISTRATORS: Sid = sid(5, 2, [32, 544]);
static USERS: Sid = sid(5, 2, [32, 545]);
static GUESTS: Sid = sid(5, 2, [32, 546]);
static POWER_USERS: Sid = sid(5, 2, [32, 547]);
static ACCOUNT_OPERATORS: Sid = sid(5, 2, [32, 548]);
static SERVER_OPERATORS: Sid = sid(5, 2, [32, 549]);
static PRINT_OPERATORS: Sid = sid(5, 2, [32, 550]);
static BACKUP_OPERATORS: Sid = sid(5, 2, [32, 551]);
static AUTHENTICATED_USERS: Sid = sid(5, 1, [11, 0]);
static RESTRICTED: Sid = sid(5, 1, [12, 0]);
static ANONYMOUS: Sid = sid(5, 1, [7, 0]);
static LOCAL_SERVICE: Sid = sid(5, 1, [19, 0]);
static NETWORK_SERVICE: Sid = sid(5, 1, [20, 0]);

static INTERNET_USER: Sid = sid(5, 1, [17, 0]);
static UNTRUSTED: Sid = sid(16, 1, [0, 0]);
static LOW: Sid = sid(16, 1, [0x1000, 0]);
static MEDIUM: Sid = sid(16, 1, [0x2000, 0]);
static HIGH: Sid = sid(16, 1, [0x3000, 0]);
static SYSTEM_LEVEL: Sid = sid(16, 1, [0x4000, 0]);
static OWNER_RIGHTS: Sid = sid(3, 1, [4, 0]);

/// `SE_EXPORTS`: the numbers of privileges, and well-known identifiers, in the order in which versions of Windows
/// brought them.
#[repr(C)]
struct Exports {
    privileges: [u64; 23],
    sids: [&'static Sid; 22],
    privileges_2: [u64; 3],
    sids_2: [&'static Sid; 2],
    privileges_3: [u64; 8],
    sids_3: [&'static Sid; 7],
}

static EXPORTS: Exports = Exports {
    privileges: [2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 14, 11, 12, 13, 16, 17, 18, 19, 20, 21, 22, 23, 24],
    sids: [
        &NULL,
        &WORLD,
        &LOCAL,
        &CREATOR_OWNER,
        &CREATOR_GROUP,
        &NT_AUTHORITY,
        &DIALUP,
        &NETWORK,
        &BATCH,
        &INTERACTIVE,
        &SYSTEM,
        &ADMINISTRATORS,
        &USERS,
        &GUESTS,
        &POWER_USERS,
        &ACCOUNT_OPERATORS,
        &SERVER_OPERATORS,
        &PRINT_OPERATORS,
        &BACKUP_OPERATORS,
        &AUTHENTICATED_USERS,
        &RESTRICTED,
        &ANONYMOUS,
    ],
    privileges_2: [25, 26, 27],
    sids_2: [&LOCAL_SERVICE, &NETWORK_SERVICE],
    privileges_3: [28, 29, 30, 31, 32, 33, 34, 35],
    sids_3: [&INTERNET_USER, &UNTRUSTED, &LOW, &MEDIUM, &HIGH, &SYSTEM_LEVEL, &OWNER_RIGHTS],
};

static SE_EXPORTS: &Exports = &EXPORTS;

/// The variables declared in this module.
pub const VARIABLES: &[Import] = &[Import {
    kind: Kind::Variable,
    module: "ntoskrnl.exe",
    name: "SeExports",
    limit: Limit::ANY,
    address: || (&raw const SE_EXPORTS).expose_provenance(),
}];

/// A device whose security a driver sets.
struct DeviceHandle;

impl Object for DeviceHandle {
    fn kind(&self) -> &'static str {
        "ObOpenObjectByPointer"
    }
}

/// Returns the length of an identifier in bytes.
fn sid_length(sid: Guest<u8>) -> u32 {
    8 + 4 * u32::from(sid.add(1).read())
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the length of a security identifier in bytes.
    [any]
    fn RtlLengthSid(sid: Guest<u8>) -> u32 {
        sid_length(sid)
    }

    /// Initializes an absolute security descriptor.
    [any]
    fn RtlCreateSecurityDescriptor(target: Guest<u8>, revision: u32) -> i32 {
        if revision != 1 {
            return answer::UNKNOWN_REVISION;
        }
        target.fill(0, descriptor::SIZE);
        target.write(1);
        STATUS_SUCCESS
    }

    /// Returns the length of a security descriptor in bytes; of an absolute one, without the parts elsewhere.
    [any]
    fn RtlLengthSecurityDescriptor(target: Guest<u8>) -> u32 {
        let _ = target;
        u32::try_from(descriptor::SIZE).unwrap_or(0)
    }

    /// Sets the discretionary access control list of a descriptor.
    [<= DISPATCH_LEVEL]
    fn RtlSetDaclSecurityDescriptor(target: Guest<u8>, present: u8, list: usize, defaulted: u8) -> i32 {
        if target.read() != 1 {
            return answer::UNKNOWN_REVISION;
        }
        let control = target.field::<u16>(descriptor::CONTROL);
        let mut flags = control.read() & !(descriptor::DACL_PRESENT | descriptor::DACL_DEFAULTED);
        if present != 0 {
            flags |= descriptor::DACL_PRESENT;
            flags |= if defaulted != 0 { descriptor::DACL_DEFAULTED } else { 0 };
            target.field::<usize>(descriptor::DACL).write(list);
        }
        control.write(flags);
        STATUS_SUCCESS
    }

    /// Initializes an access control list.
    [any]
    fn RtlCreateAcl(target: Guest<u8>, length: u32, revision: u32) -> i32 {
        if !(list::HEADER..=0xffff).contains(&length) || !matches!(revision, 2..=4) {
            return STATUS_INVALID_PARAMETER;
        }
        target.fill(0, list::HEADER as usize);
        target.write(u8::try_from(revision).unwrap_or(0));
        target.field::<u16>(list::SIZE).write(u16::try_from(length & !3).unwrap_or(0));
        STATUS_SUCCESS
    }

    /// Appends an entry that grants rights to an identifier.
    [any]
    fn RtlAddAccessAllowedAce(target: Guest<u8>, revision: u32, access: u32, sid: Guest<u8>) -> i32 {
        let _ = revision;
        let size = u32::from(target.field::<u16>(list::SIZE).read());
        let count = target.field::<u16>(list::COUNT);
        let mut used = list::HEADER;
        for _ in 0..count.read() {
            let entry = u32::from(target.field::<u16>(used as usize + 2).read());
            if entry < 4 || used + entry > size {
                return answer::INVALID_ACL;
            }
            used += entry;
        }
        let length = 8 + sid_length(sid);
        if used + length > size {
            return answer::ALLOTTED_SPACE_EXCEEDED;
        }
        let entry: Guest<u8> = target.field(used as usize);
        entry.field::<u16>(0).write(0);
        entry.field::<u16>(2).write(u16::try_from(length).unwrap_or(0));
        entry.field::<u32>(4).write(access);
        let mut bytes = vec![0; sid_length(sid) as usize];
        sid.read_bytes(&mut bytes);
        entry.add(8).write_bytes(&bytes);
        count.write(count.read() + 1);
        STATUS_SUCCESS
    }

    /// Opens a handle of an object that is given by its address.
    [<= PASSIVE_LEVEL]
    fn ObOpenObjectByPointer(
        object: usize,
        attributes: u32,
        state: usize,
        access: u32,
        kind: usize,
        mode: i8,
        handle: Guest<usize>,
    ) -> i32 {
        let _ = (attributes, state, access, kind, mode);
        if object == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        handle.write(handles::open(current().host(), Arc::new(DeviceHandle)));
        STATUS_SUCCESS
    }

    /// Sets the security descriptor of an object.
    [<= PASSIVE_LEVEL]
    fn ZwSetSecurityObject(handle: usize, information: u32, descriptor: usize) -> i32 {
        let _ = (information, descriptor);
        match handles::find::<DeviceHandle>(current().host(), handle) {
            Ok(_) => STATUS_SUCCESS,
            Err(_) => STATUS_INVALID_HANDLE,
        }
    }
}
