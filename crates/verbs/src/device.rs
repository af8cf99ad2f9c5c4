// SPDX-License-Identifier: MIT OR Apache-2.0

//! The list of devices.

use core::ffi::{c_char, c_int};
use core::net::IpAddr;
use std::io::Write;
use std::sync::{Arc, OnceLock};

use verbs_core::Error;
use verbs_core::device::{Device, guid};
use verbs_core::environment::Settings;
use verbs_core::host::Host;

use crate::abi::device::IbvDevice;
use crate::abi::flags::{IBV_NODE_CA, IBV_TRANSPORT_IB};
use crate::errno;

/// A device as a program sees it. Exists until the process ends.
#[repr(C)]
pub struct ListedDevice {
    base: IbvDevice,
    address: IpAddr,
    index: c_int,
}

// SAFETY: the structure holds numbers and texts; its pointers are null.
unsafe impl Send for ListedDevice {}
// SAFETY: nothing changes it after its creation.
unsafe impl Sync for ListedDevice {}

impl ListedDevice {
    fn new(address: IpAddr, index: usize) -> Self {
        let (name, dev_name) = (format!("viordma{index}"), format!("uverbs{index}"));
        let base = IbvDevice {
            ops: [None; 2],
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: text(&name),
            dev_path: text(&format!("/sys/class/infiniband_verbs/{dev_name}")),
            dev_name: text(&dev_name),
            ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
        };
        Self { base, address, index: c_int::try_from(index).unwrap_or(c_int::MAX) }
    }

    /// Returns the pointer for programs.
    pub fn pointer(&self) -> *mut IbvDevice {
        core::ptr::from_ref(&self.base).cast_mut()
    }

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

/// Returns a text with a zero byte at its end, cut to the length.
pub fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (byte, &from) in bytes.iter_mut().zip(text.as_bytes()).take(N - 1) {
        *byte = from.cast_signed();
    }
    bytes
}

/// Leaves the devices that the program leaves open.
extern "C" fn leave() {
    if let Some(host) = host() {
        host.leave();
    }
}

/// Returns the host with the devices; `None` if a variable is invalid, of which one line is printed.
pub fn host() -> Option<&'static Arc<Host>> {
    static HOST: OnceLock<Option<Arc<Host>>> = OnceLock::new();
    let found = || match Settings::from_environment().and_then(Host::new) {
        Ok(host) => {
            // SAFETY: the function is one of this library, which is not unloaded.
            unsafe { libc::atexit(leave) };
            Some(host)
        }
        Err(invalid) => {
            // A program may have closed it.
            let _ = writeln!(std::io::stderr(), "{invalid}");
            None
        }
    };
    HOST.get_or_init(found).as_ref()
}

/// Returns the devices of this process.
pub fn all() -> &'static [ListedDevice] {
    static DEVICES: OnceLock<Vec<ListedDevice>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let addresses = host().map(|host| host.addresses()).unwrap_or_default();
        addresses.iter().enumerate().map(|(index, &ip)| ListedDevice::new(ip, index)).collect()
    })
}

/// Returns the device of a pointer.
pub fn find(device: *const IbvDevice) -> Result<&'static ListedDevice, Error> {
    all().iter().find(|listed| core::ptr::eq(listed.pointer(), device)).ok_or(Error::Invalid)
}

/// Opens a device, or returns it if it is open.
pub fn open(listed: &ListedDevice) -> Result<Arc<Device>, Error> {
    host().ok_or(Error::NoDevice)?.open(listed.address)
}

/// Returns the devices; the list ends with a null pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut IbvDevice {
    let devices = all();
    let pointers = devices.iter().map(ListedDevice::pointer).chain([core::ptr::null_mut()]);
    let list = Box::into_raw(pointers.collect::<Box<[_]>>());
    if !num_devices.is_null() {
        // SAFETY: the program passes null or a number that the call may write.
        unsafe { num_devices.write(c_int::try_from(devices.len()).unwrap_or(c_int::MAX)) };
    }
    list.cast()
}

/// Frees a list. Devices stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut IbvDevice) {
    if list.is_null() {
        return;
    }
    let slice = core::ptr::slice_from_raw_parts_mut(list, all().len() + 1);
    // SAFETY: `ibv_get_device_list` has returned the list, with that many entries: the number of devices does not change.
    drop(unsafe { Box::from_raw(slice) });
}

/// Returns the name of a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char {
    find(device).map_or(core::ptr::null(), |listed| listed.base.name.as_ptr())
}

/// Returns the GUID of a device, in network byte order; 0 if there is no such device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut IbvDevice) -> u64 {
    find(device).map_or(0, |listed| guid(listed.address).to_be())
}

/// Returns the number of a device; -1 if there is no such device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut IbvDevice) -> c_int {
    find(device).map_or(-1, |listed| listed.index)
}

/// Prepares for `fork`. Memory is not shared with a device outside of the process, so there is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Returns `IBV_FORK_UNNEEDED`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

/// Returns -1 with `errno`: the devices are not in sysfs.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_sysfs_file() -> c_int {
    errno::set(libc::ENOENT);
    -1
}

/// Returns -1 with `errno`: the devices are not in sysfs.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    errno::set(libc::ENOENT);
    -1
}

/// Returns the folder in which devices of the kernel are found.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}
