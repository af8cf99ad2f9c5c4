// SPDX-License-Identifier: MIT OR Apache-2.0

//! The names by which the device is opened.

use driver_support::name::{Name, name};
use driver_support::status::{Result, check};
use ndk_abi::nt::{IoCreateSymbolicLink, IoDeleteSymbolicLink};

pub static DEVICE_NAME: Name<18> = name(r"\Device\NdkExample");
static LINK_NAME: Name<22> = name(r"\DosDevices\NdkExample");

/// The symbolic link to the device, deleted when dropped.
pub struct Link(());

impl Link {
    /// Creates the link. `PASSIVE_LEVEL`.
    pub fn create() -> Result<Self> {
        let (mut link, mut device) = (LINK_NAME.string(), DEVICE_NAME.string());
        // SAFETY: both counted strings live during the call, which copies them, at PASSIVE_LEVEL.
        check(unsafe { IoCreateSymbolicLink(&raw mut link, &raw mut device) })?;
        Ok(Self(()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut link = LINK_NAME.string();
        // SAFETY: created once, deleted once. It cannot fail for a link that exists.
        unsafe { IoDeleteSymbolicLink(&raw mut link) };
    }
}
