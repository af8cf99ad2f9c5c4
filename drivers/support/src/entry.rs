// SPDX-License-Identifier: MIT OR Apache-2.0

//! The entry point of a driver, its allocator and its panic handler.

/// Declares `DriverEntry`, which calls `$create` with the driver object and returns the status of its result; nonpaged pool as the
/// global allocator; and a panic handler that ends the system. The driver depends on `wdk-alloc`, `wdk-panic` and `ndk-abi`.
///
/// `$create` is an `unsafe fn(*mut DRIVER_OBJECT) -> Result<()>`, where [`Result`](crate::status::Result) has an `NTSTATUS` as its
/// error; it is called once, at `PASSIVE_LEVEL`, with the driver's own object.
#[macro_export]
macro_rules! driver {
    ($create:path) => {
        extern crate wdk_panic;

        /// Nonpaged pool.
        #[global_allocator]
        static ALLOCATOR: ::wdk_alloc::WdkAllocator = ::wdk_alloc::WdkAllocator;

        /// The driver's entry point.
        ///
        /// # Safety
        /// Called once by the I/O manager, with pointers that are valid for the call. `PASSIVE_LEVEL`.
        #[unsafe(export_name = "DriverEntry")]
        pub unsafe extern "efiapi" fn driver_entry(
            driver: *mut ::ndk_abi::nt::DRIVER_OBJECT,
            _path: *mut ::ndk_abi::nt::UNICODE_STRING,
        ) -> ::ndk_abi::nt::NTSTATUS {
            // SAFETY: the I/O manager calls `DriverEntry` once, at PASSIVE_LEVEL, with the driver's object.
            $crate::status::status_of(unsafe { $create(driver) })
        }
    };
}
