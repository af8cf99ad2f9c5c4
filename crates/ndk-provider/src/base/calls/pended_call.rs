// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that may return `STATUS_PENDING`, and how they complete.
//!
//! Create, request and close calls complete inline, or a work item at `PASSIVE_LEVEL` completes them, if the consumer gave a
//! callback: where the memory that they need is not at hand at the caller's IRQL ([`NeededMemory`]), or as the configuration
//! says ([`CreateCompletion`]). Requests that wait for the network (connect, accept, disconnect) always pend: the connector
//! holds their [`PendedRequest`].

use super::needed_memory::NeededMemory;
use crate::base::object::callback::{CreateCallback, RequestCallback};
use crate::base::object::{Created, DispatchTable, ObjectType, Ref};
use crate::base::state::config::CreateCompletion;
use crate::base::state::provider_state::ProviderState;
use crate::base::status::{self, NtResult};
use crate::base::strict::CallKind;
use core::ptr::null_mut;
use ndk_abi::nt::{
    NTSTATUS, STATUS_CANCELLED, STATUS_DEVICE_REMOVED, STATUS_INSUFFICIENT_RESOURCES, STATUS_PENDING,
    STATUS_SUCCESS,
};
use nt::WorkItem;

/// A request that pends. Its callback is made exactly once; the object is held until the callback returned.
//= R-CLOSE-4, R-CLOSE-7
//= R-CLOSE-18
pub struct PendedRequest<T: ObjectType> {
    completion: Option<RequestCallback>,
    /// Released after the callback.
    _object: Ref<T>,
}

impl<T: ObjectType> PendedRequest<T> {
    /// Returns a request on `object` whose call is about to return `STATUS_PENDING`.
    pub fn new(object: Ref<T>, completion: Option<RequestCallback>) -> Self {
        Self { completion, _object: object }
    }

    /// Makes the completion callback. The caller holds no lock.
    pub fn complete(mut self, status: NTSTATUS) {
        self.call(status);
    }

    fn call(&mut self, status: NTSTATUS) {
        if let Some(completion) = self.completion.take() {
            completion.call(status);
        }
    }
}

impl<T: ObjectType> Drop for PendedRequest<T> {
    fn drop(&mut self) {
        self.call(STATUS_CANCELLED);
    }
}

/// Completes a pended create call with the new object, or a null object and the failure.
//= R-CREATE-2, R-CREATE-6, R-CREATE-7, R-CREATE-10, R-CREATE-12
fn complete_create<T: DispatchTable>(completion: CreateCallback, outcome: NtResult<Created<T>>) {
    match outcome {
        //= R-CREATE-11
        Ok(created) => completion.call(STATUS_SUCCESS, created.publish().cast()),
        Err(status) => completion.call(status, null_mut()),
    }
}

/// Reports the mistake for which a call on `object` that pended has failed, if calls are checked.
fn note_failure<T: ObjectType>(object: &Ref<T>, kind: CallKind, status: Option<&NTSTATUS>) {
    if let (Some(checker), Some(status)) = (object.checker(), status) {
        checker.failed_later(object.subject(), kind, *status);
    }
}

/// The state of a create call that has not failed.
pub enum Outcome<T> {
    /// It has completed.
    Done(T),
    /// Its callback completes it. The callback may have been made already.
    Pending,
}

impl ProviderState {
    /// Returns whether a call pends that needs this memory and can pend.
    //= R-CREATE-1, R-CREATE-13
    fn pends(&self, memory: NeededMemory) -> bool {
        match self.create_completion {
            CreateCompletion::Auto => !memory.is_at_hand(),
            CreateCompletion::Inline => false,
            CreateCompletion::Pend | CreateCompletion::PendAll => true,
        }
    }

    /// Runs a create call: inline, or from a work item that calls `completion`. `parent` is held until the
    /// callback has returned.
    ///
    /// # Errors
    /// The failure of a call that does not pend.
    //= R-CREATE-1, R-CREATE-2, R-CREATE-4, R-CREATE-13, R-CREATE-18
    pub fn create<T: DispatchTable, P: ObjectType>(
        &self,
        parent: &Ref<P>,
        completion: Option<CreateCallback>,
        memory: NeededMemory,
        make: impl FnOnce() -> NtResult<Created<T>> + Send + 'static,
    ) -> NtResult<Outcome<Created<T>>> {
        //= R-CREATE-16
        if !self.environment.is_present() {
            return Err(STATUS_DEVICE_REMOVED);
        }
        let fails = self.create_faults.fails(T::TYPE);
        let make = move || if fails { Err(STATUS_INSUFFICIENT_RESOURCES) } else { make() };
        let Some(completion) = completion.filter(|_| self.pends(memory)) else {
            return make().map(Outcome::Done);
        };
        let parent = parent.clone();
        let work = move || {
            let outcome = make();
            note_failure(&parent, CallKind::Create, outcome.as_ref().err());
            complete_create(completion, outcome);
            drop(parent);
        };
        let item = WorkItem::try_new(self.environment.owner(), work);
        let item = item.map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        //= R-CREATE-9
        self.run_or_hold(move || item.queue());
        Ok(Outcome::Pending)
    }

    /// Runs a request on an object: inline, or from a work item that calls `completion`. Returns the status
    /// of the call.
    pub fn request<T: ObjectType>(
        &self,
        object: &Ref<T>,
        completion: Option<RequestCallback>,
        memory: NeededMemory,
        work: impl FnOnce(&Ref<T>) -> NtResult + Send + 'static,
    ) -> NTSTATUS {
        if completion.is_none() || !self.pends(memory) {
            return status::of(work(object));
        }
        let request = PendedRequest::new(object.clone(), completion);
        let object = object.clone();
        let task = move || {
            let outcome = work(&object);
            note_failure(&object, CallKind::Request, outcome.as_ref().err());
            request.complete(status::of(outcome));
        };
        match WorkItem::try_new(self.environment.owner(), task) {
            Ok(item) => self.run_or_hold(move || item.queue()),
            // Pool is exhausted. The task exists already and may call back on this stack.
            //= R-IRQL-5
            Err(task) => task(),
        }
        STATUS_PENDING
    }

    /// Makes a close call pend if calls shall pend: keeps `reference` until a work item releases it. The work
    /// item is queued when the returned function is called.
    pub fn pend_close<T: ObjectType>(&self, reference: Ref<T>) -> impl FnOnce() {
        let item = if self.pends(NeededMemory::SMALL) {
            WorkItem::try_new(self.environment.owner(), move || drop(reference)).ok()
        } else {
            None
        };
        move || {
            if let Some(item) = item {
                self.run_or_hold(move || item.queue());
            }
        }
    }
}
