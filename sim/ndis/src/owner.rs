// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that belong to an adapter: it must release them before it is halted.

use std::collections::BTreeMap;

use nt_sim::{Host, services::Slot, verifier::objects::Object};
use parking_lot::Mutex;

/// The owners of a host's objects.
pub(crate) static OWNERS: Slot<Owners> = Slot::new();

/// The owner's handle by kind and address of an object.
#[derive(Default)]
pub(crate) struct Owners(Mutex<BTreeMap<(&'static str, usize), usize>>);

/// Records that the image holds an object that it allocated with the handle `owner`, of an adapter or a driver.
pub(crate) fn hold(host: &Host, owner: usize, kind: &'static str, address: usize) {
    host.objects.add(kind, address);
    host.state(&OWNERS).0.lock().insert((kind, address), owner);
}

/// Records that the image released an object; returns `false` when it did not hold it.
pub(crate) fn release(host: &Host, kind: &'static str, address: usize) -> bool {
    host.state(&OWNERS).0.lock().remove(&(kind, address));
    host.objects.remove(kind, address)
}

/// Returns whether an object was allocated with the handle `owner`.
pub(crate) fn is_held(host: &Host, owner: usize, kind: &'static str, address: usize) -> bool {
    host.state(&OWNERS).0.lock().get(&(kind, address)) == Some(&owner)
}

/// Returns what the image holds of the owner with this handle, in the order of creation.
pub(crate) fn held(host: &Host, owner: usize) -> Vec<Object> {
    let objects = host.objects.list();
    let owners = host.state(&OWNERS).0.lock();
    let belongs = |object: &Object| owners.get(&(object.kind, object.address)) == Some(&owner);
    objects.into_iter().filter(belongs).collect()
}
