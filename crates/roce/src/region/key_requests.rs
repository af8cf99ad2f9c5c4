// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executes requests that change keys: fast registrations, binds and invalidations.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::access_rights::{Access, AccessError, KeyError, KeyRange, Pd, Scope};
use super::binding_slot::Ticket;
use super::fast_register::Registration;
use super::key_state::{Event, State};
use super::memory_region::{Content, Region};
use super::table::RegionTable;
use super::window::{Binding, WindowState, WindowType};
use crate::error::PostError;

impl<R: RawMutex> RegionTable<R> {
    /// Stages the parameters of a fast registration.
    pub(crate) fn stage_registration(
        &self,
        pd: Pd,
        key: u32,
        asked: &Registration<'_>,
    ) -> Result<Ticket, PostError> {
        //= R-MR-52
        let region = self.table.get(key >> 8).filter(|region| region.pd == pd).ok_or(PostError::Invalid)?;
        let Content::Fast(fast) = &region.content else { return Err(PostError::NotAllowed) };
        fast.check(asked)?;
        // One registration of a region can be staged at a time.
        fast.slot.stage(|pages| pages.set(key, asked)).ok_or(PostError::QueueFull)
    }

    /// Stages the parameters of a bind.
    pub(crate) fn stage_binding(&self, by: Scope, key: u32, asked: &Binding) -> Result<Ticket, PostError> {
        let window =
            self.table.get(key >> 8).filter(|region| region.pd == by.pd).ok_or(PostError::Invalid)?;
        let Content::Window(view) = &window.content else { return Err(PostError::NotAllowed) };
        let needs_bytes = view.window_type == WindowType::Type2;
        if !Access::REMOTE.contains(asked.access)
            || needs_bytes && asked.length == 0
            || asked.address.checked_add(asked.length).is_none()
        {
            return Err(PostError::Invalid);
        }
        if asked.length > 0
            && let Some(region) = self.table.get(asked.region >> 8)
            && let Content::Fixed(fixed) = &region.content
        {
            //= R-MR-59
            if asked.access.contains(Access::REMOTE_WRITE) && !region.access().contains(Access::LOCAL_WRITE) {
                return Err(PostError::NoRight);
            }
            //= R-MR-58
            //= R-MR-62
            let inside = fixed.range.offset(asked.region, asked.address, asked.length, Access::empty());
            inside.map_err(|AccessError| PostError::Invalid)?;
        }
        view.slot.stage(|bound| bound.set(key, by.qpn, asked)).ok_or(PostError::QueueFull)
    }

    /// Checks that `key` can be invalidated by a request: not the key of a region registered by a command or of a window of type 1.
    pub(crate) fn check_invalidation(&self, key: u32) -> Result<(), PostError> {
        //= R-MR-43
        match self.table.get(key >> 8).as_deref() {
            Some(Region { content: Content::Fixed(_), .. }) => Err(PostError::NotAllowed),
            Some(Region { content: Content::Window(view), .. }) if view.window_type == WindowType::Type1 => {
                Err(PostError::NotAllowed)
            }
            _ => Ok(()),
        }
    }

    /// Drops the staged parameters of a request that will not be executed.
    pub(crate) fn cancel(&self, key: u32, ticket: Ticket) {
        if let Some(region) = self.table.get(key >> 8) {
            match &region.content {
                Content::Fixed(_) => {}
                Content::Fast(fast) => fast.slot.cancel(ticket),
                Content::Window(view) => view.slot.cancel(ticket),
            }
        }
    }

    /// Executes a staged registration before its turn in the send queue, if the region is free.
    pub(crate) fn register_early(&self, key: u32, ticket: Ticket) -> bool {
        let Some(region) = self.table.get(key >> 8) else { return false };
        match &region.content {
            // Only the holder of the ticket can change that.
            Content::Fast(fast) if fast.slot.state() == State::Free => {
                fast.slot.register(ticket, |_| true).is_ok()
            }
            _ => false,
        }
    }

    /// Executes a staged registration or bind.
    pub(crate) fn activate(&self, by: Scope, key: u32, ticket: Ticket) -> Result<(), KeyError> {
        let region = self.table.get(key >> 8).ok_or(KeyError)?;
        match &region.content {
            Content::Fixed(_) => Err(KeyError),
            //= R-MR-51
            Content::Fast(fast) => fast.slot.register(ticket, |_| true),
            Content::Window(view) => {
                if view.window_type == WindowType::Type1 && self.unbind(view, ticket)? {
                    return Ok(());
                }
                view.slot.register(ticket, |bound| self.bind(by, &bound.asked()).is_ok())
            }
        }
    }

    /// Ends the binding of a window of type 1, for the staged one, which replaces it. Returns whether that has no bytes: then it is done.
    #[cold]
    #[inline(never)]
    fn unbind(&self, view: &WindowState, ticket: Ticket) -> Result<bool, KeyError> {
        let is_last = view.slot.staged(ticket).ok_or(KeyError)?.asked().length == 0;
        let mut of = 0;
        let unbound = view.slot.invalidate(Event::Invalidate, |bound| {
            of = bound.region();
            true
        });
        if unbound.is_ok() {
            self.unbound(of);
        }
        if is_last {
            view.slot.cancel(ticket);
        }
        Ok(is_last)
    }

    /// Binds a window to its region, if the region exists and allows it.
    fn bind(&self, by: Scope, asked: &Binding) -> Result<(), KeyError> {
        //= R-MR-67
        let region = self.table.get(asked.region >> 8).filter(|region| region.pd == by.pd).ok_or(KeyError)?;
        let Content::Fixed(fixed) = &region.content else { return Err(KeyError) };
        let written = asked.access.contains(Access::REMOTE_WRITE);
        let right = if written { Access::LOCAL_WRITE } else { Access::empty() };
        let inside = fixed.range.offset(asked.region, asked.address, asked.length, right);
        inside.map_err(|AccessError| KeyError)?;
        //= R-MR-64
        fixed.windows.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Executes an invalidation.
    pub(crate) fn invalidate(&self, by: Scope, key: u32) -> Result<(), KeyError> {
        self.deactivate(by, key, Event::Invalidate)
    }

    /// Executes the invalidation of a peer's SEND with Invalidate.
    pub(crate) fn invalidate_remotely(&self, by: Scope, key: u32) -> Result<(), KeyError> {
        self.deactivate(by, key, Event::RemoteInvalidate)
    }

    fn deactivate(&self, by: Scope, key: u32, event: Event) -> Result<(), KeyError> {
        //= rocev2 §10
        //= R-MR-43
        //= R-MR-50
        //= R-QP-79
        let region = self.table.get(key >> 8).filter(|region| region.pd == by.pd).ok_or(KeyError)?;
        let usable = |range: KeyRange| {
            range.key == key && (event == Event::Invalidate || range.access.intersects(Access::OF_PEERS))
        };
        match &region.content {
            Content::Fixed(_) => Err(KeyError),
            Content::Fast(fast) => fast.slot.invalidate(event, |pages| usable(pages.range.get())),
            Content::Window(view) if view.window_type == WindowType::Type1 => Err(KeyError),
            Content::Window(view) => {
                let mut of = 0;
                view.slot.invalidate(event, |bound| {
                    of = bound.region();
                    bound.qpn() == by.qpn.value() && usable(bound.range.get())
                })?;
                self.unbound(of);
                Ok(())
            }
        }
    }
}
