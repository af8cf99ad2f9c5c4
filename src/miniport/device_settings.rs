// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs all settings of the control queue into the device.

use virtio_net::Error;

use super::adapter::Adapter;
use super::{device_coalescing, device_filter, device_rss};

/// Programs all settings of the control queue into the device, which lost them when it was reset and has started again. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    adapter.port().use_all_pairs()?;
    device_rss::program(adapter)?;
    device_filter::program(adapter)?;
    device_coalescing::program(adapter)
}
