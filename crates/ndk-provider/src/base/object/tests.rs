// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reference counts, closes and callbacks of objects.

use super::callback::RequestCallback;
use super::*;
use crate::base::calls::pended_call::PendedRequest;
use core::ptr::{null_mut, without_provenance_mut};
use ndk_abi::nt::STATUS_CANCELLED;
use std::sync::Mutex;
use std::vec::Vec;

/// Events in order.
static LOG: Mutex<Vec<&str>> = Mutex::new(Vec::new());

struct Parent;
struct Child(#[allow(dead_code)] Ref<Parent>);

impl DispatchTable for Parent {
    type Table = ();
    const TABLE: &'static () = &();
}

impl ObjectType for Parent {
    type Public = ndk_abi::ndk::NDK_PD;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;

    fn on_finish(&self) {
        LOG.lock().unwrap().push("parent finished");
    }
}

impl DispatchTable for Child {
    type Table = ();
    const TABLE: &'static () = &();
}

impl ObjectType for Child {
    type Public = ndk_abi::ndk::NDK_MR;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeMr;

    fn on_close(_this: &Ref<Self>) {
        LOG.lock().unwrap().push("child closing");
    }

    fn on_finish(&self) {
        LOG.lock().unwrap().push("child finished");
    }
}

struct OtherType;

impl DispatchTable for OtherType {
    type Table = ();
    const TABLE: &'static () = &();
}

impl ObjectType for OtherType {
    type Public = ndk_abi::ndk::NDK_CQ;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypeCq;
}

unsafe extern "efiapi" fn note(context: *mut c_void) {
    let text = if context.is_null() { "parent closed" } else { "child closed" };
    LOG.lock().unwrap().push(text);
}

unsafe extern "efiapi" fn note_request(_context: *mut c_void, status: NTSTATUS) {
    assert_eq!(status, STATUS_CANCELLED);
    LOG.lock().unwrap().push("request canceled");
}

fn do_not_pend<T: ObjectType>(reference: Ref<T>) -> impl FnOnce() {
    drop(reference);
    || {}
}

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 1 };

//= R-CLOSE-3, R-CLOSE-4, R-CLOSE-7, R-CLOSE-9, R-CLOSE-10
#[test]
fn close_callback_is_the_last_callback_and_precedes_the_parents() {
    let parent = Created::try_new(VERSION, Parent).ok().unwrap();
    let reference = parent.reference();
    let child = Created::try_new(VERSION, Child(reference.clone())).ok().unwrap();
    let request = PendedRequest::new(child.reference(), RequestCallback::new(Some(note_request), null_mut()));
    let (parent, child) = (parent.publish(), child.publish());
    drop(reference);
    // SAFETY: the object was published above and is closed after the borrow.
    let parent = unsafe { Borrow::<Parent>::new(parent) }.unwrap();
    // SAFETY: the object was published above and is closed after the borrow.
    let child = unsafe { Borrow::<Child>::new(child) }.unwrap();
    let parent_closed = CloseCallback::new(Some(note), null_mut());
    let child_closed = CloseCallback::new(Some(note), without_provenance_mut(1));
    assert_eq!(parent.close(parent_closed, do_not_pend), STATUS_PENDING);
    assert_eq!(child.close(child_closed, do_not_pend), STATUS_PENDING);
    drop(request);
    let order = [
        "child closing",
        "request canceled",
        "child finished",
        "child closed",
        "parent finished",
        "parent closed",
    ];
    assert_eq!(*LOG.lock().unwrap(), order);
}

/// An object with a request that holds it until the object is closed.
struct Waiting {
    request: SpinLock<Option<Ref<Self>>>,
}

impl DispatchTable for Waiting {
    type Table = ();
    const TABLE: &'static () = &();
}

impl ObjectType for Waiting {
    type Public = ndk_abi::ndk::NDK_PD;
    const TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::NdkObjectTypePd;

    fn on_close(this: &Ref<Self>) {
        let request = this.request.lock().take();
        assert!(request.is_some());
    }
}

//= R-CLOSE-36
#[test]
fn close_that_waits_cancels_what_it_waits_for() {
    let created = Created::try_new(VERSION, Waiting { request: SpinLock::new(None) }).ok().unwrap();
    let object = created.reference();
    *object.request.lock() = Some(object.clone());
    let event = Event::try_new().unwrap();
    let public = created.publish();
    drop(object);
    // SAFETY: the object was published above and is closed after the borrow.
    let open = unsafe { Borrow::<Waiting>::new(public) }.unwrap();
    open.close_and_wait(&event);
}

/// A call in progress holds no reference: the consumer closes after its calls have returned.
//= R-CLOSE-20
#[test]
fn call_counts_no_reference() {
    let created = Created::try_new(VERSION, OtherType).ok().unwrap();
    let object = created.reference();
    let counted = object.object().head.references.get();
    {
        // SAFETY: an object of this provider.
        let borrowed = unsafe { Borrow::<OtherType>::new(object.as_ptr().as_ptr().cast()) };
        assert!(borrowed.is_some());
        assert_eq!(object.object().head.references.get(), counted);
    }
    assert_eq!(object.object().head.references.get(), counted);
}

#[test]
fn object_whose_creation_failed_is_not_open() {
    let created = Created::try_new(VERSION, OtherType).ok().unwrap();
    let object = created.reference();
    assert!(object.object().head.is_open());
    drop(created);
    assert!(!object.object().head.is_open());
}

#[test]
fn pointer_to_another_object_type_is_rejected() {
    let created = Created::try_new(VERSION, OtherType).ok().unwrap();
    let public = created.reference().as_ptr();
    // SAFETY: an object of this provider.
    assert!(unsafe { Borrow::<Child>::new(public.as_ptr().cast()) }.is_none());
    // SAFETY: `new` accepts a null pointer, for which there is no object to read.
    assert!(unsafe { Borrow::<Child>::new(core::ptr::null_mut()) }.is_none());
}

#[test]
fn object_lifecycle() {
    insta::assert_snapshot!(Lifecycle::table());
}
