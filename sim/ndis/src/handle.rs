// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles that the image holds instead of addresses.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use nt_sim::{current, services::Slot};

use crate::rules::{self, broken};

pub(crate) static HANDLES: Slot<Handles> = Slot::new();

/// Not canonical: dereferencing a handle faults.
const FIRST: usize = 0x4e44_4953_0000_0000;
const STEP: usize = 0x10;

type Object = Arc<dyn Any + Send + Sync>;

/// The handles of one host.
#[derive(Default)]
pub struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    made: usize,
    objects: BTreeMap<usize, Object>,
}

impl Handles {
    /// Returns a new handle for `object`.
    pub fn insert(&self, object: Object) -> usize {
        let mut table = self.table.lock();
        table.made += 1;
        let handle = FIRST + table.made * STEP;
        table.objects.insert(handle, object);
        handle
    }

    /// Creates an object that contains its own handle.
    pub fn insert_with<T: Any + Send + Sync>(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let mut table = self.table.lock();
        table.made += 1;
        let handle = FIRST + table.made * STEP;
        let object = make(handle);
        table.objects.insert(handle, object.clone());
        object
    }

    pub fn get<T: Any + Send + Sync>(&self, handle: usize) -> Option<Arc<T>> {
        let object = self.table.lock().objects.get(&handle)?.clone();
        object.downcast().ok()
    }

    pub fn remove<T: Any + Send + Sync>(&self, handle: usize) -> Option<Arc<T>> {
        let object = self.get(handle)?;
        self.table.lock().objects.remove(&handle);
        Some(object)
    }
}

/// Returns the object of a handle of the calling thread's host. An invalid handle is a violation.
pub fn object<T: Any + Send + Sync>(what: &str, handle: usize) -> Arc<T> {
    let found = current().host().state(&HANDLES).get(handle);
    found.unwrap_or_else(|| broken(rules::HANDLE, format!("{handle:#x} is not a {what}")))
}

/// Returns the [`object`] of a handle and closes the handle.
pub fn take<T: Any + Send + Sync>(what: &str, handle: usize) -> Arc<T> {
    let found = current().host().state(&HANDLES).remove(handle);
    found.unwrap_or_else(|| broken(rules::HANDLE, format!("{handle:#x} is not a {what}")))
}
