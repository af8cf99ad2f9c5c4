// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data that `ntoskrnl.exe` exports.

use crate::{
    import::table::{Import, Kind},
    irql::Limit,
};

/// An exported pointer to an object type. Types are compared, not accessed: each has an address of its own that is
/// not mapped.
struct ObjectType(usize);

static DEVICE_TYPE: ObjectType = ObjectType(0x00fd_0000_0000_1000);
static DRIVER_TYPE: ObjectType = ObjectType(0x00fd_0000_0000_2000);
static FILE_TYPE: ObjectType = ObjectType(0x00fd_0000_0000_3000);
static THREAD_TYPE: ObjectType = ObjectType(0x00fd_0000_0000_4000);
static EVENT_TYPE: ObjectType = ObjectType(0x00fd_0000_0000_5000);

fn address(variable: &'static ObjectType) -> usize {
    (&raw const variable.0).expose_provenance()
}

/// Returns the type of thread objects, to which `PsThreadType` points.
pub(super) fn thread_type() -> usize {
    THREAD_TYPE.0
}

/// Returns the type of event objects, to which `ExEventObjectType` points.
pub(super) fn event_type() -> usize {
    EVENT_TYPE.0
}

const fn variable(name: &'static str, address: fn() -> usize) -> Import {
    Import { kind: Kind::Variable, module: "ntoskrnl.exe", name, limit: Limit::ANY, address }
}

/// The variables declared in this module.
pub const IMPORTS: &[Import] = &[
    variable("IoDeviceObjectType", || address(&DEVICE_TYPE)),
    variable("IoDriverObjectType", || address(&DRIVER_TYPE)),
    variable("IoFileObjectType", || address(&FILE_TYPE)),
    variable("PsThreadType", || address(&THREAD_TYPE)),
    variable("ExEventObjectType", || address(&EVENT_TYPE)),
];
