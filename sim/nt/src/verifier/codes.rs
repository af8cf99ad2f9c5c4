// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bug check codes.

use std::fmt;

/// A bug check code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BugCheck(pub u32);

macro_rules! bug_checks {
    ($($name:ident = $value:literal;)*) => {
        impl BugCheck {
            $(pub const $name: Self = Self($value);)*

            /// Returns the symbolic name of a known code.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

bug_checks! {
    APC_INDEX_MISMATCH = 0x01;
    INVALID_KERNEL_HANDLE = 0x93;
    IRQL_NOT_GREATER_OR_EQUAL = 0x09;
    IRQL_NOT_LESS_OR_EQUAL = 0x0a;
    SPIN_LOCK_ALREADY_OWNED = 0x0f;
    SPIN_LOCK_NOT_OWNED = 0x10;
    BAD_POOL_HEADER = 0x19;
    KMODE_EXCEPTION_NOT_HANDLED = 0x1e;
    PANIC_STACK_SWITCH = 0x2b;
    KERNEL_APC_PENDING_DURING_EXIT = 0x20;
    NO_MORE_IRP_STACK_LOCATIONS = 0x35;
    IRQL_GT_ZERO_AT_SYSTEM_SERVICE = 0x4a;
    MULTIPLE_IRP_COMPLETE_REQUESTS = 0x44;
    PAGE_FAULT_IN_NONPAGED_AREA = 0x50;
    NDIS_INTERNAL_ERROR = 0x7c;
    UNEXPECTED_KERNEL_MODE_TRAP = 0x7f;
    ATTEMPTED_SWITCH_FROM_DPC = 0xb8;
    DRIVER_VERIFIER_DETECTED_VIOLATION = 0xc4;
    BAD_POOL_CALLER = 0xc2;
    TIMER_OR_DPC_INVALID = 0xc7;
    DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS = 0xce;
    DRIVER_LEFT_LOCKED_PAGES = 0xcb;
    DRIVER_PAGE_FAULT_IN_FREED_SPECIAL_POOL = 0xd5;
    DRIVER_PAGE_FAULT_BEYOND_END_OF_ALLOCATION = 0xd6;
    RESOURCE_NOT_OWNED = 0xe3;
    WORKER_INVALID = 0xe4;
    DRIVER_VERIFIER_DMA_VIOLATION = 0xe6;
    SYSTEM_THREAD_EXCEPTION_NOT_HANDLED = 0x7e;
    THREAD_STUCK_IN_DEVICE_DRIVER = 0xea;
    IRQL_UNEXPECTED_VALUE = 0xc8;
    DRIVER_IRQL_NOT_LESS_OR_EQUAL = 0xd1;
    KERNEL_SECURITY_CHECK_FAILURE = 0x139;
    THREAD_TERMINATE_HELD_MUTEX = 0x4000_008a;
    DPC_WATCHDOG_VIOLATION = 0x133;
    DRIVER_VERIFIER_IOMANAGER_VIOLATION = 0xc9;
    BUGCODE_NDIS_DRIVER = 0xd2;
    ATTEMPTED_WRITE_TO_READONLY_MEMORY = 0xbe;
    ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY = 0xfc;
}

impl fmt::Display for BugCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:#x})", self.0),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for BugCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
