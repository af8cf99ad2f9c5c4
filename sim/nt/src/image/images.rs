// SPDX-License-Identifier: MIT OR Apache-2.0

//! The images loaded on a host.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{error::LoadError, load::Image};

/// Maximum number of images on a host.
const MAX_IMAGES: usize = 16;
/// Distance between the bases of images.
const DISTANCE: usize = 256 << 20;

/// The images of a host, in the order they were loaded. They stay until the host ends: stack walks and
/// faults of a driver that has unloaded are attributed to its image.
///
/// Looking up an image takes no lock, so that a signal handler can do it.
#[derive(Default)]
pub struct Images {
    loaded: [OnceLock<Arc<Image>>; MAX_IMAGES],
    loading: Mutex<()>,
}

impl Images {
    /// Loads an image to the next free address from `base`.
    ///
    /// # Errors
    /// Those of `load`; [`LoadError::Refused`] when the host is full.
    pub(crate) fn load(
        &self,
        base: usize,
        load: impl FnOnce(usize) -> Result<Image, LoadError>,
    ) -> Result<Arc<Image>, LoadError> {
        let _loading = self.loading.lock();
        let free = self.loaded.iter().enumerate().find(|(_, place)| place.get().is_none());
        let Some((index, place)) = free else {
            return Err(LoadError::Refused(format!("the host has {MAX_IMAGES} images already")));
        };
        let image = load(base + index * DISTANCE)?;
        if image.size() > DISTANCE {
            return Err(LoadError::Refused(format!("its size is {} bytes", image.size())));
        }
        Ok(place.get_or_init(|| Arc::new(image)).clone())
    }

    /// Returns the image that contains an address.
    #[must_use]
    pub fn find(&self, address: usize) -> Option<&Arc<Image>> {
        self.iter().find(|image| image.contains(address))
    }

    /// Returns all images, in the order they were loaded.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Image>> {
        self.loaded.iter().map_while(OnceLock::get)
    }
}
