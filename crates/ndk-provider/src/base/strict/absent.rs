// SPDX-License-Identifier: MIT OR Apache-2.0

//! The provider's view of the strict provider, without it: a checker that never exists, so that no code for it is built, and
//! faults and delays that never occur.

use core::convert::Infallible;
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::{AllocError, Arc};
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_abi::nt::NTSTATUS;
use nt::Owner;
use roce::Sge;

/// The settings of a strict provider: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrictSettings(());

/// A mistake that the provider notices without checks.
#[derive(Clone, Copy)]
pub enum Mistake {
    CqOverflow,
}

/// The kind of a call that fails later.
#[derive(Clone, Copy)]
pub enum CallKind {
    Create,
    Request,
}

/// The object that a report is about.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "nothing is reported")]
pub struct Subject {
    pub kind: NDK_OBJECT_TYPE,
    pub object: usize,
}

/// Whether one of an object's requests has such an element.
pub type HasElement = unsafe fn(NonNull<c_void>, &dyn Fn(&Sge) -> bool) -> bool;

/// An open object of any type.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "objects are not tracked")]
pub struct OpenObject {
    pub object: NonNull<c_void>,
    pub depends_on: unsafe fn(NonNull<c_void>, NonNull<c_void>) -> bool,
    pub has_element: HasElement,
}

/// The memory of a closed object, which is freed at once.
pub struct RetainedMemory {
    pub object: NonNull<c_void>,
    /// Frees the memory.
    pub free: unsafe fn(NonNull<c_void>),
}

impl Drop for RetainedMemory {
    fn drop(&mut self) {
        // SAFETY: `free` is the function of the object's type, and nothing else frees the memory.
        unsafe { (self.free)(self.object) };
    }
}

/// The checker of the consumers. It never exists.
pub struct Checker(Infallible);

impl Checker {
    /// Returns `None`: no setting asks for a checker.
    #[allow(clippy::unnecessary_wraps, reason = "the same as with the feature")]
    pub fn for_settings(_: StrictSettings, _: Owner) -> Result<Option<Arc<Self>>, AllocError> {
        Ok(None)
    }

    pub fn report(&self, _: Subject, _: Mistake, _: u32) {
        match self.0 {}
    }

    pub fn write_pending(&self) {
        match self.0 {}
    }

    pub fn opened(&self, _: OpenObject) {
        match self.0 {}
    }

    pub fn closing(&self, _: NonNull<c_void>) {
        match self.0 {}
    }

    pub fn retain(&self, _: RetainedMemory) {
        match self.0 {}
    }

    pub fn close_begins(&self, _: NDK_OBJECT_TYPE, _: NonNull<c_void>) {
        match self.0 {}
    }

    pub fn failed_later(&self, _: Subject, _: CallKind, _: NTSTATUS) {
        match self.0 {}
    }
}

/// Fails no create call.
pub struct CreateFaults;

impl CreateFaults {
    pub const fn new(_: StrictSettings) -> Self {
        Self
    }

    #[allow(clippy::unused_self, reason = "the same as with the feature")]
    pub const fn fails(&self, _: NDK_OBJECT_TYPE) -> bool {
        false
    }
}

/// Holds back no callback.
pub struct HeldCallbacks;

#[allow(clippy::unused_self, reason = "the same as with the feature")]
impl HeldCallbacks {
    pub const fn new(_: StrictSettings, _: u64) -> Self {
        Self
    }

    pub const fn is_on(&self) -> bool {
        false
    }

    pub const fn holds_events(&self, _: u64, _: bool) -> bool {
        false
    }

    pub fn run_later(&self, _: u64, action: impl FnOnce() + Send + 'static) -> Option<u64> {
        action();
        None
    }

    pub const fn run_due(&self, _: u64) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    std::thread_local! {
        static FREED: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn memory_of_a_closed_object_is_freed_at_once() {
        drop(RetainedMemory { object: NonNull::dangling(), free: |_| FREED.set(true) });
        assert!(FREED.get());
    }

    #[test]
    fn callback_is_made_at_once() {
        static MADE: AtomicBool = AtomicBool::new(false);
        let held = HeldCallbacks::new(StrictSettings::default(), 1);
        assert_eq!(held.run_later(0, || MADE.store(true, Ordering::Relaxed)), None);
        assert!(MADE.load(Ordering::Relaxed));
        assert!(!held.is_on() && !held.holds_events(0, true));
        assert_eq!(held.run_due(0), None);
    }

    #[test]
    fn nothing_is_checked_and_no_call_fails() {
        let settings = StrictSettings::default();
        assert!(matches!(Checker::for_settings(settings, Owner::new(core::ptr::null_mut())), Ok(None)));
        assert!(!CreateFaults::new(settings).fails(NDK_OBJECT_TYPE::NdkObjectTypePd));
    }
}
