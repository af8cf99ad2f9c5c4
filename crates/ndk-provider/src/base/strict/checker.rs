// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checker of the consumers of one provider.
//!
//! Exists only if mistakes are reported. The objects of such a provider point to dispatch tables whose functions check
//! the call first (`dispatch::strict`); without it, no call does anything for it.
//!
//! Lock order: the lock of the tracked objects, then those of a connector, a window or the engine.

use super::mistake::{Mistake, MistakeReport};
use super::outcome::{CallKind, mistake};
use super::reporter::{Report, Reporter};
use super::settings::StrictSettings;
use super::tracked_objects::{OpenObject, RetainedMemory, TrackedObjects};
use core::ffi::c_void;
use core::ptr::NonNull;
use fallible::{AllocError, Arc};
use ndk_abi::ndk::NDK_OBJECT_TYPE;
use ndk_abi::nt::NTSTATUS;
use nt::{Owner, SpinLock};
use roce::Sge;

/// Checks the consumers of one provider.
pub struct Checker {
    reporter: Reporter,
    objects: SpinLock<TrackedObjects>,
}

/// The object that a report is about.
#[derive(Clone, Copy)]
pub struct Subject {
    pub kind: NDK_OBJECT_TYPE,
    /// Its address.
    pub object: usize,
}

impl Checker {
    /// Returns a checker if the settings ask for reports.
    ///
    /// # Errors
    /// [`AllocError`] if pool is exhausted.
    pub fn for_settings(settings: StrictSettings, owner: Owner) -> Result<Option<Arc<Self>>, AllocError> {
        let Some(report) = settings.report else { return Ok(None) };
        Ok(Some(Arc::try_new(Self::new(report, owner))?))
    }

    const fn new(report: Report, owner: Owner) -> Self {
        Self { reporter: Reporter::new(report, owner), objects: SpinLock::new(TrackedObjects::new()) }
    }

    /// Reports a mistake. Any IRQL.
    pub fn report(&self, subject: Subject, mistake: Mistake, detail: u32) {
        let object_type = u8::try_from(subject.kind.0).unwrap_or(u8::MAX);
        self.reporter.report(&MistakeReport { mistake, object_type, object: subject.object as u32, detail });
    }

    /// Writes a report that was made at an IRQL at which it could not be written. IRQL <= `DISPATCH_LEVEL`.
    pub fn write_pending(&self) {
        self.reporter.write_pending();
    }

    /// An object is given to the consumer.
    pub fn opened(&self, object: OpenObject) {
        self.objects.lock().add(object);
    }

    /// The consumer closes an object.
    pub fn closing(&self, object: NonNull<c_void>) {
        self.objects.lock().remove(object);
    }

    /// Keeps the memory of a closed object for a while.
    pub fn retain(&self, memory: RetainedMemory) {
        // Dropped at the end, when the lock is released.
        let _freed = self.objects.lock().retain(memory);
    }

    /// Checks that no open object must be closed before this one, whose close begins.
    //= R-CLOSE-9
    pub fn close_begins(&self, kind: NDK_OBJECT_TYPE, object: NonNull<c_void>) {
        let dependent = self.objects.lock().dependent(object);
        if let Some(dependent) = dependent {
            let subject = Subject { kind, object: object.addr().get() };
            self.report(subject, Mistake::AntecedentClosed, dependent.addr().get() as u32);
        }
    }

    /// Reports the mistake for which a call has failed later, in a completion callback.
    pub fn failed_later(&self, subject: Subject, kind: CallKind, status: NTSTATUS) {
        if let Some(mistake) = mistake(subject.kind, kind, status) {
            self.report(subject, mistake, status.cast_unsigned());
        }
    }

    /// Returns whether a posted request has an element that `wanted` accepts.
    pub fn has_element(&self, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        self.objects.lock().has_element(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    std::thread_local! {
        static FREED: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn memory_of_a_closed_object_is_kept_as_long_as_the_checker() {
        let checker = Checker::new(|_, _| (), Owner::new(core::ptr::null_mut()));
        checker.retain(RetainedMemory { object: NonNull::dangling(), free: |_| FREED.set(true) });
        assert!(!FREED.get());
        drop(checker);
        assert!(FREED.get());
    }
}
