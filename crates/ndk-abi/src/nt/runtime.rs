// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time, processors, run-time library, debug output, bug checks.

use core::ffi::c_void;

use super::{
    BOOLEAN, GROUP_AFFINITY, HANDLE, LARGE_INTEGER, NTSTATUS, PROCESSOR_NUMBER, RTL_OSVERSIONINFOW,
    UNICODE_STRING, XSTATE_SAVE,
};

pub const DPFLTR_ERROR_LEVEL: u32 = 0;
pub const DPFLTR_INFO_LEVEL: u32 = 3;
pub const DPFLTR_MASK: u32 = 0x80000000;
pub const DPFLTR_TRACE_LEVEL: u32 = 2;
pub const DPFLTR_WARNING_LEVEL: u32 = 1;
pub const ALL_PROCESSOR_GROUPS: u32 = 0xffff;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `any`.
    pub fn KeQueryPerformanceCounter(PerformanceFrequency: *mut LARGE_INTEGER) -> LARGE_INTEGER;
    /// IRQL: `any`.
    pub fn KeQueryInterruptTimePrecise(QpcTimeStamp: *mut u64) -> u64;
    /// IRQL: `any`.
    pub fn KeQuerySystemTimePrecise(CurrentTime: *mut LARGE_INTEGER);
    /// IRQL: `any`.
    pub fn KeQueryUnbiasedInterruptTime() -> u64;
    /// IRQL: `any`.
    pub fn KeQueryTimeIncrement() -> u32;
    /// IRQL: `any`.
    pub fn KeStallExecutionProcessor(MicroSeconds: u32);
    /// IRQL: `any`.
    pub fn KeQueryActiveProcessorCountEx(GroupNumber: u16) -> u32;
    /// IRQL: `any`.
    pub fn KeQueryMaximumProcessorCountEx(GroupNumber: u16) -> u32;
    /// IRQL: `any`.
    pub fn KeGetCurrentProcessorNumberEx(ProcNumber: *mut PROCESSOR_NUMBER) -> u32;
    /// IRQL: `any`.
    pub fn KeGetProcessorIndexFromNumber(ProcNumber: *mut PROCESSOR_NUMBER) -> u32;
    /// IRQL: `any`.
    pub fn KeGetProcessorNumberFromIndex(ProcIndex: u32, ProcNumber: *mut PROCESSOR_NUMBER) -> NTSTATUS;
    /// IRQL: `>= PASSIVE_LEVEL`.
    pub fn KeSetSystemGroupAffinityThread(
        Affinity: *mut GROUP_AFFINITY,
        PreviousAffinity: *mut GROUP_AFFINITY,
    );
    /// IRQL: `>= PASSIVE_LEVEL`.
    pub fn KeRevertToUserGroupAffinityThread(PreviousAffinity: *mut GROUP_AFFINITY);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeSaveExtendedProcessorState(Mask: u64, XStateSave: *mut XSTATE_SAVE) -> NTSTATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn KeRestoreExtendedProcessorState(XStateSave: *mut XSTATE_SAVE);
    /// IRQL: `< DISPATCH_LEVEL`.
    pub fn RtlRandomEx(Seed: *mut u32) -> u32;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn RtlInitUnicodeString(DestinationString: *mut UNICODE_STRING, SourceString: *const u16);
    /// IRQL: `any`.
    pub fn RtlCompareMemory(Source1: *const c_void, Source2: *const c_void, Length: usize) -> usize;
    /// IRQL: `any`.
    pub fn RtlAppendUnicodeToString(Destination: *mut UNICODE_STRING, Source: *const u16) -> NTSTATUS;
    /// IRQL: `any`.
    pub fn RtlAppendUnicodeStringToString(
        Destination: *mut UNICODE_STRING,
        Source: *const UNICODE_STRING,
    ) -> NTSTATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn RtlFreeUnicodeString(UnicodeString: *mut UNICODE_STRING);
    /// IRQL: `any`.
    pub fn RtlCopyUnicodeString(DestinationString: *mut UNICODE_STRING, SourceString: *const UNICODE_STRING);
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn RtlEqualUnicodeString(
        String1: *const UNICODE_STRING,
        String2: *const UNICODE_STRING,
        CaseInSensitive: BOOLEAN,
    ) -> BOOLEAN;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn RtlGetVersion(lpVersionInformation: *mut RTL_OSVERSIONINFOW) -> NTSTATUS;
    /// IRQL: `<= DIRQL`.
    pub fn DbgPrint(Format: *const i8, ...) -> u32;
    /// IRQL: `<= DIRQL`.
    pub fn DbgPrintEx(ComponentId: u32, Level: u32, Format: *const i8, ...) -> u32;
    /// IRQL: `any`.
    pub fn KeBugCheckEx(
        BugCheckCode: u32,
        BugCheckParameter1: usize,
        BugCheckParameter2: usize,
        BugCheckParameter3: usize,
        BugCheckParameter4: usize,
    );
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn MmGetSystemRoutineAddress(SystemRoutineName: *mut UNICODE_STRING) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn PsGetCurrentThreadId() -> HANDLE;
    /// IRQL: `any`.
    pub fn PsGetCurrentProcessId() -> HANDLE;
}
