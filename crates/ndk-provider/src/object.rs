//! What all NDK objects have in common: the public face, the count of holds, the close protocol.
//!
//! An object is one allocation. Its first bytes are what the consumer knows (`NDK_OBJECT_HEADER` and the
//! dispatch pointer); they are written once, before the object is handed out, and never looked at again
//! (R-OPEN-20, R-OPEN-21: the layer above swaps the one and owns the reserved part of the other).
//!
//! **Holds.** Every reason for an object to stay is one hold, and every hold is a [`Ref`]: the consumer's own
//! (from create to close), one for each successor, each pending request, each callback being made, each
//! look-up in flight. Close gives up the consumer's hold and starts whatever cancellation the object needs;
//! whoever gives up the last hold finishes the object, makes the close callback unless close itself is still
//! on the stack, and only then lets go of the antecedents, whose own close may end with that. So the rules
//! on order need no code of their own:
//!
//!
//! IRQL <= `DISPATCH_LEVEL` throughout; no lock is held while a callback runs (R-IRQL-4, R-CLOSE-34).
//= R-OPEN-20, R-OPEN-21
//= R-CLOSE-2, R-CLOSE-3, R-CLOSE-4, R-CLOSE-5, R-CLOSE-8, R-CLOSE-9, R-CLOSE-10, R-CLOSE-11, R-CLOSE-19
//= R-CREATE-19
//= R-IRQL-4, R-CLOSE-34

use crate::machine::machine;
use crate::status::Answer;
use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};
use ndk_abi::ndk::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER,
    NDK_OBJECT_HEADER_RESERVED_BLOCK, NDK_OBJECT_TYPE, NDK_VERSION,
};
use ndk_abi::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING, STATUS_SUCCESS,
};
use nt::{Event, SpinLock, try_box_or_return};

machine! {
    /// The life of every object.
    pub enum Life {
        /// Handed out, or about to be.
        Open,
        /// The consumer has closed it; somebody still holds it.
        Closing,
        /// Nobody holds it any more.
        Closed,
    }
    /// What happens in it.
    pub enum LifeEvent {
        /// The consumer calls close.
        Close,
        /// The last hold is given up.
        LastHold,
        /// Creation failed after the object was made.
        Abandon,
    }
    Open + Close => Closing,
    Closing + LastHold => Closed,
    Open + Abandon => Closed,
}

/// What distinguishes one type of object from another.
pub trait Body: Send + Sync + Sized + 'static {
    /// `NDK_CQ` and so on: header and dispatch pointer.
    type Public;
    /// `NDK_CQ_DISPATCH` and so on.
    type Dispatch: 'static;
    /// The number in the header.
    const TYPE: NDK_OBJECT_TYPE;
    /// The functions the consumer is given.
    const DISPATCH: &'static Self::Dispatch;

    /// The consumer has closed the object: start cancelling what is pending. Called once, with the
    /// consumer's hold still there; callbacks are left to a later moment.
    fn closing(_this: &Ref<Self>) {}

    /// The last hold is gone: give back what the engine has. The antecedents are still there.
    fn finish(&self) {}
}

/// An object: the public face, the life, and what is special to its type.
#[repr(C)]
pub struct Object<T: Body> {
    public: UnsafeCell<Public>,
    /// Says that this is an [`Object`], and of which type: the first thing checked of a pointer from the
    /// consumer.
    tag: u64,
    holds: AtomicUsize,
    life: SpinLock<(Life, OnClosed)>,
    body: T,
}

/// What the consumer sees.
#[repr(C)]
struct Public {
    header: NDK_OBJECT_HEADER,
    dispatch: *const c_void,
}

/// Whom to tell that the object is closed.
#[derive(Clone, Copy)]
enum OnClosed {
    Nobody,
    Consumer(NDK_FN_CLOSE_COMPLETION, Context),
    /// The thread in [`Ref::close_and_wait`].
    Waiter(NonNull<Event>),
}

// SAFETY: `public` is written before the object is shared and not touched afterwards, the context of the
// close callback is only passed back; the rest is `Send + Sync` by `Body`'s bound.
unsafe impl<T: Body> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T: Body> Sync for Object<T> {}

/// "vioRDMA" and the type in the low byte.
const fn tag<T: Body>() -> u64 {
    0x7669_6f52_444d_4100 | T::TYPE.0.cast_unsigned() as u64
}

/// An object not yet handed out. Dropping it undoes the creation.
pub struct Created<T: Body>(Ref<T>);

impl<T: Body> Created<T> {
    //= R-CREATE-8, R-OPEN-13, R-OPEN-19
    // Out of line: the object is on the stack for a moment, and so are its parts in the caller.
    #[inline(never)]
    pub fn try_new(version: NDK_VERSION, body: T) -> Answer<Self> {
        let header = NDK_OBJECT_HEADER {
            Version: version,
            ObjectType: T::TYPE,
            NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [core::ptr::null_mut(); 4] },
        };
        let dispatch = core::ptr::from_ref(T::DISPATCH).cast();
        let object = try_box_or_return(Object {
            public: UnsafeCell::new(Public { header, dispatch }),
            tag: tag::<T>(),
            holds: AtomicUsize::new(1),
            life: SpinLock::new((Life::Open, OnClosed::Nobody)),
            body,
        })
        .map_err(|object| {
            // What the engine has must go all the same.
            object.body.finish();
            STATUS_INSUFFICIENT_RESOURCES
        })?;
        let object = Box::into_raw(object);
        // SAFETY: `into_raw` gives no null; `holds` counts this reference.
        Ok(Self(Ref(unsafe { NonNull::new_unchecked(object) })))
    }

    /// A hold of the provider's own, beside the consumer's.
    pub fn hold(&self) -> Ref<T> {
        self.0.clone()
    }

    /// Hands the object, and with it the hold that only close gives up, to the consumer.
    pub fn publish(self) -> *mut T::Public {
        let object = self.0.0;
        core::mem::forget(self);
        object.as_ptr().cast()
    }
}

impl<T: Body> Drop for Created<T> {
    fn drop(&mut self) {
        let mut life = self.0.object().life.lock();
        life.0 = life.0.on(LifeEvent::Abandon).unwrap_or(life.0);
    }
}

/// One hold on an object.
pub struct Ref<T: Body>(NonNull<Object<T>>);

// SAFETY: a shared reference with a count; the object is `Send + Sync`.
unsafe impl<T: Body> Send for Ref<T> {}
// SAFETY: as above.
unsafe impl<T: Body> Sync for Ref<T> {}

impl<T: Body> Ref<T> {
    fn object(&self) -> &Object<T> {
        // SAFETY: the object lives as long as there is a hold, and this is one.
        unsafe { self.0.as_ref() }
    }

    /// Whether two references are to one object.
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The object's address, for a table of look-ups.
    pub fn as_ptr(&self) -> NonNull<Object<T>> {
        self.0
    }

    /// The consumer's pointer to the object, for a callback that mentions it.
    pub fn public(&self) -> *mut T::Public {
        self.0.as_ptr().cast()
    }

    /// Whether the consumer has asked to close the object.
    pub fn is_closing(&self) -> bool {
        self.object().life.lock().0 != Life::Open
    }

    /// Gives up this hold; tells whom to inform when it was the last one and the object is gone.
    fn give_up(self) -> Option<OnClosed> {
        let object = self.0;
        core::mem::forget(self);
        // SAFETY: the hold being given up is still counted.
        let holds = unsafe { &object.as_ref().holds };
        if holds.fetch_sub(1, Ordering::Release) != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        // SAFETY: nobody else holds the object; it is freed by the caller's caller, below.
        let last = unsafe { object.as_ref() };
        last.body.finish();
        let mut life = last.life.lock();
        life.0 = life.0.on(LifeEvent::LastHold).unwrap_or(life.0);
        Some(life.1)
    }

    /// Frees an object whose last hold was given up, which lets go of its antecedents.
    ///
    /// # Safety
    /// `give_up` of a hold on `object` returned `Some`, and this is the only call after it.
    unsafe fn free(object: NonNull<Object<T>>) {
        // SAFETY: made by `Box::into_raw` in `Created::try_new`; no hold is left.
        drop(unsafe { Box::from_raw(object.as_ptr()) });
    }
}

impl<T: Body> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object().body
    }
}

impl<T: Body> Clone for Ref<T> {
    fn clone(&self) -> Self {
        self.object().holds.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl<T: Body> Drop for Ref<T> {
    fn drop(&mut self) {
        let object = self.0;
        // The hold moves into `give_up`; `self` is not used again.
        let Some(on_closed) = Self(object).give_up() else { return };
        if let OnClosed::Consumer(callback, context) = on_closed {
            // SAFETY: the consumer gave this callback and context to close, which returned STATUS_PENDING.
            unsafe { callback(context.get()) };
        }
        // SAFETY: `give_up` returned `Some`.
        unsafe { Self::free(object) };
        if let OnClosed::Waiter(event) = on_closed {
            // SAFETY: the waiter keeps the event until it is set.
            unsafe { event.as_ref() }.set();
        }
    }
}

/// An object the consumer passes to a call: not a hold, the consumer keeps its own during the call
/// (R-CLOSE-20).
//= R-CLOSE-20
pub struct Borrow<'a, T: Body>(ManuallyDrop<Ref<T>>, PhantomData<&'a T>);

impl<T: Body> Borrow<'_, T> {
    /// The object behind a pointer of the consumer, if it is one of this type.
    ///
    /// # Safety
    /// `public` is null or was handed out by this provider and is not closed; it stays so for the borrow's
    /// life.
    pub unsafe fn new(public: *mut T::Public) -> Option<Self> {
        let object = NonNull::new(public.cast::<Object<T>>())?;
        // SAFETY: the caller's promise; every object of the provider has its tag at the same place.
        let found = unsafe { (*object.as_ptr()).tag };
        (found == tag::<T>()).then(|| Self(ManuallyDrop::new(Ref(object)), PhantomData))
    }
}

impl<T: Body> Deref for Borrow<'_, T> {
    type Target = Ref<T>;

    fn deref(&self) -> &Ref<T> {
        &self.0
    }
}

impl<T: Body> Ref<T> {
    /// One more hold on an object found in a table, unless its last one is gone.
    ///
    /// # Safety
    /// `object` has not been freed; the table's lock keeps it from being freed during the call.
    pub unsafe fn try_hold(object: NonNull<Object<T>>) -> Option<Self> {
        // SAFETY: the caller's promise.
        let holds = unsafe { &(*object.as_ptr()).holds };
        holds
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |holds| {
                (holds != 0).then(|| holds.wrapping_add(1))
            })
            .ok()
            .map(|_| Self(object))
    }

    /// `NdkClose*`: `STATUS_SUCCESS` when the object is gone, else `STATUS_PENDING` and the callback later.
    ///
    /// `linger` is given a hold of its own. Keeping it makes the close pend; what it returns is called when
    /// the answer is settled.
    //= R-CLOSE-1, R-CLOSE-21, R-CLOSE-23
    pub fn close<L: FnOnce()>(
        &self,
        callback: Option<NDK_FN_CLOSE_COMPLETION>,
        context: Context,
        linger: impl FnOnce(Self) -> L,
    ) -> NTSTATUS {
        let on_closed = callback.map_or(OnClosed::Nobody, |callback| OnClosed::Consumer(callback, context));
        let Some(consumer) = self.begin_close(on_closed) else {
            // Closed twice: the second time is a mistake of the consumer's that costs nothing.
            return STATUS_SUCCESS;
        };
        T::closing(&consumer);
        let settled = linger(consumer.clone());
        let object = consumer.0;
        if consumer.give_up().is_none() {
            // Not the last hold; the object may be gone by now all the same.
            settled();
            return STATUS_PENDING;
        }
        // SAFETY: `give_up` returned `Some`.
        unsafe { Self::free(object) };
        STATUS_SUCCESS
    }

    /// Closes the object and returns when it is gone. `PASSIVE_LEVEL`.
    pub fn close_and_wait(&self, closed: &Event) {
        if let Some(consumer) = self.begin_close(OnClosed::Waiter(NonNull::from(closed))) {
            T::closing(&consumer);
            drop(consumer);
            closed.wait();
        }
    }

    /// Takes back the hold that the consumer was given by `publish`.
    fn begin_close(&self, on_closed: OnClosed) -> Option<Self> {
        let mut life = self.object().life.lock();
        *life = (life.0.on(LifeEvent::Close)?, on_closed);
        Some(Self(self.0))
    }
}

/// A pointer of the consumer's that is passed back to its callbacks and never followed.
#[derive(Clone, Copy)]
pub struct Context(*mut c_void);

// SAFETY: only a number to the provider; the consumer's callbacks may run on any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn new(context: *mut c_void) -> Self {
        Self(context)
    }

    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// A request that pends: its callback is made exactly once, and keeps the object until it has returned.
//= R-CLOSE-4, R-CLOSE-7
pub struct Request<T: Body> {
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: Context,
    /// Given up after the callback.
    _object: Ref<T>,
}

impl<T: Body> Request<T> {
    /// The request that a call on `object` is about to answer with `STATUS_PENDING`.
    pub fn new(object: Ref<T>, completion: Option<NDK_FN_REQUEST_COMPLETION>, context: Context) -> Self {
        Self { completion, context, _object: object }
    }

    /// Tells the consumer. Not under a lock.
    pub fn complete(mut self, status: NTSTATUS) {
        self.tell(status);
    }

    fn tell(&mut self, status: NTSTATUS) {
        if let Some(completion) = self.completion.take() {
            // SAFETY: the consumer gave this callback and context with a request that is pending.
            unsafe { completion(self.context.get(), status) };
        }
    }
}

impl<T: Body> Drop for Request<T> {
    fn drop(&mut self) {
        self.tell(STATUS_CANCELLED);
    }
}

/// The consumer's end of a create call that pends.
pub struct CreateRequest {
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: Context,
}

impl CreateRequest {
    pub fn new(completion: Option<NDK_FN_CREATE_COMPLETION>, context: Context) -> Self {
        Self { completion, context }
    }

    /// Whether the call may pend at all.
    pub fn may_pend(&self) -> bool {
        self.completion.is_some()
    }

    /// Hands over the object, or a null one with the failure. Not under a lock.
    //= R-CREATE-2, R-CREATE-6, R-CREATE-7, R-CREATE-10, R-CREATE-12
    pub fn complete<T: Body>(self, outcome: Answer<Created<T>>) {
        let Some(completion) = self.completion else { return };
        let (status, object) = match outcome {
            Ok(created) => (STATUS_SUCCESS, created.publish().cast()),
            Err(status) => (status, core::ptr::null_mut()),
        };
        // SAFETY: the consumer gave this callback and context with a create call that returned
        // STATUS_PENDING. The object is the consumer's from here on.
        unsafe { completion(self.context.get(), status, object) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::vec::Vec;

    /// What happened, in order.
    static LOG: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    struct Parent;
    struct Child(#[allow(dead_code)] Ref<Parent>);

    impl Body for Parent {
        type Public = ndk_abi::ndk::NDK_PD;
        type Dispatch = ();
        const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;
        const DISPATCH: &'static () = &();

        fn finish(&self) {
            LOG.lock().unwrap().push("parent finished");
        }
    }

    impl Body for Child {
        type Public = ndk_abi::ndk::NDK_MR;
        type Dispatch = ();
        const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMr;
        const DISPATCH: &'static () = &();

        fn closing(_this: &Ref<Self>) {
            LOG.lock().unwrap().push("child closing");
        }

        fn finish(&self) {
            LOG.lock().unwrap().push("child finished");
        }
    }

    struct Stranger;

    impl Body for Stranger {
        type Public = ndk_abi::ndk::NDK_CQ;
        type Dispatch = ();
        const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;
        const DISPATCH: &'static () = &();
    }

    unsafe extern "efiapi" fn note(context: *mut c_void) {
        let text = if context.is_null() { "parent closed" } else { "child closed" };
        LOG.lock().unwrap().push(text);
    }

    unsafe extern "efiapi" fn note_request(_context: *mut c_void, status: NTSTATUS) {
        assert_eq!(status, STATUS_CANCELLED);
        LOG.lock().unwrap().push("request cancelled");
    }

    fn let_go<T: Body>(hold: Ref<T>) -> impl FnOnce() {
        drop(hold);
        || {}
    }

    const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

    //= R-CLOSE-3, R-CLOSE-4, R-CLOSE-7, R-CLOSE-9, R-CLOSE-10
    #[test]
    fn the_close_callback_comes_after_everything_else_and_before_the_parents() {
        let parent = Created::try_new(VERSION, Parent).ok().unwrap();
        let hold = parent.hold();
        let child = Created::try_new(VERSION, Child(hold.clone())).ok().unwrap();
        let request = Request::new(child.hold(), Some(note_request), Context::new(core::ptr::null_mut()));
        let (parent, child) = (parent.publish(), child.publish());
        drop(hold);
        // SAFETY: published above.
        let parent = unsafe { Borrow::<Parent>::new(parent) }.unwrap();
        // SAFETY: published above.
        let child = unsafe { Borrow::<Child>::new(child) }.unwrap();
        let (null, other) = (core::ptr::null_mut(), core::ptr::without_provenance_mut(1));
        assert_eq!(parent.close(Some(note), Context::new(null), let_go), STATUS_PENDING);
        assert_eq!(child.close(Some(note), Context::new(other), let_go), STATUS_PENDING);
        drop(request);
        let order = [
            "child closing",
            "request cancelled",
            "child finished",
            "child closed",
            "parent finished",
            "parent closed",
        ];
        assert_eq!(*LOG.lock().unwrap(), order);
    }

    #[test]
    fn a_pointer_to_an_object_of_another_type_is_none() {
        let created = Created::try_new(VERSION, Stranger).ok().unwrap();
        let public = created.hold().public();
        // SAFETY: an object of the provider.
        assert!(unsafe { Borrow::<Child>::new(public.cast()) }.is_none());
        // SAFETY: null is allowed.
        assert!(unsafe { Borrow::<Child>::new(core::ptr::null_mut()) }.is_none());
    }

    #[test]
    fn the_life_of_an_object() {
        insta::assert_snapshot!(crate::machine::print(Life::TABLE));
    }
}
