// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fails one create call of the consumers.

use super::settings::{FailCreate, StrictSettings};
use core::sync::atomic::{AtomicU32, Ordering};
use ndk_abi::ndk::NDK_OBJECT_TYPE;

/// Counts create calls until the one that fails.
pub struct CreateFaults {
    setting: Option<FailCreate>,
    calls: AtomicU32,
}

impl CreateFaults {
    pub const fn new(settings: StrictSettings) -> Self {
        Self { setting: settings.fail_create, calls: AtomicU32::new(0) }
    }

    /// Counts a create call and returns whether it fails.
    pub fn fails(&self, object: NDK_OBJECT_TYPE) -> bool {
        let Some(setting) = self.setting else { return false };
        setting.object.is_none_or(|counted| counted == object)
            && self.calls.fetch_add(1, Ordering::Relaxed).checked_add(1) == Some(setting.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;
    const CQ: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;

    #[test]
    fn only_the_create_call_of_the_setting_fails() {
        let calls = [PD, CQ, CQ, PD, CQ];
        let fails = |setting| {
            let faults =
                CreateFaults::new(StrictSettings { fail_create: setting, ..StrictSettings::default() });
            calls.map(|object| faults.fails(object))
        };
        assert_eq!(fails(None), [false; 5]);
        let any = Some(FailCreate { number: 2, object: None });
        assert_eq!(fails(any), [false, true, false, false, false]);
        let cqs = Some(FailCreate { number: 2, object: Some(CQ) });
        assert_eq!(fails(cqs), [false, false, true, false, false]);
        assert_eq!(fails(Some(FailCreate { number: 0, object: None })), [false; 5]);
    }
}
