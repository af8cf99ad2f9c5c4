// SPDX-License-Identifier: MIT OR Apache-2.0

//! The keywords for authors of consumers that the driver has with the feature `strict`. `PASSIVE_LEVEL`.

use core::time::Duration;

use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_provider::{CallbackDelay, FailCreate, StrictSettings};
use viordma_inf::keywords;

use super::key::Key;
use crate::events;

/// Reads the settings of the strict provider.
pub fn read(key: &Key) -> StrictSettings {
    let number = key.read(&keywords::NDK_STRICT_FAIL_CREATE);
    let object = key.read(&keywords::NDK_STRICT_FAIL_TYPE).cast_signed();
    let time = key.read(&keywords::NDK_STRICT_DELAY);
    let random = key.read(&keywords::NDK_STRICT_DELAY_RANDOM) != 0;
    StrictSettings {
        report: (key.read(&keywords::NDK_STRICT_REPORT) != 0).then_some(events::consumer_mistake),
        fail_create: (number != 0)
            .then(|| FailCreate { number, object: (object != 0).then_some(NDK_OBJECT_TYPE(object)) }),
        delay: (time != 0).then(|| CallbackDelay { time: Duration::from_micros(u64::from(time)), random }),
    }
}
