// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parts that all NDK objects share: the header that the consumer sees, reference counting and the close protocol.
//!
//! An object is one allocation. It starts with the part that the consumer knows (`NDK_OBJECT_HEADER` and the
//! dispatch pointer). That part is written once, before the object is published, and never read again: the layer
//! above replaces the dispatch pointer and owns the reserved block.
//!
//! **References.** Every reason to keep an object alive is one [`Ref`]: the consumer's own reference (from
//! create to close), one for each successor, each pending request, each running callback and each look-up.
//! Close releases the consumer's reference and starts the cancellation that the object type needs. The thread
//! that releases the last reference finishes the object. Unless the close call itself is still on the stack, the deferred
//! routine then makes the close callback and releases the antecedents, whose own close may complete because of it
//! ([`closed`]). The rules on close order follow from this without further code.
//!
//! IRQL <= `DISPATCH_LEVEL` throughout. No lock is held while a callback runs.
//!
//! | module | contents |
//! | --- | --- |
//! | `callback` | the consumer's callbacks |
//! | `closed` | objects whose close callback is due |
//! | `unchecked` | an object pointer before it is checked |
//! | `registry` | from the engine's context numbers to objects |
//! | `removal` | objects to abort when the device is removed |
//= R-OPEN-20, R-OPEN-21
//= R-CLOSE-2, R-CLOSE-3, R-CLOSE-4, R-CLOSE-5, R-CLOSE-8, R-CLOSE-9, R-CLOSE-10, R-CLOSE-11, R-CLOSE-19, R-CLOSE-22
//= R-CREATE-19
//= R-IRQL-4, R-CLOSE-34

pub mod callback;
pub mod closed;
pub mod registry;
pub mod removal;
#[cfg(feature = "strict")]
pub mod unchecked;

use crate::base::environment::ObjectChange;
use crate::base::status::NtResult;
use crate::base::strict::{Checker, Subject};
use crate::base::strict::{OpenObject, RetainedMemory};
use alloc::boxed::Box;
use callback::CloseCallback;
use closed::{CloseLater, Closed, Operations};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use fallible::{Arc, RefCount, try_box_or_return};
use ndk_abi::ndk::{NDK_OBJECT_HEADER, NDK_OBJECT_HEADER_RESERVED_BLOCK, NDK_OBJECT_TYPE, NDK_VERSION};
use ndk_abi::nt::{NTSTATUS, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING, STATUS_SUCCESS};
use nt::{Event, SpinLock};
use roce::Sge;
use state_table::state_table;

state_table! {
    /// Life cycle of every object.
    pub enum Lifecycle {
        /// Published, or about to be.
        Open,
        /// The consumer has closed it; references remain.
        Closing,
        /// No reference remains.
        Closed,
    }
    /// Events of the object life cycle.
    pub enum LifecycleEvent {
        /// The consumer calls close.
        Close: Open => Closing;
        /// The last reference is released.
        LastRelease: Closing => Closed;
        /// Creation failed after the object was allocated.
        Abandon: Open => Closed;
    }
}

/// A type of NDK object: its identity in the ABI, and what close means for it.
pub trait ObjectType: Send + Sync + Sized + 'static {
    /// The structure the consumer sees: `NDK_CQ` and so on, a header and a dispatch pointer.
    type Public;
    /// The object type in the header.
    const TYPE: NDK_OBJECT_TYPE;

    /// Starts cancelling pending requests. Called once, when the consumer closes the object, with the
    /// consumer's reference still held. Makes no callbacks itself.
    fn on_close(_this: &Ref<Self>) {}

    /// Releases the engine's resources. Called after the last reference was released; the antecedents are
    /// still held.
    fn on_finish(&self) {}

    /// Returns what checks the consumers of the object's provider, if their mistakes are reported.
    fn checker(&self) -> Option<&Arc<Checker>> {
        None
    }

    /// Returns whether the object must be closed before the one at this address. For [`Checker`].
    fn depends_on(&self, _antecedent: NonNull<c_void>) -> bool {
        false
    }

    /// Returns whether a posted request has an element that `wanted` accepts. For [`Checker`].
    fn has_element(&self, _wanted: &dyn Fn(&Sge) -> bool) -> bool {
        false
    }

    /// Returns what makes the close callback, and traces the object. `None`: the thread that releases the last reference makes the callback,
    /// and nothing is traced.
    fn close_later(&self) -> Option<&dyn CloseLater> {
        None
    }
}

/// The dispatch table of an object type. Implemented in `dispatch`, next to the table's functions, so that
/// objects do not depend on it.
pub trait DispatchTable: ObjectType {
    /// `NDK_CQ_DISPATCH` and so on.
    type Table: 'static;
    /// The table that new objects point to.
    const TABLE: &'static Self::Table;
    /// The table of objects whose calls are checked.
    #[cfg(feature = "strict")]
    const CHECKED: &'static Self::Table = Self::TABLE;
}

/// An object: the part that the consumer sees, the life cycle, and the data of its type.
#[repr(C)]
pub struct Object<T: ObjectType> {
    head: Head,
    /// Dropped by [`Ref::free`], and by hand if the object is never shared.
    body: ManuallyDrop<T>,
}

/// Members of objects of all types.
#[repr(C)]
pub(super) struct Head {
    public: UnsafeCell<Public>,
    /// Identifies an [`Object`] and its type. Checked first when the consumer passes a pointer.
    pub(super) tag: u64,
    references: RefCount,
    lifecycle: SpinLock<(Lifecycle, CloseNotification)>,
    /// Null if the consumer's calls are not checked; else valid as long as the object's memory.
    #[cfg(feature = "strict")]
    pub(super) checker: *const Checker,
    /// The calls in progress that the consumer serializes, if calls are checked.
    #[cfg(feature = "strict")]
    pub(super) busy: core::sync::atomic::AtomicU8,
    /// The next object of the list of [`closed`], whose lock guards it.
    next_closed: UnsafeCell<Option<Closed>>,
}

#[cfg(any(feature = "strict", test))]
impl Head {
    /// Returns whether the consumer has not closed the object. IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn is_open(&self) -> bool {
        self.lifecycle.lock().0 == Lifecycle::Open
    }
}

/// The part that the consumer sees.
#[repr(C)]
struct Public {
    header: NDK_OBJECT_HEADER,
    dispatch: *const c_void,
}

/// How the completion of a close is reported.
#[derive(Clone, Copy)]
enum CloseNotification {
    None,
    Consumer(CloseCallback),
    /// Sets the event of the thread in [`Ref::close_and_wait`].
    Waiter(NonNull<Event>),
}

// SAFETY: `public` is written before the object is shared and not accessed afterwards; the waiter's event and the
// checker are `Sync`; what `next_closed` links is `Send`; the rest is `Send + Sync` by the bound of `ObjectType`.
unsafe impl<T: ObjectType> Send for Object<T> {}
// SAFETY: shared use reads fields that are written before the object is shared, and the rest is `Sync`, as for `Send`, except
// `next_closed`: it is accessed through `closed::ClosedObjects` alone, by the thread that holds that list's lock.
unsafe impl<T: ObjectType> Sync for Object<T> {}

/// "vioRDMA", with the object type in the low byte.
pub(super) const TAG: u64 = 0x7669_6f52_444d_4100;

pub(super) const fn tag<T: ObjectType>() -> u64 {
    TAG | T::TYPE.0.cast_unsigned() as u64
}

/// An object not yet published. Dropping it undoes the creation.
pub struct Created<T: ObjectType>(Ref<T>);

impl<T: DispatchTable> Created<T> {
    /// Allocates an object. On failure `body` is finished.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES` when pool is exhausted.
    //= R-CREATE-8, R-OPEN-13, R-OPEN-19
    // Out of line to limit stack use: the object is on the stack for a moment, and so are its parts in the
    // caller.
    #[inline(never)]
    pub fn try_new(version: NDK_VERSION, body: T) -> NtResult<Self> {
        let header = NDK_OBJECT_HEADER {
            Version: version,
            ObjectType: T::TYPE,
            NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [core::ptr::null_mut(); 4] },
        };
        #[cfg(not(feature = "strict"))]
        let table = T::TABLE;
        #[cfg(feature = "strict")]
        let (table, checker) = match body.checker() {
            None => (T::TABLE, core::ptr::null()),
            Some(checker) => (T::CHECKED, core::ptr::from_ref::<Checker>(checker)),
        };
        let dispatch = core::ptr::from_ref(table).cast();
        let object = try_box_or_return(Object {
            head: Head {
                public: UnsafeCell::new(Public { header, dispatch }),
                tag: tag::<T>(),
                references: RefCount::one(),
                lifecycle: SpinLock::new((Lifecycle::Open, CloseNotification::None)),
                #[cfg(feature = "strict")]
                checker,
                #[cfg(feature = "strict")]
                busy: core::sync::atomic::AtomicU8::new(0),
                next_closed: UnsafeCell::new(None),
            },
            body: ManuallyDrop::new(body),
        })
        .map_err(|object| {
            // The engine's resources must be released even so.
            let body = ManuallyDrop::into_inner(object.body);
            body.on_finish();
            STATUS_INSUFFICIENT_RESOURCES
        })?;
        let object = Box::into_raw(object);
        // SAFETY: `into_raw` never returns null; `references` counts this reference.
        Ok(Self(Ref(unsafe { NonNull::new_unchecked(object) })))
    }
}

impl<T: ObjectType> Created<T> {
    /// Returns a reference for the provider, beside the consumer's.
    pub fn reference(&self) -> Ref<T> {
        self.0.clone()
    }

    /// Gives the object to the consumer, with the reference that only close releases.
    pub fn publish(self) -> *mut T::Public {
        let object = self.0.0;
        if let Some(checker) = self.0.checker() {
            checker.opened(track::<T>(object));
        }
        self.0.trace(ObjectChange::Created);
        core::mem::forget(self);
        object.as_ptr().cast()
    }
}

impl<T: ObjectType> Drop for Created<T> {
    fn drop(&mut self) {
        let mut lifecycle = self.0.object().head.lifecycle.lock();
        lifecycle.0 = lifecycle.0.on(LifecycleEvent::Abandon).unwrap_or(lifecycle.0);
    }
}

/// A counted reference to an object.
pub struct Ref<T: ObjectType>(NonNull<Object<T>>);

// SAFETY: a counted shared reference; the object is `Send + Sync`.
unsafe impl<T: ObjectType> Send for Ref<T> {}
// SAFETY: a shared reference to a `Ref` gives shared references to the object, which is `Sync`.
unsafe impl<T: ObjectType> Sync for Ref<T> {}

impl<T: ObjectType> Ref<T> {
    fn object(&self) -> &Object<T> {
        // SAFETY: the object lives as long as it has references, and this is one.
        unsafe { self.0.as_ref() }
    }

    /// Returns whether both references are to the same object.
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns the object as reports of mistakes name it.
    pub fn subject(&self) -> Subject {
        Subject { kind: T::TYPE, object: self.0.addr().get() }
    }

    /// Traces a change of the object.
    fn trace(&self, change: ObjectChange) {
        if let Some(owner) = self.close_later() {
            owner.trace_object(T::TYPE, self.0.addr().get(), change);
        }
    }

    /// Returns the object's address, for the registry.
    pub fn as_ptr(&self) -> NonNull<Object<T>> {
        self.0
    }

    /// Releases this reference. If it was the last one, finishes the object and returns how to report that;
    /// the caller then calls [`Ref::free`].
    fn release(self) -> Option<CloseNotification> {
        let object = self.0;
        core::mem::forget(self);
        // SAFETY: the reference being released is still counted.
        let references = unsafe { &object.as_ref().head.references };
        if !references.release() {
            return None;
        }
        // SAFETY: no other reference exists, and the object is freed only after this function returns.
        let last = unsafe { object.as_ref() };
        last.body.on_finish();
        let mut lifecycle = last.head.lifecycle.lock();
        let was_published = lifecycle.0 == Lifecycle::Closing;
        lifecycle.0 = lifecycle.0.on(LifecycleEvent::LastRelease).unwrap_or(lifecycle.0);
        let notification = lifecycle.1;
        drop(lifecycle);
        if let Some(owner) = last.body.close_later().filter(|_| was_published) {
            owner.trace_object(T::TYPE, object.addr().get(), ObjectChange::Closed);
        }
        Some(notification)
    }

    /// Frees an object whose last reference was released, which releases its antecedents.
    ///
    /// # Safety
    /// `release` of a reference to `object` returned `Some`, and this is the only call after it.
    unsafe fn free(object: NonNull<Object<T>>) {
        // SAFETY: made by `Box::into_raw` in `Created::try_new`; no reference is left. Until the body is dropped, with its ticket, a
        // look-up in the registry may find the object, but reads only the head.
        let body = unsafe { &mut (*object.as_ptr()).body };
        // Holds what keeps the memory until the body, which may hold the last other reference to it, is dropped.
        let checker = body.checker().cloned();
        // SAFETY: the body is dropped here only, and not used afterwards.
        unsafe { ManuallyDrop::drop(body) };
        let memory = RetainedMemory { object: object.cast(), free: free_memory::<T> };
        match checker {
            None => drop(memory),
            Some(checker) => checker.retain(memory),
        }
    }
}

impl<T: ObjectType> Ref<T> {
    const CLOSED: Operations = Operations { next: Self::next_closed, finish: Self::finish_closed };

    /// # Safety
    /// `object` is an `Object<T>`.
    unsafe fn next_closed(object: NonNull<c_void>) -> NonNull<Option<Closed>> {
        // SAFETY: by this function's contract this is an `Object<T>`, and it is not freed before `finish_closed`.
        let object = unsafe { object.cast::<Object<T>>().as_ref() };
        // The pointer may be written through: it is that of the cell's content, to which no reference is made.
        NonNull::from(&object.head.next_closed).cast()
    }

    /// # Safety
    /// `object` is an `Object<T>` for whose last reference `release` returned `Some`; this is the only call after it.
    unsafe fn finish_closed(object: NonNull<c_void>) {
        let object = object.cast::<Object<T>>();
        // SAFETY: by this function's contract this is an `Object<T>` that no reference is left to, and that is freed below.
        let notification = unsafe { object.as_ref() }.head.lifecycle.lock().1;
        if let CloseNotification::Consumer(completion) = notification {
            completion.call();
        }
        // SAFETY: `release` returned `Some`: no reference is left, and this caller alone frees the object.
        unsafe { Self::free(object) };
    }
}

impl<T: ObjectType> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object().body
    }
}

impl<T: ObjectType> Clone for Ref<T> {
    fn clone(&self) -> Self {
        self.object().head.references.acquire();
        Self(self.0)
    }
}

impl<T: ObjectType> Drop for Ref<T> {
    fn drop(&mut self) {
        let object = self.0;
        // The reference moves into `release`; `self` is not used again.
        let Some(notification) = Self(object).release() else { return };
        if let CloseNotification::Consumer(completion) = notification {
            // SAFETY: `release` returned `Some`: the object is freed below or by the list.
            if let Some(list) = unsafe { object.as_ref() }.body.close_later() {
                // SAFETY: no reference is left, and this function does not use the object again.
                let closed = unsafe { Closed::new(object.cast(), &Self::CLOSED) };
                return list.close_later(closed);
            }
            completion.call();
        }
        // SAFETY: `release` returned `Some`: no reference is left, and this caller alone frees the object.
        unsafe { Self::free(object) };
        if let CloseNotification::Waiter(event) = notification {
            // SAFETY: the waiting thread keeps the event alive until it is set.
            unsafe { event.as_ref() }.set();
        }
    }
}

/// An object that the consumer passes to a call. Not counted: the consumer keeps its own reference during the
/// call.
//= R-CLOSE-20
pub struct Borrow<'a, T: ObjectType>(ManuallyDrop<Ref<T>>, PhantomData<&'a T>);

impl<T: ObjectType> Borrow<'_, T> {
    /// Returns the object behind a consumer's pointer if it is of this type.
    ///
    /// # Safety
    /// `public` is null, or was published by this provider and is not closed during the borrow's lifetime.
    pub unsafe fn new(public: *mut T::Public) -> Option<Self> {
        let object = NonNull::new(public.cast::<Object<T>>())?;
        // SAFETY: the caller's promise; every object of the provider has its tag at the same offset.
        let found = unsafe { (*object.as_ptr()).head.tag };
        (found == tag::<T>()).then(|| Self(ManuallyDrop::new(Ref(object)), PhantomData))
    }
}

impl<T: ObjectType> Deref for Borrow<'_, T> {
    type Target = Ref<T>;

    fn deref(&self) -> &Ref<T> {
        &self.0
    }
}

impl<T: ObjectType> Ref<T> {
    /// Takes a reference to an object found in the registry, unless its last reference was released.
    ///
    /// # Safety
    /// `object` is not freed before the call returns; the registry's lock ensures that.
    pub unsafe fn try_reference(object: NonNull<Object<T>>) -> Option<Self> {
        // SAFETY: by this function's contract the registry's lock keeps the object from being freed.
        let references = unsafe { &(*object.as_ptr()).head.references };
        references.try_acquire().then(|| Self(object))
    }

    /// `NdkClose*`. Returns `STATUS_SUCCESS` if the object is closed, or `STATUS_PENDING` if `completion` will
    /// be called.
    ///
    /// `pend` receives a reference. If it keeps the reference, the close pends. The function it returns is
    /// called once the status is decided.
    //= R-CLOSE-1, R-CLOSE-21, R-CLOSE-23
    //= R-CONSUMER-11
    pub fn close<F: FnOnce()>(
        &self,
        completion: Option<CloseCallback>,
        pend: impl FnOnce(Self) -> F,
    ) -> NTSTATUS {
        let notification = completion.map_or(CloseNotification::None, CloseNotification::Consumer);
        //= R-CLOSE-12
        let Some(consumer) = self.begin_close(notification) else {
            // A second close is a consumer's mistake and has no effect.
            return STATUS_SUCCESS;
        };
        T::on_close(&consumer);
        let decided = pend(consumer.clone());
        let object = consumer.0;
        if consumer.release().is_none() {
            // Not the last reference. The object may have been freed by now nevertheless.
            decided();
            return STATUS_PENDING;
        }
        // SAFETY: `release` returned `Some`: no reference is left, and this caller alone frees the object.
        unsafe { Self::free(object) };
        STATUS_SUCCESS
    }

    /// Closes the object and returns when it is freed. `PASSIVE_LEVEL`.
    //= R-CLOSE-36
    pub fn close_and_wait(&self, closed: &Event) {
        if let Some(consumer) = self.begin_close(CloseNotification::Waiter(NonNull::from(closed))) {
            T::on_close(&consumer);
            drop(consumer);
            closed.wait();
        }
    }

    /// Takes back the reference that `publish` gave to the consumer; `None` if it was taken back before.
    fn begin_close(&self, notification: CloseNotification) -> Option<Self> {
        let mut lifecycle = self.object().head.lifecycle.lock();
        *lifecycle = (lifecycle.0.on(LifecycleEvent::Close).ok()?, notification);
        drop(lifecycle);
        if let Some(checker) = self.checker() {
            checker.closing(self.0.cast());
        }
        self.trace(ObjectChange::Closing);
        Some(Self(self.0))
    }
}

/// Frees the memory of an object whose body is dropped.
///
/// # Safety
/// `object` is an `Object<T>` released by `Box::into_raw`; nothing uses it.
unsafe fn free_memory<T: ObjectType>(object: NonNull<c_void>) {
    // SAFETY: the caller's promise. The body is not dropped again.
    drop(unsafe { Box::from_raw(object.cast::<Object<T>>().as_ptr()) });
}

/// Returns what the checker knows of an open object.
fn track<T: ObjectType>(object: NonNull<Object<T>>) -> OpenObject {
    unsafe fn depends_on<T: ObjectType>(object: NonNull<c_void>, antecedent: NonNull<c_void>) -> bool {
        // SAFETY: the checker passes an object that is open.
        unsafe { object.cast::<Object<T>>().as_ref() }.body.depends_on(antecedent)
    }
    unsafe fn has_element<T: ObjectType>(object: NonNull<c_void>, wanted: &dyn Fn(&Sge) -> bool) -> bool {
        // SAFETY: the checker passes an object that is open, so it is not freed during the call.
        unsafe { object.cast::<Object<T>>().as_ref() }.body.has_element(wanted)
    }
    OpenObject { object: object.cast(), depends_on: depends_on::<T>, has_element: has_element::<T> }
}

#[cfg(test)]
mod tests;
